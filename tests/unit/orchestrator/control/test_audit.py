"""The judging of an audit: metrics compared, and parts of a program's state named."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.trainers.command.program_hook import orchestrate_state
from orchestrator.control.audit.compare import differences, ignored
from orchestrator.control.audit.left_out import left_out
from orchestrator.control.audit.wording import lines
from orchestrator.rundir import Row, SweepDir
from orchestrator.rundir.records.audits import Audit, LeftOut, MetricDifference


def rows(*values: float, name: str = "return") -> list[Row]:
    return [Row(step, 10 * step, 0.0, {name: value}) for step, value in enumerate(values, 1)]


def test_the_first_frames_and_the_largest_difference_of_a_metric_are_named() -> None:
    assert differences(rows(1, 2, 3, 4), rows(1, 2, 3.5, 6)) == (MetricDifference("return", 30, 3, 3.5, 2),)
    assert differences(rows(1, 2), rows(1, 2)) == ()


def test_bits_count_and_not_a_number_equals_itself() -> None:
    assert differences(rows(0.0), rows(-0.0))
    assert differences(rows(0.1 + 0.2), rows(0.3))
    assert differences(rows(math.nan), rows(math.nan)) == ()
    assert differences(rows(1, 2), rows(1)) == (MetricDifference("return", 20, 2, None, 0.0),)


def test_times_and_loads_do_not_count() -> None:
    one, two = rows(1, 2, name="charts/SPS"), rows(3, 4, name="charts/SPS")
    assert differences(one, two) == ()
    assert ignored(one) == ("charts/SPS",)


def parts_of(**variables: Any) -> list[list[Any]]:
    """The state of a function with these variables, all of which it reads later."""
    names = ", ".join(variables)
    code = f"def program({names}):\n    state = parts(frame(), is_own)\n    return state, [{names}]"
    space = {"parts": orchestrate_state.parts, "frame": sys._getframe, "is_own": "<program>".__eq__}
    exec(compile(code, "<program>", "exec"), space)
    program: Any = space["program"]
    state: list[list[Any]] = program(**variables)[0]
    return state


def note(folder: Path, name: str, line: int, parts: list[list[Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"state-50-{name}.json").write_text(json.dumps({"place": ["train.py", line], "parts": parts}))


def named(folder: Path, was: dict[str, Any], became: dict[str, Any]) -> list[tuple[str, str]]:
    for place in (0, 1):
        note(folder / "straight", str(place), place, parts_of(**was))
        note(folder / "resumed", str(place), place, parts_of(**became))
    return [(one.kind, one.name) for one in left_out(folder / "straight", folder / "resumed", 50)]


class Buffer:
    def __init__(self, pos: int, rows: list[float]) -> None:
        self.pos, self.rows = pos, rows


@pytest.mark.parametrize(
    ("name", "was", "became", "kind"),
    [
        ("epsilon", 0.5, 1.0, "exploration schedule epsilon"),
        ("generator", random.Random(1), random.Random(2), "random generator generator"),
        ("rb", Buffer(3, [1.0]), Buffer(0, [1.0]), "replay memory's position rb.pos"),
        ("rb", Buffer(3, [1.0]), Buffer(0, []), "replay memory rb"),
        ("obs_rms", {"mean": 1.0}, {"mean": 0.0}, "observation normaliser obs_rms['mean']"),
        ("target_network", [1.0], [0.0], "target network target_network"),
        ("last_obs", (1, 2), (1, 3), "observation carried over last_obs"),
        ("thing", {1, 2}, {1, 3}, "variable thing"),
    ],
)
def test_a_part_that_differs_is_named(tmp_path: Path, name: str, was: Any, became: Any, kind: str) -> None:
    same = {"weights": [0.1, 0.2], "text": "a"}
    found = named(tmp_path, {**same, name: was}, {**same, name: became})
    assert [" ".join(one) for one in found] == [kind]


def test_what_differed_before_the_kill_is_not_named(tmp_path: Path) -> None:
    note(tmp_path / "straight", "begin", 9, parts_of(start=1.5, epsilon=0.5))
    tmp_path.joinpath("resumed").mkdir()
    note(tmp_path / "resumed", "begin", 9, parts_of(start=2.5, epsilon=0.5))
    found = named(tmp_path, {"start": 1.5, "epsilon": 0.5}, {"start": 3.5, "epsilon": 1.0})
    assert found == [("exploration schedule", "epsilon")]


def test_a_variable_that_is_set_before_it_is_read_is_no_state() -> None:
    def program(action: int, epsilon: float) -> Any:
        state = orchestrate_state.parts(sys._getframe(), __file__.__eq__)
        action = 3
        return state, action, epsilon

    live = {part[0]: part[4] for part in program(1, 0.5)[0] if part[0] in ("action", "epsilon")}
    assert live == {"action": False, "epsilon": True}


def test_taking_a_state_draws_nothing() -> None:
    generator = random.Random(1)
    before = random.getstate(), generator.getstate()
    parts_of(generator=generator, numbers=iter([1, 2, 3]))
    assert (random.getstate(), generator.getstate()) == before


def audit(verdict: str, **fields: Any) -> Audit:
    return Audit(verdict, {"seed": 0}, 100, (30, 60), "exact", "c0de", 5.0, 12.0, **fields)


def test_audits_are_kept_by_code_and_the_newest_comes_first(tmp_path: Path) -> None:
    sweep_dir = SweepDir(tmp_path, "mine")
    found = audit("not exact", left_out=(LeftOut("optimizer", "optimizer"),))
    path = sweep_dir.audits.add(found)
    assert path == tmp_path / "mine" / "audits" / "c0de.json"
    (path.parent / "other.json").write_text("{")
    assert sweep_dir.audits.read() == [found]
    assert found.overstated
    assert "optimizer optimizer not restored" in found.warning("mine")
    assert not audit("exact").overstated


def test_the_verdict_in_words() -> None:
    assert next(iter(lines(audit("exact")))) == (
        "exact: killed at 30 and 60 of 100 frames and resumed, all metrics are equal"
    )
    lost = audit(
        "not exact",
        differences=(MetricDifference("return", 40, 1.0, 2.0, 1.5),),
        left_out=(LeftOut("exploration schedule", "epsilon", "0.5", "1.0"),),
    )
    assert [*lines(lost)][1:4] == [
        "  return from 40 frames on: straight 1.0, resumed 2.0 (largest difference 1.5)",
        "  not restored:",
        "    exploration schedule epsilon: 0.5 became 1.0",
    ]

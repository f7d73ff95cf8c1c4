"""Variants that use files of their own were trained by the same code while shared files agree."""

from __future__ import annotations

from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.same_code import CODE_FILES, with_same_code
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow


def counted(*runs: tuple[str, dict[str, str] | None], state: RunState = RunState.DONE) -> list[str]:
    """The code that each run counts as, of runs with an id and the files they used."""
    readings = [
        RunReading("s", IndexRow(f"{number:016x}", True, {}), state, "", {"code_id": code, CODE_FILES: files})
        for number, (code, files) in enumerate(runs)
    ]
    found = with_same_code(readings)
    assert all(CODE_FILES not in reading.facts for reading in found)
    return [reading.facts.get("accepted_as") or reading.facts["code_id"] for reading in found]


def test_files_that_only_one_variant_uses_make_no_other_code() -> None:
    sgd, adam = {"train.py": "1", "opt/sgd.yaml": "2"}, {"train.py": "1", "opt/adam.yaml": "3"}
    assert counted(("a", sgd), ("b", adam), ("a", sgd)) == ["a", "a", "a"]
    assert counted(("a", {"ppo.py": "1"}), ("b", {"dqn.py": "2"})) == ["a", "a"]


def test_a_shared_file_that_changed_makes_other_code() -> None:
    first, second = {"train.py": "1", "sgd.yaml": "2"}, {"train.py": "1", "adam.yaml": "3"}
    third = {"train.py": "1", "adam.yaml": "4"}
    assert counted(("a", first), ("b", second), ("c", third)) == ["a", "a", "c"]
    assert counted(("a", first), ("b", None)) == ["a", "b"]

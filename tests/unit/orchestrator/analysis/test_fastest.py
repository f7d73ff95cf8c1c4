"""Grids that ask what is fastest: their answers, cards and the order of the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.report.blocks import Folded, Html
from orchestrator.analysis.report.data import report_data
from orchestrator.analysis.report.sections import sections
from orchestrator.analysis.report.sections.returns import answer
from orchestrator.analysis.run_table import RunReading
from orchestrator.analysis.verdict.fastest import fastest, is_of_speed
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row
from tests.simulated import EVAL, of_readings


def speeds(
    seeds: int, key: str = "experiment.train_device", skipped: Sequence[str] = (), **more: Any
) -> Collected:
    """Runs of two algorithms; the first value of the key trains at a third of the second one's speed."""
    readings = [
        RunReading("s", IndexRow(f"{at:016x}", True, point), RunState.SKIPPED, "", {}, [])
        for at, place in enumerate(skipped, start=1000)
        for point in [{"task": "t", "algorithm": "a", key: place, "seed": 0}]
    ]
    for number, (algorithm, place, seed) in enumerate(product("ab", range(2), range(seeds))):
        point = {"task": "t", "algorithm": algorithm, key: ("cpu", "cuda")[place], "seed": seed} | more
        fps = (1000.0, 3000.0)[place] * (1 + seed / 100)
        own = {"final_return": 1.0 + seed, "frames": 6000, "end_to_end_fps": fps, "wall_time": 60.0}
        history = [Row(0, 6000, 6.0, {EVAL: 1.0 + seed})]
        index = IndexRow(f"{number:016x}", True, point)
        readings.append(RunReading("s", index, RunState.DONE, "", own, history))
    return of_readings(readings)


@pytest.mark.parametrize(
    ("key", "speed"),
    [
        ("threads", True),
        ("device", True),
        ("target", True),
        ("experiment.train_device", True),
        ("experiment.on_policy_n_envs_per_worker", True),
        ("n_envs", True),
        ("num_envs", True),
        ("lr", False),
        ("gamma", False),
        ("algorithm", False),
        ("environment", False),
    ],
)
def test_keys_of_speed(key: str, speed: bool) -> None:
    assert is_of_speed(key) == speed


def test_a_grid_of_devices_is_answered_by_speed_in_each_algorithm() -> None:
    data = report_data((), speeds(5))
    first, second = data.fastest
    assert (first.title, second.title) == ("a", "b")
    assert [one.label for one in first.leaders] == ["cuda"]
    assert first.verdict.startswith(
        "cuda is fastest: 3,060 frames/s, 3.00 times as fast as cpu (95 % interval"
    )
    assert first.remedy == ""
    page = [section.id for section in sections(data)]
    assert page[:2] == ["answer", "speed"]
    [cards] = [block for block in sections(data)[0].blocks if isinstance(block, Html)]
    assert "3,060 frames/s end-to-end" in cards.markup
    assert "1:00 a run" in cards.markup


def test_few_seeds_name_the_command_that_settles_it_and_its_price() -> None:
    assert fastest(report_data((), speeds(4)).groups)[0].remedy == "1 more seed of each would be needed"
    data = report_data((), speeds(2, skipped=("gpu",)))
    assert data.fastest[0].remedy == "3 more seeds of each would be needed"
    [cards] = [block for block in sections(data)[0].blocks if isinstance(block, Html)]
    assert "orchestrate sweep s.yaml --set &#39;seed=range(5)&#39;" in cards.markup
    assert "(12 runs, 12:00 of training)" in cards.markup


def test_a_grid_of_another_key_is_answered_by_returns_with_curves_below() -> None:
    assert fastest(report_data((), speeds(5, "lr")).groups) == []
    data = report_data((), speeds(5, "lr"))
    told = sections(data)
    assert [section.id for section in told[:2]] == ["answer", "learning"]
    found = answer.section(data)
    assert found is not None
    [cards] = [block for block in found.blocks if isinstance(block, Html)]
    assert "a cpu − a cuda: 0 [" in cards.markup  # by how much, with its interval


@pytest.mark.parametrize(("key", "said"), [("threads", "varied by the grid"), ("lr", "no difference found")])
def test_the_audit_is_folded_without_findings_and_names_keys_of_the_grid(key: str, said: str) -> None:
    readings = []
    for number, (value, seed) in enumerate(product((1, 2), range(5))):
        threads = value if key == "threads" else 1
        own = {"final_return": value + seed, "frames": 6000, "end_to_end_fps": 100.0, "threads": threads}
        history = [Row(0, 6000, 6.0, {EVAL: value + seed / 7})]
        index = IndexRow(f"{number:016x}", True, {"algorithm": "a", key: value, "seed": seed})
        readings.append(RunReading("s", index, RunState.DONE, "", own, history))
    data = report_data((), of_readings(readings))
    [audit] = [section for section in sections(data) if section.id == "audit"]
    [block] = audit.blocks
    assert isinstance(block, Folded)
    [table] = audit.tables
    judged = {row[0].text: row[1].text for row in table.rows}
    assert judged["threads"] == said

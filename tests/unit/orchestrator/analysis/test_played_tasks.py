"""Tasks to play, as `--on-task` names them and as records write them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.analysis.evaluations.played_tasks import (
    PlayedTask,
    expanded,
    parse_task,
    read_task,
    trained_on,
)
from orchestrator.core.errors import OrchestrateError

NAMES = ["game/easy", "game/hard", "other/easy"]


@pytest.mark.parametrize(
    ("text", "task", "changes"),
    [
        ("vmas/balance", "vmas/balance", {}),
        (
            "vmas/navigation,n_agents=5, task.x = 1.5",
            "vmas/navigation",
            {"task.n_agents": 5, "task.x": 1.5},
        ),
        ("a/b,c=true,d=text,e=", "a/b", {"task.c": True, "task.d": "text", "task.e": None}),
        (
            "a/b,opponents=[hero, liar],n=3",
            "a/b",
            {"task.opponents": ["hero", "liar"], "task.n": 3},
        ),
        ("a/b,c=[],d=[[1,x],[2.5]]", "a/b", {"task.c": [], "task.d": [[1, "x"], [2.5]]}),
    ],
)
def test_a_task_with_its_changes_is_parsed_and_read_from_records(
    text: str, task: str, changes: dict[str, Any]
) -> None:
    parsed = parse_task(text)
    assert parsed == PlayedTask(task, changes)
    assert read_task(parsed.text("own")) == {"task": task, **changes}


@pytest.mark.parametrize(
    "text", ["", ",", "n_agents=5", "a/b,n_agents", "a/b,=5", "a/b,x=" + "9" * 200, "a/b,x=[1", "a/b,x=[1]]"]
)
def test_what_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(OrchestrateError, match="--on-task"):
        parse_task(text)


def test_a_pattern_names_all_tasks_of_a_family() -> None:
    found = expanded([parse_task("game/*,n=1"), parse_task("mine/x")], NAMES)
    assert found == [
        PlayedTask("game/easy", {"task.n": 1}),
        PlayedTask("game/hard", {"task.n": 1}),
        PlayedTask("mine/x"),
    ]
    with pytest.raises(OrchestrateError, match=r"no task fits 'gane/\*'") as error:
        expanded([parse_task("gane/*")], NAMES)
    assert error.value.hint == "there are game/*"


def test_the_tasks_that_runs_were_trained_on_with_their_keys() -> None:
    points = [
        {"task": "game/hard", "task.n": 1, "lr": 0.1, "seed": 0},
        {"task": "game/hard", "task.n": 1, "lr": 0.2, "seed": 1},
        {"task": "game/easy", "seed": 0},
        {"lr": 0.1},
    ]
    assert trained_on(points) == [PlayedTask("game/hard", {"task.n": 1}), PlayedTask("game/easy")]

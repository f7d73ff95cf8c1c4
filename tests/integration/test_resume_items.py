"""Everything a checkpoint saves is needed: leave one item out, and the resumed run is another run."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.rundir import RunDir
from tests.resuming import Attempt, Kill, Nursery, bits, differences
from tests.tiny_benchmarl import HARD_TARGETS, MULTIWALKER_MAPPO, NAVIGATION_IQL, NAVIGATION_MAPPO

with warnings.catch_warnings():  # what TorchRL says of itself at import is its own to say
    warnings.simplefilter("ignore")
    from jobs.trainers.benchmarl.engine.state import ITEMS

# Where a configuration is needed that makes use of the item; navigation with MAPPO shows the others.
SHOWN_BY: dict[str, dict[str, Any]] = {
    "policy": NAVIGATION_IQL,  # MAPPO's is part of its losses; IQL's also explores less and less
    "target_counters": {**NAVIGATION_IQL, **HARD_TARGETS},
    "buffer_contents": NAVIGATION_IQL,
    "buffer_cursors": NAVIGATION_IQL,
    "evaluation_environments": MULTIWALKER_MAPPO,  # VMAS's are reset before they are used again
}
NEEDS_A_GPU = {"cuda_random"}
# In a sweep of this name every iteration also draws from Python's and NumPy's generators; nothing else does.
DRAWS = "draws"
Interrupted = Callable[[dict[str, Any]], tuple[Path, Path]]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def interrupted(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """Train a configuration twice, once for all tests: left alone, and killed with half of it done."""
    runs: dict[str, tuple[Path, Path]] = {}

    def train(overrides: dict[str, Any]) -> tuple[Path, Path]:
        if str(overrides) not in runs:
            folder = tmp_path_factory.mktemp("run")
            alone, killed = folder / "alone", folder / "killed"
            assert nursery.run(Attempt(str(alone), overrides, sweep=DRAWS)) == 0
            kill = Kill("training", 4 * 6 + 2)
            assert nursery.run(Attempt(str(killed), overrides, kill=kill, sweep=DRAWS)) == -9
            runs[str(overrides)] = alone, killed
        return runs[str(overrides)]

    return train


@pytest.mark.nightly
@pytest.mark.parametrize("item", [item.name for item in ITEMS if item.name not in NEEDS_A_GPU])
def test_a_run_resumed_without_it_differs(
    item: str, nursery: Nursery, interrupted: Interrupted, tmp_path: Path
) -> None:
    overrides = SHOWN_BY.get(item, NAVIGATION_MAPPO)
    alone, killed = interrupted(overrides)
    without = tmp_path / "without"
    shutil.copytree(killed, without)

    code = nursery.run(Attempt(str(without), overrides, leave_out=item, sweep=DRAWS))

    assert code != 0 or _difference(alone, without)


@pytest.mark.nightly
@pytest.mark.parametrize("overrides", [NAVIGATION_MAPPO, *SHOWN_BY.values()], ids=str)
def test_nothing_more_is_needed(
    overrides: dict[str, Any], nursery: Nursery, interrupted: Interrupted, tmp_path: Path
) -> None:
    alone, killed = interrupted(overrides)
    resumed = tmp_path / "resumed"
    shutil.copytree(killed, resumed)

    assert nursery.run(Attempt(str(resumed), overrides, sweep=DRAWS)) == 0

    assert _difference(alone, resumed) == []


def _difference(one: Path, other: Path) -> list[str]:
    histories = [[bits(row.metrics) for row in RunDir(path).history()] for path in (one, other)]
    states: list[Any] = [torch.load(path / "state.pt", weights_only=True) for path in (one, other)]
    for state in states:
        del state["counters"]["total_time"]
    return (["metrics"] if histories[0] != histories[1] else []) + differences(*states)

"""Other ways to stop, and what is on disk: stop signals, damaged checkpoints, finished runs, restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.rundir import RunDir, sha256
from tests.resuming import Attempt, Kill, Nursery, bits
from tests.tiny_benchmarl import FRAMES, NAVIGATION_IQL, NAVIGATION_MAPPO

INTERRUPTED_EXIT = 75
# The frames of an iteration where many iterations are needed.
FEW = 60
Rows = list[dict[str, bytes]]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def alone(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What IQL's run logs if it is left alone."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL)) == 0
    return _rows(folder)


def test_a_damaged_checkpoint_or_segment_gives_way_to_the_one_before(
    nursery: Nursery, alone: Rows, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL, kill=Kill("training", 3 * 6 + 2))) == -9
    newest, before = _checkpoints(folder)[-1], _checkpoints(folder)[-2]
    newest.write_bytes(newest.read_bytes()[:-100])

    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL, kill=Kill("training", 2))) == -9
    point = json.loads(RunDir(folder).attempts()[-1].metrics.read_text().splitlines()[0])["resumed_from"]
    assert point == {"attempt": 1, "frames": int(before.name.split("-")[0])}
    log = RunDir(folder).attempts()[-1].log.read_text()
    assert f"warning: checkpoint passed over: {newest}: is truncated or damaged" in log

    # The oldest segment belongs to every checkpoint: back to the beginning.
    oldest_segment = sorted((folder / "attempts/1/checkpoints").glob("segment-*"))[0]
    oldest_segment.write_bytes(b"\0" + oldest_segment.read_bytes()[1:])
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL)) == 0

    assert _rows(folder) == alone


def reshape(path: Path) -> Path:
    """The same checkpoint with networks of another width, under a name with its own checksum."""
    content = torch.load(path, weights_only=True)
    content["payload"]["policy"] = {
        name: torch.cat([value, value]) if torch.is_tensor(value) and value.ndim else value
        for name, value in content["payload"]["policy"].items()
    }
    torch.save(content, path)
    return path.rename(path.with_name(f"{path.name.split('-')[0]}-{sha256(path)[:16]}.pt"))


def test_a_checkpoint_of_another_shape_gives_way_to_the_one_before(
    nursery: Nursery, alone: Rows, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL, kill=Kill("training", 3 * 6 + 2))) == -9
    newest, before = reshape(_checkpoints(folder)[-1]), _checkpoints(folder)[-2]
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL)) == 0
    second = RunDir(folder).attempt(2)
    point = json.loads(second.metrics.read_text().splitlines()[0])["resumed_from"]
    assert point == {"attempt": 1, "frames": int(before.name.split("-")[0])}
    log = second.log.read_text()
    assert f"warning: checkpoint passed over: {newest}: does not fit the run as it is" in log
    assert _rows(folder) == alone


def test_where_no_checkpoint_fits_nothing_is_begun_anew_unasked(nursery: Nursery, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL, kill=Kill("training", 3 * 6 + 2))) == -9
    found = [reshape(path) for path in _checkpoints(folder)]
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL)) != 0
    log = RunDir(folder).attempt(2).log.read_text()
    assert "does not fit the run as it is configured and coded now (" in log
    assert sorted(_checkpoints(folder)) == sorted(found)


def test_asked_to_stop_it_saves_at_the_end_of_the_iteration(
    nursery: Nursery, alone: Rows, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    rarely = {**NAVIGATION_IQL, "experiment.checkpoint_interval": 100 * FRAMES}
    assert nursery.run(Attempt(str(folder), rarely, stop_after=2)) == INTERRUPTED_EXIT
    assert [int(path.name.split("-")[0]) for path in _checkpoints(folder)] == [2 * FRAMES]

    assert nursery.run(Attempt(str(folder), rarely, stop_after=6)) == 0  # nothing left to save it for

    assert _rows(folder) == alone


def test_a_run_killed_between_its_last_checkpoint_and_its_result_trains_no_more(
    nursery: Nursery, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    writes_of_a_run = 6  # five checkpoints and the last one
    last = Kill("after rename", writes_of_a_run)
    assert nursery.run(Attempt(str(folder), NAVIGATION_MAPPO, kill=last)) == -9
    before = _rows(folder)

    assert nursery.run(Attempt(str(folder), NAVIGATION_MAPPO)) == 0

    assert _rows(folder) == before
    assert len(before) == 6
    assert RunDir(folder).attempts()[-1].metrics.read_text().count("\n") == 1


def test_the_last_checkpoint_holds_all_that_a_longer_run_needs(nursery: Nursery, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert nursery.run(Attempt(str(folder), NAVIGATION_IQL)) == 0
    [final] = [Path(path) for path in json.loads((folder / "outcome.json").read_text())["files"]]
    content = torch.load(final, weights_only=True)
    assert sum(segment["count"] for segment in content["segments"]) >= 400  # the whole ring
    assert {"counters", "losses", "policy", "best", "optimizers", "torch_random"} <= set(content["payload"])
    assert content["payload"]["counters"]["total_frames"] == 6 * FRAMES


@pytest.mark.nightly(but=["collection with gradients"])
@pytest.mark.parametrize(
    "apart",
    [
        {"task": "pettingzoo/multiwalker", "experiment.parallel_collection": True},
        {"task": "vmas/navigation", "experiment.collect_with_grad": True},
    ],
    ids=["parallel collection", "collection with gradients"],
)
def test_what_cannot_be_saved_restarts_at_declared_boundaries_and_says_so(
    apart: dict[str, Any], nursery: Nursery, tmp_path: Path
) -> None:
    overrides = {**NAVIGATION_MAPPO, **apart, "experiment.max_n_iters": 12, "experiment.evaluation": False}
    overrides.pop("task.max_steps")
    overrides |= {
        "experiment.on_policy_n_envs_per_worker": 2,
        "experiment.on_policy_collected_frames_per_batch": FEW,
        "experiment.on_policy_minibatch_size": FEW // 3,
        "experiment.checkpoint_interval": FEW,
    }
    once, killed = tmp_path / "once", tmp_path / "killed"

    assert nursery.run(Attempt(str(once), overrides)) == 0
    assert nursery.run(Attempt(str(killed), overrides, kill=Kill("training", 11 * 6 + 3))) == -9
    assert [int(path.name.split("-")[0]) for path in _checkpoints(killed)] == [10 * FEW]
    assert nursery.run(Attempt(str(killed), overrides)) == 0

    assert _rows(killed) == _rows(once)
    outcome = json.loads((killed / "outcome.json").read_text())
    assert (outcome["exactness"], outcome["reset_iterations"]) == ("reset", 10)


def _rows(folder: Path) -> Rows:
    return [bits(row.metrics) for row in RunDir(folder).history()]


def _checkpoints(folder: Path) -> list[Path]:
    return [file.path for file in reversed(RunDir(folder).checkpoints())]

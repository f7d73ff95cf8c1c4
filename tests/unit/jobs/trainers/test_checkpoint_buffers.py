"""Replay buffers as segments: little more on disk than is alive, and the same buffer when loaded."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers import PrioritizedSampler, SamplerWithoutReplacement, samplers

from jobs.trainers.benchmarl.engine.buffers import (
    SavedRing,
    load_cursor,
    load_sampler,
    save_cursor,
    save_sampler,
)
from jobs.training.checkpoints import CheckpointStore, Segment
from orchestrator.core.types import RunState
from orchestrator.rundir import Claim, End, RunDir

CAPACITY = 500
WIDTH = 200


def make_store(folder: Path) -> tuple[RunDir, CheckpointStore]:
    run_dir = RunDir(folder)
    if attempts := run_dir.attempts():
        attempts[-1].write_end(End(RunState.INTERRUPTED))
    attempt = run_dir.take(Claim.fresh("test"))
    assert attempt is not None
    return run_dir, CheckpointStore(run_dir, attempt)


def make_buffer(sampler: Any = None) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), sampler=sampler, batch_size=16)


def items(start: int, count: int) -> TensorDict:
    numbers = torch.arange(start, start + count, dtype=torch.float32)
    agents = TensorDict({"observation": numbers[:, None, None].expand(count, 2, WIDTH).clone()}, [count, 2])
    return TensorDict({"agents": agents, "done": numbers > 7, "number": numbers}, [count])


def same(one: TensorDictReplayBuffer, other: TensorDictReplayBuffer) -> bool:
    assert len(one) == len(other)
    held = [buffer._storage.get(slice(None)) for buffer in (one, other)]
    return bool((held[0] == held[1]).all()) and save_cursor(one) == save_cursor(other)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.integers(20, 230), min_size=1, max_size=12), resume_at=st.integers(0, 11))
def test_any_batches_any_resume(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], resume_at: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run_dir, store = make_store(folder)
    buffer = make_buffer()
    ring = SavedRing(buffer, 0)
    added = 0
    for number, count in enumerate(batches):
        buffer.extend(items(added, count))
        added += count
        segments = ring.save(store)
        store.save(added, {"cursor": save_cursor(buffer)}, segments)
        alive = len(buffer) * (2 * WIDTH * 4 + 1 + 4 + 8)  # the writer adds an index
        assert sum(store._path(segment).stat().st_size for segment in segments) <= 1.2 * alive
        if number == resume_at:
            run_dir, store = make_store(folder)
            loaded = store.newest(run_dir.checkpoints())
            assert loaded is not None
            before, buffer = buffer, make_buffer()
            ring = SavedRing(buffer, 0)
            ring.load(store, loaded.segments, loaded.payload["cursor"]["added"])
            load_cursor(buffer, loaded.payload["cursor"])
            assert same(before, buffer)


def test_only_new_items_are_written_until_short_segments_make_a_long_one(tmp_path: Path) -> None:
    _, store = make_store(tmp_path)
    buffer = make_buffer()
    ring = SavedRing(buffer, 0)
    spans = []
    for number in range(4):
        buffer.extend(items(number * 20, 20))
        spans.append([(segment.start, segment.count) for segment in ring.save(store)])
    assert spans[:3] == [[(0, 20)], [(0, 20), (20, 20)], [(0, 20), (20, 20), (40, 20)]]
    assert spans[3] == [(0, 50), (50, 30)]  # a tenth of the ring is the longest
    assert ring.save(store) == ring.segments


def test_files_stay_few_however_often_a_checkpoint_is_written(tmp_path: Path) -> None:
    _, store = make_store(tmp_path)
    storage = LazyTensorStorage(100_000)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=16)
    ring = SavedRing(buffer, 0)
    for number in range(150):
        buffer.extend(TensorDict({"number": torch.tensor([number])}, [1]))
        assert len(ring.save(store)) <= 65
    assert len(ring.save(store, last=True)) == 1
    other = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), batch_size=16)
    SavedRing(other, 0).load(store, ring.segments, 150)
    load_cursor(other, save_cursor(buffer))
    assert other._storage.get(slice(None))["number"].tolist() == list(range(150))


def test_a_group_reads_only_its_own_segments(tmp_path: Path) -> None:
    _, store = make_store(tmp_path)
    segments: list[Segment] = []
    for group in (0, 1):
        buffer = make_buffer()
        buffer.extend(items(1000 * group, 30))
        segments += SavedRing(buffer, group).save(store)
    other = make_buffer()
    SavedRing(other, 1).load(store, segments, 30)
    assert other._storage.get(0)["number"] == 1000


def test_sampling_without_replacement_goes_on_in_its_list() -> None:
    one, other = make_buffer(SamplerWithoutReplacement()), make_buffer(SamplerWithoutReplacement())
    one.extend(items(0, 64))
    one.sample()
    other.extend(items(0, 64))
    load_sampler(other, save_sampler(one))
    torch.manual_seed(0)
    expected = [one.sample()["number"] for _ in range(6)]
    torch.manual_seed(0)
    for numbers in expected:
        assert torch.equal(other.sample()["number"], numbers)


class _Tree(dict[int, torch.Tensor]):
    """What the sampler needs of TorchRL's compiled segment trees, which not every installation can load."""

    def __init__(self, _size: int) -> None:
        super().__init__()

    def __setitem__(self, index: Any, value: Any) -> None:
        values = torch.as_tensor(value).expand(len(index))
        for slot, item in zip(index.tolist(), values, strict=True):
            super().__setitem__(slot, item.clone())

    def __getitem__(self, index: Any) -> Any:
        return torch.stack([super(_Tree, self).__getitem__(slot) for slot in index.tolist()])


def test_priorities_and_the_highest_of_them_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, bits in itertools.product(("Sum", "Min"), (32, 64)):
        monkeypatch.setattr(samplers, f"{kind}SegmentTreeFp{bits}", _Tree)
    one, other = (make_buffer(PrioritizedSampler(CAPACITY, 0.6, 0.4)) for _ in range(2))
    one.extend(items(0, 64))
    one.update_priority(torch.arange(10), torch.linspace(1, 3, 10))
    other.extend(items(0, 64))
    assert save_sampler(other)["priorities"].tolist() != save_sampler(one)["priorities"].tolist()
    load_sampler(other, save_sampler(one))
    assert save_sampler(other)["priorities"].tolist() == save_sampler(one)["priorities"].tolist()
    assert other._sampler._max_priority == one._sampler._max_priority
    assert other._sampler.default_priority == one._sampler.default_priority
    assert dict(other._sampler._min_tree) == dict(one._sampler._sum_tree)

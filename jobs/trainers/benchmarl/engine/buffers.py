"""Save replay buffers: their contents, write positions and samplers.

An off-policy buffer is a ring. Item n of all that were ever added lies in place ``n % capacity`` and never
changes, so a checkpoint only writes the items added since the last one, as segments. A segment holds at most
a tenth of the ring: when the ring wraps, the oldest segment is at most partly dead, and the disk holds little
more than the live items. Many short segments are rewritten as a long one. An on-policy buffer is overwritten
whole by the next batch, so its content is not saved.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torchrl.data.replay_buffers import PrioritizedSampler, ReplayBuffer, SamplerWithoutReplacement

from jobs.trainers.benchmarl.engine.tensors import Plain, from_tensordict, to_tensordict
from jobs.training.checkpoints import CheckpointStore, Segment

_SEGMENTS_PER_RING = 10
_MOST_SHORT = 64


class SavedRing:
    """One off-policy buffer and its segments on disk. ``number`` is that of its agent group."""

    def __init__(self, buffer: ReplayBuffer, number: int) -> None:
        self._buffer, self._number = buffer, number
        self._capacity: int = buffer._storage.max_size
        self._longest = max(1, self._capacity // _SEGMENTS_PER_RING)
        self.segments: list[Segment] = []

    def save(self, store: CheckpointStore, *, last: bool = False) -> list[Segment]:
        """Write new items; return all segments that hold live items, in order.

        ``last``: no checkpoint of this run follows; rewrite all short segments at the end as one or two.
        """
        added: int = self._buffer.write_count
        oldest = max(0, added - self._capacity)
        kept = [segment for segment in self.segments if segment.stop > oldest]
        self.segments = kept[: len(kept) - self._to_merge(kept, last=last)]
        start = self.segments[-1].stop if self.segments else oldest
        while start < added:
            count = min(self._longest, added - start)
            items = self._buffer._storage.get(torch.arange(start, start + count) % self._capacity)
            self.segments.append(store.add_segment(self._number, start, count, from_tensordict(items)))
            start += count
        return list(self.segments)

    def _to_merge(self, segments: list[Segment], *, last: bool) -> int:
        """Return how many segments at the end to rewrite as fewer, so that files do not become many."""
        short = list(itertools.takewhile(lambda segment: segment.count < self._longest, reversed(segments)))
        enough = sum(segment.count for segment in short) >= self._longest or len(short) >= _MOST_SHORT
        return len(short) if enough or last else 0

    def load(self, store: CheckpointStore, segments: Iterable[Segment], added: int) -> None:
        """Fill the ring as it was after ``added`` items."""
        storage = self._buffer._storage
        oldest = max(0, added - self._capacity)
        self.segments = [segment for segment in segments if segment.group == self._number]
        for segment in self.segments:
            items = to_tensordict(store.read_segment(segment)).to(storage.device)
            dead = max(0, oldest - segment.start)
            slots = torch.arange(segment.start + dead, segment.stop) % self._capacity
            storage.set(slots, items[dead:])


def save_cursor(buffer: ReplayBuffer) -> Plain:
    """Return the buffer's write position and length."""
    writer = buffer._writer
    return {"cursor": writer._cursor, "added": writer._write_count, "length": len(buffer._storage)}


def load_cursor(buffer: ReplayBuffer, saved: Plain) -> None:
    """Restore the buffer's write position and length."""
    writer = buffer._writer
    writer._cursor, writer._write_count = saved["cursor"], saved["added"]
    buffer._storage._len = saved["length"]


def save_sampler(buffer: ReplayBuffer) -> Plain:
    """Return the state of the buffer's sampler."""
    sampler: Any = buffer._sampler
    if isinstance(sampler, SamplerWithoutReplacement):
        state = dict(sampler.state_dict())
        if state["_sample_list"] is not None:
            state["_sample_list"] = state["_sample_list"].clone()  # it is the tail of a longer list
        return state
    if isinstance(sampler, PrioritizedSampler):
        everything = torch.arange(len(buffer._storage))
        priorities = torch.as_tensor(sampler._sum_tree[everything]) if len(everything) else torch.empty(0)
        return {"priorities": priorities, "highest": list(sampler._max_priority)}
    return {}


def load_sampler(buffer: ReplayBuffer, saved: Plain) -> None:
    """Restore the sampler after the buffer's cursor: its trees cover the buffer's length."""
    sampler: Any = buffer._sampler
    if isinstance(sampler, SamplerWithoutReplacement):
        sampler.load_state_dict(saved)
    elif isinstance(sampler, PrioritizedSampler):
        everything = torch.arange(len(saved["priorities"]))
        if len(everything):
            sampler._sum_tree[everything] = saved["priorities"]
            sampler._min_tree[everything] = saved["priorities"]
        value, index = saved["highest"]
        sampler._max_priority = None if value is None else (value, index)

"""Compare what was predicted for each submission with what it took: time, money, frames. Reads files only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.formatting import dollars, duration
from orchestrator.planning.accounts import Account, accounts
from orchestrator.planning.estimate import Range
from orchestrator.rundir import Event, SweepDir, WorkerLog
from orchestrator.rundir.copies.parcel import unpacked
from orchestrator.rundir.records.journal import ENDED, PROGRESS
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, submissions
from orchestrator.status.cost import Cost

_MILLION = 1e6


@dataclass(frozen=True)
class Prediction:
    """One submission. ``predicted`` (seconds) and ``dollars_predicted``: as predicted at submission; ``None``
    without a prediction. ``seconds``: from the first worker's start to the last worker's end. ``frames``:
    newly trained by its jobs. ``over``: whether all of its jobs that began have ended, and its instances.
    """

    sweep: str
    number: int
    target: str
    time: float
    runs: int
    predicted: Range | None
    seconds: float | None
    dollars_predicted: Range | None
    cost: Cost
    frames: int
    over: bool

    @property
    def dollars(self) -> float | None:
        """Cost of its jobs; ``None`` if they have no price."""
        return self.cost.dollars if self.cost.priced and not self.cost.unpriced else None


@dataclass(frozen=True)
class Rate:
    """US dollars that a target cost, and the new frames trained for them."""

    target: str
    dollars: float
    frames: int

    @property
    def per_million(self) -> float | None:
        """US dollars per million frames."""
        return self.dollars / self.frames * _MILLION if self.frames else None


def bills(sweep_dir: SweepDir) -> list[Prediction]:
    """Return the submissions that had jobs, in order."""
    ledger, logs = sweep_dir.read_ledger(), {log.token: log for log in sweep_dir.read_journals()}
    frames = _new_frames(logs.values())
    paid = accounts(ledger, logs.values(), unpacked(sweep_dir), time.time())
    return [_bill(sweep_dir.name, entry, logs, frames, paid) for entry in submissions(ledger) if entry.jobs]


def rates(found: Iterable[Prediction]) -> list[Rate]:
    """Return the rate of each target that has a price, in order of first use."""
    sums: dict[str, tuple[float, int]] = {}
    for bill in found:
        if bill.dollars is not None:
            dollars, frames = sums.get(bill.target, (0.0, 0))
            sums[bill.target] = (dollars + bill.dollars, frames + bill.frames)
    return [Rate(target, dollars, frames) for target, (dollars, frames) in sums.items()]


def _bill(
    sweep: str,
    entry: SubmissionEntry,
    logs: Mapping[str, WorkerLog],
    frames: Mapping[str, int],
    paid: Mapping[str, Account],
) -> Prediction:
    tokens = [job.token for job in entry.jobs]
    begun = [logs[token] for token in tokens if token in logs and logs[token].worked() > 0]
    said, own = entry.cost.prediction or {}, [paid[token] for token in tokens]
    times = [event.time for log in begun for event in log.events]
    return Prediction(
        sweep,
        entry.number,
        entry.target,
        entry.time,
        len({run_id for job in entry.jobs for run_id in job.run_ids}),
        _range(said.get("seconds")),
        max(times) - min(times) if times else None,
        _range(said.get("dollars")),
        sum((one.cost for one in own), Cost()),
        sum(frames.get(token, 0) for token in tokens),
        all(log.exited for log in begun) and not any(one.open for one in own),
    )


def _range(said: Any) -> Range | None:
    try:
        return None if said is None else Range.from_json(said)
    except (KeyError, TypeError, ValueError):
        return None


def _new_frames(logs: Iterable[WorkerLog]) -> dict[str, int]:
    """Return frames by job token; each frame counts for the attempt that reached it first."""
    reached: dict[str, dict[int, tuple[int, str]]] = {}
    for log in logs:
        for event in log.events:
            if event.kind in (PROGRESS, ENDED) and event.run_id and event.attempt and _frames(event):
                attempts = reached.setdefault(event.run_id, {})
                before, _ = attempts.get(event.attempt, (0, ""))
                attempts[event.attempt] = (max(before, _frames(event)), log.token)
    return _count_once(reached.values())


def _count_once(reached: Iterable[Mapping[int, tuple[int, str]]]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for attempts in reached:
        so_far = 0
        for _, (frames, token) in sorted(attempts.items()):
            counted[token] = counted.get(token, 0) + max(0, frames - so_far)
            so_far = max(so_far, frames)
    return counted


def _frames(event: Event) -> int:
    frames = event.progress.frames
    return frames if isinstance(frames, int) else 0


def lines(found: Sequence[Prediction]) -> list[str]:
    """Return a line of text for each completed submission: predicted and actual time and cost."""
    said = []
    for bill in found:
        if not bill.over or bill.seconds is None:
            continue
        took = duration(bill.seconds)
        if (time := bill.predicted) is not None:
            took += f" (predicted {duration(time.mid)}, 80 %: {duration(time.low)} to {duration(time.high)})"
        if bill.dollars is not None:
            took += f", {dollars(bill.dollars)}"
            if (usd := bill.dollars_predicted) is not None:
                took += f" (predicted {dollars(usd.mid)}, 80 %: {dollars(usd.low)} to {dollars(usd.high)})"
        if bill.predicted is not None or bill.dollars is not None:
            said.append(f"{bill.target}: {took}")
    return said

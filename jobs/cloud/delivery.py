"""Deliver a job's files to its store, in an order that leaves no half result there.

First all files that a result lists, then the results, last the mark that the job ended. So each result in the
store is whole, and the mark stands only beside all files of the job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from jobs.cloud.store import Store
from orchestrator.core.errors import StorageError
from orchestrator.rundir.copies.handover import JobFiles, Stamp, attempt_of, is_checkpoint

# The progress of each run, and whether the job ended: differs when there are new files.
Reached = tuple[dict[str, tuple[str, ...]], bool]

# Seconds until the next delivery to a store that took nothing; they double each time.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 30.0
# Of a file that never changes.
_ONCE = (0, 0)


class Delivery:
    """Sends new files of a job to a store, and remembers which files the store has."""

    def __init__(
        self,
        store: Store,
        results: Path,
        luggage: JobFiles,
        run_ids: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._store, self._results, self._luggage = store, results, luggage
        self._run_ids, self._say = tuple(run_ids), say
        self._there: dict[str, Stamp] = {}
        self._found: set[str] = set()
        self._done_before: set[str] = set()
        self._looked = False

    def reached(self) -> dict[str, tuple[str, ...]]:
        """Return the progress of each run; it differs from the last one when there are new files to send."""
        luggage = self._luggage
        return {one: reached for one in self._run_ids if (reached := luggage.reached(one))}

    def deliver(self, *, ended: bool) -> int:
        """Send new files; return their number. ``ended``: the job's worker has left.

        Raises :class:`StorageError`.
        """
        if not self._looked:
            self._look()
        runs = self._to_deliver(ended=ended)
        # Results are seen before all else: of those that are here now, every file is, too.
        results = {one: name for one in runs if (name := self._luggage.result(one))}
        files = self._luggage.words()
        for run_id in runs:
            files |= self._luggage.files(run_id)
        count = self._put({name: stamp for name, stamp in files.items() if not is_checkpoint(name)})
        count += self._put({name: stamp for name, stamp in files.items() if is_checkpoint(name)})
        self._remove_stale({attempt for run_id in runs for attempt in self._luggage.attempts(run_id)}, files)
        for run_id in results:
            self._require_listed(run_id)
        count += self._put(dict.fromkeys(results.values(), _ONCE))
        return count + self._put(dict.fromkeys(self._luggage.last_words() if ended else [], _ONCE))

    def _look(self) -> None:
        """List what earlier instances left in the store for these runs.

        A result in the store that this tree does not have stays: its run is done.
        """
        self._found = set(self._store.names([self._luggage.folder(run_id) for run_id in self._run_ids]))
        self._done_before = set()
        for run_id in self._run_ids:
            name = self._luggage.result_name(run_id)
            data = self._store.get(name) if name in self._found else None
            if data is None:
                continue
            if self._luggage.was_put_aside(run_id, data):
                self._store.remove([name])
            elif not self._luggage.is_result(run_id, data):
                self._done_before.add(run_id)
                self._say(f"run {run_id}: the store has a result of an earlier instance, which stays")
        self._put(dict.fromkeys(self._luggage.records(), _ONCE))
        self._looked = True

    def _to_deliver(self, *, ended: bool) -> list[str]:
        """Return the runs with files to send.

        Until a run reaches a checkpoint here, the files of a former instance may be its best.
        """
        luggage = self._luggage
        begun = [one for one in self._run_ids if one not in self._done_before and luggage.attempts(one)]
        return begun if ended else [one for one in begun if luggage.reached(one)]

    def _put(self, files: dict[str, Stamp]) -> int:
        new = {name: stamp for name, stamp in files.items() if self._there.get(name) != stamp}
        if new:
            self._store.put(self._results, list(new))
            self._there |= new
        return len(new)

    def _remove_stale(self, attempts: Collection[str], files: Collection[str]) -> None:
        """Remove from the store the files of these attempts that are gone here, such as older checkpoints.

        Files of another instance's attempt with the same number go, too.
        """
        known = self._found | self._there.keys()
        stale = sorted(name for name in known if name not in files and attempt_of(name) in attempts)
        if stale:
            self._store.remove(stale)
            self._found.difference_update(stale)
            for name in stale:
                self._there.pop(name, None)

    def _require_listed(self, run_id: str) -> None:
        for name in self._luggage.listed(run_id):
            if name not in self._there:
                raise StorageError(f"{name} is missing here, and the result of run {run_id} needs it")


class Courier:
    """Delivers in a thread: new files at once, and again after a wait while the store takes nothing."""

    def __init__(self, delivery: Delivery, store: Store, say: Callable[[str], None]) -> None:
        self._delivery, self._store, self._say = delivery, store, say
        self._thread: threading.Thread | None = None
        self._delivered: Reached = ({}, False)
        self._next, self._wait = 0.0, _FIRST_WAIT_S
        self._problem = ""

    def turn(self, *, ended: bool = False) -> None:
        """Start a delivery if one is due; return at once.

        ``ended``: the job's worker has left, so this delivery completes the job.
        """
        if not self.is_busy and not self.is_done and time.monotonic() >= self._next:
            self._thread = threading.Thread(target=self._deliver, args=(ended,), daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Let the next :meth:`turn` deliver without a wait."""
        self._next = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a delivery is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether the job ended and the store has all of its files."""
        return self._delivered[1]

    def stop(self) -> None:
        """End a delivery that is under way."""
        self._store.stop()

    def _deliver(self, ended: bool) -> None:
        try:
            reached = (self._delivery.reached(), ended)
            if reached == self._delivered:
                return
            count = self._delivery.deliver(ended=ended)
        except Exception as error:  # a fault of the store stops no training
            self._failed(str(error) or type(error).__name__)
            return
        if self._problem:
            self._say("the store takes files again")
        self._problem, self._wait = "", _FIRST_WAIT_S
        self._delivered = reached
        if count:
            self._say(f"{count} files went to the store")

    def _failed(self, problem: str) -> None:
        """Report a problem once, and schedule the next delivery."""
        if problem != self._problem:
            self._say(f"the store took nothing: {problem}; trying again")
        self._problem = problem
        self._next = time.monotonic() + self._wait
        self._wait = min(2 * self._wait, _LONGEST_WAIT_S)

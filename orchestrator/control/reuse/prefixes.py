"""Find the finished runs that the runs to do begin with: equal in all that decides, but shorter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.config.grid.model import bare_key
from orchestrator.config.trainers import get_trainer
from orchestrator.config.trainers.identity import run_identity
from orchestrator.control.reuse.judge import Judge
from orchestrator.control.reuse.library import Library, bring_all, own_tree
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import count, millions
from orchestrator.core.types import KEPT, Run, Sweep, Value
from orchestrator.rundir import Result, RunDir, SweepDir
from orchestrator.rundir.attempts.absent_files import read_absent
from orchestrator.rundir.copies.prefix import Prefix, place_policy, place_prefix, policy_file
from orchestrator.rundir.records.ledger_entries import Beginning, PrefixEntry
from orchestrator.status.survey import Survey


@dataclass(frozen=True)
class FoundPrefix:
    """The finished ``run`` that another one begins with. ``total``: the frames at the end of that.

    It is 0 if only the policy is taken.
    """

    library: Library
    run: RunDir
    prefix: Prefix
    total: int

    @property
    def beginning(self) -> Beginning:
        """What the ledger records of it."""
        return Beginning(self.prefix.frames, self.total)


@dataclass(frozen=True)
class Prefixes:
    """The finished runs that runs to do begin with, by the ids of these.

    ``why_not``: why a run has none although there are shorter ones. ``elsewhere``: shorter runs with their
    last checkpoints at the source of the copy here, where longer ones can go on. ``waiting``: by the id of a
    run, the one that it goes on from, which is to be finished first; ``spared``: what it then need not train.
    ``cannot``: why a run has no beginning and will not get one. ``alone``: why a fork
    that changes nothing has to be trained at once.
    """

    found: Mapping[str, FoundPrefix] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    waiting: Mapping[str, str] = field(default_factory=dict)
    cannot: Mapping[str, str] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)
    spared: Mapping[str, Beginning] = field(default_factory=dict)

    def applied(self, seen: Survey) -> Survey:
        """Return the survey with the frames that these runs need not train, and those that have to wait."""
        known: dict[str, dict[str, Any]] = {
            run_id: asdict(one.beginning) for run_id, one in self.found.items() if one.total
        }
        for run_id in self.waiting:
            known[run_id] = {"waits": True} | (asdict(self.spared[run_id]) if run_id in self.spared else {})
        known |= {run_id: {"cannot": why} for run_id, why in self.cannot.items()}
        there = {run_id: replace(seen.statuses[run_id], **facts) for run_id, facts in known.items()}
        return replace(seen, statuses={**seen.statuses, **there}) if there else seen

    def with_origins(self, origins: Prefixes) -> Prefixes:
        """Return these, and where there is none those that :func:`find_origins` found."""
        found = {**origins.found, **self.found}
        return replace(origins, found=found, why_not=self.why_not, elsewhere=self.elsewhere)

    def forks(self, run_ids: Iterable[str]) -> str:
        """Describe those of these runs that wait for others; empty without any."""
        waiting = [self.waiting[run_id] for run_id in run_ids if run_id in self.waiting]
        trunks = count(len(set(waiting)), "run")
        return (
            f"{count(len(waiting), 'run')} waiting for {trunks} to fork from, trained first"
            if waiting
            else ""
        )

    def of_libraries(self, run_ids: Iterable[str], results: Path) -> list[str]:
        """Return those of these runs that begin with what is not in the tree ``results``."""
        found = ((run_id, self.found[run_id]) for run_id in run_ids if run_id in self.found)
        return [run_id for run_id, one in found if one.library.results != results]

    def notes(self, run_ids: Iterable[str]) -> Iterator[str]:
        """Describe the beginnings of runs to be submitted, and why others have none."""
        planned = list(run_ids)
        started = [self.found[run_id] for run_id in planned if run_id in self.found]
        if begun := [one for one in started if one.total]:
            there, total = sum(one.prefix.frames for one in begun), sum(one.total for one in begun)
            shorter = count(len({one.run.path for one in begun}), "shorter one")
            go = "goes" if len(begun) == 1 else "go"
            frames = f"{millions(there)} of {millions(total)} frames are there"
            yield f"{count(len(begun), 'run')} {go} on from {shorter}: {frames}"
        if len(started) > len(begun):
            sources = count(len({one.run.path for one in started if not one.total}), "finished run")
            yield f"{count(len(started) - len(begun), 'run')} starting with the policy of {sources}"
        for why, number in Counter(self.alone[run_id] for run_id in planned if run_id in self.alone).items():
            what = f"{count(number, 'fork')} without a change, trained at once and not paired with others"
            yield f"{what}: {why}"
        reasons = Counter(self.why_not[run_id] for run_id in planned if run_id in self.why_not)
        for why, number in reasons.items():
            start = "starts" if number == 1 else "start"
            yield f"{count(number, 'run')} {start} from nothing, though shorter ones are finished: {why}"


def find_prefixes(
    sweep: Sweep, sweep_dir: SweepDir, seen: Survey, judge: Judge, libraries: Sequence[Library] = ()
) -> Prefixes:
    """Find the longest usable prefix of each run that has not begun: in the sweep, the tree, then libraries.

    Writes nothing to the tree.
    """
    finder = _Finder(sweep, sweep_dir, judge, libraries)
    runs = {run.run_id: run for run in sweep.runs if finder.may_begin(run, seen)}
    pairs = list(finder.pairs(runs)) if runs else []
    bring_all((shorter.library, shorter.run) for _, _, shorter in pairs)
    found: dict[str, FoundPrefix] = {}
    why_not: dict[str, str] = {}
    for run_id, longer, shorter in pairs:
        if run_id not in found:
            usable = finder.judge(shorter)
            if isinstance(usable, str):
                why_not.setdefault(run_id, usable)
            elif usable is not None:
                total = round(usable.frames * longer / shorter.length)
                found[run_id] = FoundPrefix(shorter.library, shorter.run, usable, total)
    why_not = {run_id: why for run_id, why in why_not.items() if run_id not in found}
    return Prefixes(found, why_not, frozenset(finder.elsewhere))


def place_prefixes(prefixes: Prefixes, run_ids: Iterable[str], sweep_dir: SweepDir) -> Iterator[str]:
    """Give these runs their beginnings, and record it; yield a note on each that cannot have it.

    Safe to kill and to repeat. Call under the sweep's lock, before the runs are submitted.
    """
    begun = {run_id: prefixes.found[run_id] for run_id in run_ids if run_id in prefixes.found}
    yield from bring_all(((one.library, one.run) for one in begun.values()), whole=True)
    placed: dict[str, Beginning] = {}
    for run_id, one in begun.items():
        try:
            place = place_prefix if one.total else place_policy
            place(sweep_dir.run(run_id), one.run, one.prefix)
            placed |= {run_id: one.beginning} if one.total else {}
        except (OrchestrateError, OSError) as error:
            yield f"run {run_id} has not its beginning: {error}"
    if placed:
        sweep_dir.add_to_ledger(PrefixEntry(runs=placed))


def without_state(run: Run, result: Result) -> str:
    """Return why no run can go on from a finished one without a final state."""
    if policy_file(result) is None:
        return "saved no checkpoint"
    why = "its environments restart every few iterations, and it ended between"
    if get_trainer(run.trainer).minutes_of(run):
        why = "it ended by time"
    elif run.keep != KEPT[0]:
        why = f"keep: {run.keep}"
    return f"kept only what was learned ({why})"


def has_files(library: Library, run: RunDir, names: Iterable[str]) -> bool:
    """Return whether a run has these files, or they can be brought."""
    return library.source is not None or all((run.path / name).is_file() for name in names)


def _comparable(run: Run) -> dict[str, Value]:
    """Return the point of a run; a fork that changes nothing is the run that it would be without."""
    return {key: value for key, value in run.point.items() if key != "fork" or run.origin}


class _Shorter(NamedTuple):
    """A run that is shorter than one to do, and equal in all else that decides."""

    length: float
    library: Library
    run: RunDir


class _Finder:
    """Finds shorter runs, and judges them by the code and the machine of today."""

    def __init__(self, sweep: Sweep, sweep_dir: SweepDir, judge: Judge, libraries: Sequence[Library]) -> None:
        self._sweep, self._home, self._judge, self._libraries = sweep, sweep_dir, judge, libraries
        self._spec = get_trainer(sweep.trainer).with_plugins(sweep.plugins)
        self._lengths = (sweep.length,) if sweep.length else self._spec.length_keys
        self._known: dict[Path, Prefix | str | None] = {}
        self.elsewhere: set[str] = set()

    def may_begin(self, run: Run, seen: Survey) -> bool:
        """Return whether a run has not begun, not even with a prefix, and does not end by time."""
        status = seen.statuses[run.run_id]
        return not status.has_begun and status.frames is None and self._spec.minutes_of(run) is None

    def pairs(self, runs: Mapping[str, Run]) -> Iterator[tuple[str, float, _Shorter]]:
        """Yield runs by id with their lengths, each with every shorter one, the longest first."""
        longer: dict[str, list[tuple[float, str]]] = {}
        for run_id, run in runs.items():
            length, rest = self._split(_comparable(run))
            if length:
                longer.setdefault(rest, []).append((length, run_id))
        shorter: dict[str, list[_Shorter]] = {}
        for library, home in self._homes() if longer else ():
            with suppress(DamagedFileError, OSError):
                rows, folders = home.read_index(), home.run_folders()
                for row in (row for row in rows if row.run_id in folders and row.run_id not in runs):
                    length, rest = self._split(row.point)
                    if rest in longer:
                        run_dir = home.run_to_read(row.run_id)
                        shorter.setdefault(rest, []).append(_Shorter(length, library, run_dir))
        for rest, found in shorter.items():
            found.sort(key=lambda one: -one.length)  # stable: own ones first
            for length, run_id in longer[rest]:
                yield from ((run_id, length, one) for one in found if one.length < length)

    def judge(self, shorter: _Shorter) -> Prefix | str | None:
        """Return the prefix that a run is, or why it is none; ``None`` if it is not finished."""
        if (path := shorter.run.path) not in self._known:
            try:
                result = shorter.run.result()
                self._known[path] = None if result is None else self._judged(shorter, result)
            except (DamagedFileError, FileNotFoundError) as error:
                self._known[path] = str(error)
        return self._known[path]

    def _homes(self) -> Iterator[tuple[Library, SweepDir]]:
        """Yield the sweep, the others of its tree, and those of the libraries."""
        tree = own_tree(self._home.results)
        yield tree, self._home
        for library in (tree, *self._libraries):
            yield from ((library, home) for home in library.sweeps if home.path != self._home.path)

    def _split(self, point: Mapping[str, Value]) -> tuple[float, str]:
        """Return the length of a run, 0 without one, and a hash of all else that decides its result."""
        rest = {key: value for key, value in point.items() if self._spec.decides(key)}
        seed, threads, target = rest.pop("seed", 0), rest.pop("threads", 1), rest.pop("target", None)
        for length in self._lengths:
            key = next((key for key in rest if bare_key(key) == length), "")
            value = rest.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
                del rest[key]
                return value, run_identity(f"{self._spec.name} {length}", rest, seed, threads, target)
        return 0.0, ""

    def _judged(self, shorter: _Shorter, result: Result) -> Prefix | str | None:
        run = shorter.run.description()
        if run.trainer != self._spec.name:
            return None
        if self._spec.runs_program and not self._sweep.length:
            length = next(key for key in self._lengths if key in run.overrides)
            return f"write `length: {length}` if nothing of the program but its end depends on it"
        if why := self._spec.bound_to_length(run):
            return why
        if not result.is_repeatable:
            return f"their exactness is {result.exactness!r}, and only exact runs go on bit for bit"
        if why := self._judge.difference(run, result):
            return f"they were {why}"
        prefix = Prefix.of(shorter.run, result, shorter.library.text)
        if prefix is None:
            return f"each {without_state(run, result)}"
        if has_files(shorter.library, shorter.run, result.final_state):
            return prefix
        if not (where := read_absent(shorter.run.path).where):
            return "their last checkpoints were removed"
        self.elsewhere.add(shorter.run.run_id)
        return f"their last checkpoints are at {where}"

"""Find the finished runs that the runs to do begin with: equal in all that decides, but shorter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.config.code.identity import code_id
from orchestrator.config.grid.model import bare_key
from orchestrator.config.program.identity import ProgramFiles, project_files
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import count, millions
from orchestrator.core.types import Run, RunState, Sweep, Value, run_identity
from orchestrator.rundir import IndexRow, Result, RunDir, SweepDir, sweeps
from orchestrator.rundir.prefix import Prefix, place_prefix
from orchestrator.rundir.records.ledger_entries import PrefixEntry
from orchestrator.status.survey import Survey

_BEGINS = (RunState.PENDING, RunState.SKIPPED)


@dataclass(frozen=True)
class Prefixes:
    """The finished runs that runs to do begin with, by the ids of these.

    ``why_not``: why a run has none although there are shorter ones.
    """

    found: Mapping[str, tuple[RunDir, Prefix]] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)

    def applied(self, seen: Survey) -> Survey:
        """Return the survey with the frames that these runs need not train."""
        there = {
            run_id: replace(seen.statuses[run_id], frames=prefix.frames)
            for run_id, (_, prefix) in self.found.items()
        }
        return replace(seen, statuses={**seen.statuses, **there}) if there else seen

    def notes(self, runs: Iterable[Run]) -> Iterator[str]:
        """Describe the beginnings of runs to be submitted, and why others have none."""
        runs = list(runs)
        begun = [(run, self.found[run.run_id][1]) for run in runs if run.run_id in self.found]
        if begun:
            lengths = [get_trainer(run.trainer).frames_of(run) for run, _ in begun]
            whole = [length for length in lengths if length is not None]
            of = f" of {millions(sum(whole))}" if len(whole) == len(begun) else ""
            there = millions(sum(prefix.frames for _, prefix in begun))
            shorter = count(len({prefix.run_id for _, prefix in begun}), "shorter one")
            go = "goes" if len(begun) == 1 else "go"
            yield f"{count(len(begun), 'run')} {go} on from {shorter}: {there}{of} frames are there"
        reasons = Counter(self.why_not[run.run_id] for run in runs if run.run_id in self.why_not)
        for why, number in reasons.items():
            start = "starts" if number == 1 else "start"
            yield f"{count(number, 'run')} {start} from nothing, though shorter ones are finished: {why}"


NONE = Prefixes()


def find_prefixes(sweep: Sweep, sweep_dir: SweepDir, seen: Survey) -> Prefixes:
    """Find the longest usable prefix of each run that has not begun: in the sweep, then in others here.

    Reads results, and writes nothing.
    """
    spec = get_trainer(sweep.trainer).with_plugins(sweep.plugins)
    lengths = spec.length_keys if not spec.runs_program or not sweep.length else (sweep.length,)
    runs = [run for run in sweep.runs if _has_not_begun(run, spec, seen)]
    if not runs:
        return NONE
    to_do = {run.run_id for run in runs}
    wanted: dict[str, list[tuple[float, Run]]] = {}
    candidates: dict[str, list[tuple[float, SweepDir, IndexRow]]] = {}
    for home, row in _rows(sweep_dir):
        if row.run_id in to_do:
            continue
        if not wanted:
            wanted = _by_rest(runs, spec, lengths)
            if not wanted:
                return NONE
        length, rest = _split(row.point, spec, lengths)
        if rest in wanted:
            candidates.setdefault(rest, []).append((length, home, row))
    finder = _Finder(spec, sweep, sweep_dir)
    found, why_not = {}, {}
    for rest, shorter in candidates.items():
        shorter.sort(key=lambda one: -one[0])  # stable: those of the sweep itself first
        for length, run in wanted[rest]:
            reasons = []
            for _, home, row in (one for one in shorter if one[0] < length):
                usable = finder.prefix(home, row)
                if isinstance(usable, str):
                    reasons.append(usable)
                elif usable is not None:
                    found[run.run_id] = usable
                    break
            if reasons and run.run_id not in found:
                why_not[run.run_id] = reasons[0]
    return Prefixes(found, why_not)


def place_prefixes(prefixes: Prefixes, run_ids: Iterable[str], sweep_dir: SweepDir) -> Iterator[str]:
    """Give these runs their beginnings, and record it; yield a note on each that cannot have it.

    Safe to kill and to repeat. Call under the sweep's lock, before the runs are submitted.
    """
    placed = {}
    for run_id in run_ids:
        if run_id in prefixes.found:
            source, prefix = prefixes.found[run_id]
            try:
                place_prefix(sweep_dir.run(run_id), source, prefix)
                placed[run_id] = prefix.frames
            except (OrchestrateError, OSError) as error:
                yield f"run {run_id} starts from nothing: {error}"
    if placed:
        sweep_dir.add_to_ledger(PrefixEntry(runs=placed))


def _has_not_begun(run: Run, spec: TrainerSpec, seen: Survey) -> bool:
    status = seen.statuses[run.run_id]
    begins = status.state in _BEGINS and not status.attempt and status.frames is None
    return begins and spec.minutes_of(run) is None


def _rows(sweep_dir: SweepDir) -> Iterator[tuple[SweepDir, IndexRow]]:
    """Yield all runs of the tree, the sweep's own first."""
    for home in (sweep_dir, *(other for other in sweeps(sweep_dir.results) if other.name != sweep_dir.name)):
        with suppress(DamagedFileError, OSError):
            yield from ((home, row) for row in home.read_index())


def _by_rest(
    runs: Iterable[Run], spec: TrainerSpec, lengths: tuple[str, ...]
) -> dict[str, list[tuple[float, Run]]]:
    """Return runs with their lengths, by all else that decides their results."""
    found: dict[str, list[tuple[float, Run]]] = {}
    for run in runs:
        length, rest = _split(run.point, spec, lengths)
        if length:
            found.setdefault(rest, []).append((length, run))
    return found


def _split(point: Mapping[str, Value], spec: TrainerSpec, lengths: tuple[str, ...]) -> tuple[float, str]:
    """Return the length of a run, 0 without one, and a hash of all else that decides its result."""
    rest = {key: value for key, value in point.items() if spec.decides(key)}
    seed, threads, target = rest.pop("seed", 0), rest.pop("threads", 1), rest.pop("target", None)
    for length in lengths:
        key = next((key for key in rest if bare_key(key) == length), None)
        value = rest.get(key or "")
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            del rest[key or ""]
            return value, run_identity(f"{spec.name} {length}", rest, seed, threads, target)
    return 0.0, ""


class _Finder:
    """Judges finished runs as prefixes, by the code of today."""

    def __init__(self, spec: TrainerSpec, sweep: Sweep, sweep_dir: SweepDir) -> None:
        self._spec, self._sweep, self._results = spec, sweep, sweep_dir.results
        self._known: dict[Path, tuple[RunDir, Prefix] | str | None] = {}
        self._trainer_code: str | None = None

    def prefix(self, home: SweepDir, row: IndexRow) -> tuple[RunDir, Prefix] | str | None:
        """Return the prefix that a run is, or why it is none; ``None`` if it is not finished."""
        run = home.run_to_read(row.run_id)
        if run.path not in self._known:
            try:
                result = run.result()
                self._known[run.path] = None if result is None else self._judged(run, result)
            except (DamagedFileError, FileNotFoundError) as error:
                self._known[run.path] = str(error)
        return self._known[run.path]

    def _judged(self, run: RunDir, result: Result) -> tuple[RunDir, Prefix] | str | None:
        described = run.description()
        if described.trainer != self._spec.name:
            return None
        if self._spec.runs_program and not self._sweep.length:
            length = next(key for key in self._spec.length_keys if key in described.overrides)
            return f"write `length: {length}` if nothing of the program but its end depends on it"
        if why := self._spec.bound_to_length(result.fields["config"]):
            return why
        if (exactness := result.fields.get("exactness")) != "exact":
            return f"their exactness is {exactness!r}, and only exact runs go on bit for bit"
        if not self._is_todays(described, result):
            return "they were trained by other code"
        prefix = Prefix.of(run, result)
        if prefix is None:
            return "their last checkpoints hold only what was learned"
        if not all((run.path / name).is_file() for name in result.state):
            return "their last checkpoints were removed"
        return run, prefix

    def _is_todays(self, run: Run, result: Result) -> bool:
        """Return whether today's code would train the run."""
        if not self._spec.runs_program:
            self._trainer_code = self._trainer_code or code_id(self._spec)
            return set(result.code_ids or [result.code_id]) == {self._trainer_code}
        files = project_files(Path.cwd(), [self._results.resolve()])
        listed = ProgramFiles.from_json(result.fields.get("code_files"))
        traced = listed is not None and result.fields.get("code_traced") is True
        opened = frozenset(listed.files) if listed is not None and traced else None
        return result.code_id is not None and files.program(run.point, opened).id == result.code_id

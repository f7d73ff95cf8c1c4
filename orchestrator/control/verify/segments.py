"""Find the segments of a sweep: what its finished runs trained themselves, as far as it can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.control.reuse.judge import Judge
from orchestrator.control.verify.compare import first_difference
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.types import Run, Sweep
from orchestrator.rundir import IndexRow, Result, RunDir, SweepDir, sha256
from orchestrator.rundir.copies.prefix import Prefix, prefix_of


@dataclass(frozen=True)
class Segment:
    """What a finished run trained after ``prefix``, the final state of ``source``, or all of it without one.

    ``description``: the run, to be trained on this machine.
    """

    run: RunDir
    result: Result
    description: Run
    prefix: Prefix | None = None
    source: RunDir | None = None

    @property
    def start(self) -> int:
        """The frames that are not trained again."""
        return self.prefix.frames if self.prefix is not None else 0


@dataclass(frozen=True)
class Segments:
    """The segments of a sweep by run id, and why other finished runs have none."""

    found: Mapping[str, Segment]
    why_not: Mapping[str, str]


def find_segments(sweep: Sweep, sweep_dir: SweepDir, rows: Iterable[IndexRow], start: Path) -> Segments:
    """Find the segments of these runs, and of runs of this sweep that they begin with.

    ``start``: the folder in which programs start.
    """
    finder = _Finder(sweep, sweep_dir, start)
    found: dict[str, Segment] = {}
    why_not: dict[str, str] = {}
    left = [row.run_id for row in rows]
    for run_id in left:  # which grows
        try:
            segment = finder.segment(run_id)
        except (DamagedFileError, FileNotFoundError) as error:
            segment = str(error)
        if isinstance(segment, Segment):
            found[run_id] = segment
            if segment.source is not None and segment.source.sweep == sweep_dir.name:
                left += [segment.source.run_id] * (segment.source.run_id not in left)
        else:
            why_not[run_id] = segment
    return Segments(found, why_not)


class _Finder:
    def __init__(self, sweep: Sweep, sweep_dir: SweepDir, start: Path) -> None:
        self._home, self._spec = sweep_dir, get_trainer(sweep.trainer).with_plugins(sweep.plugins)
        self._judge = Judge(self._spec, start, sweep_dir.results)

    def segment(self, run_id: str) -> Segment | str:
        """Return the run's segment, or why it has none."""
        run = self._home.run_to_read(run_id)
        if (result := run.result()) is None:
            return "not finished"
        described = run.description()
        if why := self._why_not(described, result):
            return why
        if not run.history(result.attempt):
            return "no metrics are on record"
        whole = Segment(run, result, _here(described, self._spec))
        prefix = prefix_of(run)
        source = None if prefix is None else _source(prefix, run, self._home)
        if source is None:
            return "the run that it starts from is not there as it was" if described.origin else whole
        return replace(whole, prefix=prefix, source=source)

    def _why_not(self, run: Run, result: Result) -> str:
        if run.trainer != self._spec.name:
            return f"its trainer is {run.trainer}, and that of the latest grid {self._spec.name}"
        if self._spec.minutes_of(run) is not None:
            return "it ends by time, each time at other frames"
        if not result.is_repeatable:
            return f"its exactness is {result.exactness!r}, so its bits are not repeatable"
        if result.code_id is None:
            return "its code is unknown"
        return "" if self._judge.is_todays(run, result) else "stale: trained by other code than today's"


def _source(prefix: Prefix, run: RunDir, home: SweepDir) -> RunDir | None:
    """Return the run that another one goes on from, if it is in this tree as it was then, with its state.

    If the two have different metrics on record, one is falsified, and the run is trained from its start.
    """
    source = SweepDir(home.results, prefix.sweep).run_to_read(prefix.run_id)
    if not source.has_result() or sha256(source.result_path) != prefix.result:
        return None
    result = source.result()
    if result is None or not all((source.path / name).is_file() for name in result.final_state):
        return None
    own, theirs = ([row for row in one.history() if row.frames <= prefix.frames] for one in (run, source))
    return None if first_difference(own, theirs) else source


def _here(run: Run, spec: TrainerSpec) -> Run:
    """Return the run for training on this machine, with metrics in its own file alone."""
    key = next((key for key in spec.inert if key.rpartition(".")[2] == "loggers"), None)
    overrides = {name: value for name, value in run.overrides.items() if name.lstrip("+~") != key}
    own = {} if key is None else {key: ["csv"]}
    return replace(run, target=None, loggers=(), overrides=dict(sorted({**overrides, **own}.items())))

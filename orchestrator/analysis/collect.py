"""Read run folders into tables: one row per run, and every metric of every run in long form.

Everything read is verified; a damaged run is named in ``problems`` and skipped. Unfinished runs have rows
too, with their state, its reason, and their metrics so far.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import polars as pl

from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.analysis.csv_export import cells
from orchestrator.analysis.foreign import Outputs, read_outputs
from orchestrator.analysis.identical_runs import with_hashes
from orchestrator.analysis.left_metrics import figures_of, left_metrics, metrics_section
from orchestrator.analysis.run_table import VERIFIED, RunReading, facts_of, metrics_table, runs_table
from orchestrator.analysis.same_code import CODE_FILES, with_same_code
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.formatting import count
from orchestrator.core.labels import Point
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.types import RunState
from orchestrator.rundir import AttemptDir, IndexRow, Row, RunDir, SweepDir, attempt_ended, sha256
from orchestrator.rundir.copies.adoption import adopted_from
from orchestrator.rundir.files.atomic import write_atomic
from orchestrator.rundir.files.kinds import MALFORMED
from orchestrator.rundir.records.ledger_entries import FoundEntry
from orchestrator.rundir.records.verifications import DIFFERS, Verification, standing_verification
from orchestrator.status.ledger import accepted_changes, accepted_codes
from orchestrator.status.run_times import AttemptTime, attempt_times
from orchestrator.status.survey import Survey

_T = TypeVar("_T")


class Missing(NamedTuple):
    """A run of the grid without a usable result. ``reason``: may be empty."""

    sweep: str
    run_id: str
    point: dict[str, Any]
    state: RunState
    reason: str

    @property
    def why(self) -> str:
        """State and reason, as text."""
        return f"{self.state.value}: {self.reason}" if self.reason else self.state.value


@dataclass(frozen=True, eq=False)
class Collected:
    """The tables of one or several sweeps.

    ``runs`` has one row per run, in the order of the index; ``keys`` are its columns that come from the grid.
    ``metrics`` are ordered by run, iteration and name; ``wall_time`` is in seconds. ``problems`` name damaged
    files; ``warnings`` list limits on comparing the rows. ``points`` map (sweep, run_id) to the run's keys as
    written; ``others`` name the sweeps trained without this program. ``final``: what counts as
    a final return; ``threshold``: the return to which times are measured, ``None`` for one of each task.
    ``chosen``: the metric in the place of the return.
    """

    runs: pl.DataFrame
    metrics: pl.DataFrame
    keys: tuple[str, ...]
    missing: tuple[Missing, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    points: Mapping[tuple[str, str], Point] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    final: str = "the last evaluation"
    threshold: float | None = None
    chosen: ChosenMetric | None = None

    def in_words(self, text: str) -> str:
        """Return a text about returns with the name of the chosen metric, if there is one.

        No text changes where a variant is named by the same word.
        """
        return text if self.chosen is None or self._has_value_return else self.chosen.in_words(text)

    @cached_property
    def _has_value_return(self) -> bool:
        values = {str(value) for point in self.points.values() for value in point.values()}
        return self.chosen is not None and any(self.chosen.in_words(text) != text for text in values)


def read_others(folders: Iterable[str], sweep_dirs: Iterable[SweepDir]) -> list[Outputs]:
    """Read runs trained without this program, from each folder or ``NAME=FOLDER``, under unused names."""
    outputs: list[Outputs] = []
    for folder in folders:
        taken = {sweep.name for sweep in sweep_dirs} | {experiment.name for experiment in outputs}
        outputs.append(read_outputs(folder, taken))
    return outputs


def collect(
    sweep_dirs: Sequence[SweepDir],
    survey: Callable[[SweepDir], Survey] | None = None,
    *,
    checksums: bool = False,
    others: Sequence[Outputs] = (),
    chosen: ChosenMetric | None = None,
) -> Collected:
    """Read and verify every run of these sweeps; ``checksums`` compares contents, not only sizes.

    ``survey`` finds the states of a sweep's runs, as `status` shows them; without it a run's state is that of
    its result or its last end record. ``others`` are runs trained without this program: each folder counts as
    one more sweep. ``chosen``: the metric in the place of the return.
    """
    readings: list[RunReading] = []
    problems: list[str] = []
    damaged: list[str] = []
    notes: list[str] = []
    for sweep in sweep_dirs:
        seen = survey(sweep) if survey else Survey([], {}, frozenset())
        notes += [f"{sweep.name}: {note}" for note in (*seen.notes, *accepted_changes(seen.ledger))]
        damaged += [f"{sweep.name}: {line}" for line in seen.damaged]
        index = _index(sweep, problems)
        reader = _Reader(sweep, seen, attempt_times(sweep.read_journals()), checksums)
        readings += read_all(reader.read, index, f"{sweep.name}: reading runs")
    readings = with_same_code(readings)
    for reading in readings:
        problems += [f"{reading.sweep}/{reading.index.run_id}: {text}" for text in reading.problems]
    trainers = _trainers(sweep_dirs, readings)
    keys_here = {key for reading in readings for key in reading.index.point}
    for other in others:
        readings += other.readings(keys_here)
        problems += other.problems
        trainers[other.name] = other.trainer
        notes += other.notes
    readings = with_hashes(readings)
    if chosen is not None:
        chosen.require(reading.history for reading in readings)
    runs, keys = runs_table(readings, trainers, chosen)
    missing = [
        Missing(reading.sweep, reading.index.run_id, reading.index.point, reading.state, reading.reason)
        for reading in readings
        if reading.index.in_grid and reading.state not in (RunState.DONE, RunState.STALE)
    ]
    return Collected(
        runs,
        metrics_table(readings),
        keys,
        tuple(missing),
        (*damaged, *problems),
        (*_warnings(runs), *_mixed_codes(readings), *notes),
        {(reading.sweep, reading.index.run_id): reading.index.point for reading in readings},
        tuple(other.name for other in others),
        chosen=chosen,
    )


def write(collected: Collected, sweep_dir: SweepDir) -> None:
    """Replace the sweep's results.parquet, results.csv and metrics.parquet by its part of the tables.

    This part includes the runs trained without this program.
    """
    own = pl.col("sweep").is_in([sweep_dir.name, *collected.others])
    runs, metrics = collected.runs.filter(own), collected.metrics.filter(own)
    if len(runs) < len(collected.runs):
        # Column by column, since polars reads a key named "*" as a pattern.
        foreign = {key for key in collected.keys if runs.get_column(key).is_null().all()}
        runs = pl.DataFrame([column for column in runs.get_columns() if column.name not in foreign])
    for path, store in (
        (sweep_dir.table_parquet, runs.write_parquet),
        (sweep_dir.table_csv, cells(runs).write_csv),
        (sweep_dir.metrics_parquet, metrics.write_parquet),
    ):
        buffer = io.BytesIO()
        store(buffer)
        write_atomic(path, buffer.getvalue())


# Reading run folders


@dataclass(frozen=True)
class _Reader:
    """Read runs of one sweep. ``read`` never raises for the content of a run folder."""

    sweep: SweepDir
    seen: Survey
    times: Mapping[str, Mapping[int, AttemptTime]]
    checksums: bool

    @cached_property
    def metrics(self) -> Mapping[str, str]:
        """The section `metrics` of the latest grid."""
        return metrics_section(self.sweep)

    @cached_property
    def accepted(self) -> Mapping[tuple[str, str], str]:
        """The code that a run counts as, by the run and the code that trained it."""
        return accepted_codes(self.seen.ledger)

    @cached_property
    def verified(self) -> Mapping[str, list[Verification]]:
        """The verifications of each run."""
        return self.sweep.verifications.by_run()

    @cached_property
    def found(self) -> frozenset[str]:
        """Runs with results that no worker of the sweep published: only these can be adopted ones."""
        entries = (entry for entry in self.seen.ledger if isinstance(entry, FoundEntry))
        return frozenset(run_id for entry in entries for run_id in entry.runs)

    def read(self, index: IndexRow) -> RunReading:
        run_dir, run_id = self.sweep.run_to_read(index.run_id), index.run_id
        problems: list[str] = []
        told = _guarded(lambda: self._facts(run_dir), problems)
        facts, codes = told if told is not None else ({}, ())
        last = facts.pop("attempt", None)
        history = _guarded(lambda: run_dir.history(last), problems) or []
        if facts and not history:
            history = left_metrics(run_dir.work, self.metrics)
            facts |= figures_of(history)
        if facts:
            state, reason = self._finished(run_id)
        else:
            attempts = _guarded(run_dir.attempts, problems) or []
            facts = _progress(attempts, history)
            state, reason = self._unfinished(run_id, attempts, problems)
        surveyed = self.seen.target(run_id) if run_id in self.seen.statuses else None
        facts["target"] = facts.get("target") or surveyed
        if run_id in self.found and (adopted := _guarded(lambda: adopted_from(run_dir), problems)):
            facts["adopted_from"] = adopted.origin
        facts["accepted_as"] = self.accepted.get((run_id, facts.get("code_id") or ""))
        if facts and run_id in self.verified:
            verified = standing_verification(self.verified[run_id], sha256(run_dir.result_path))
            facts[VERIFIED] = None if verified is None else str(verified)
        facts["wall_time"] = self._wall_time(run_dir, facts.get("train_time"))
        return RunReading(self.sweep.name, index, state, reason, facts, history, tuple(problems), codes)

    def _wall_time(self, run_dir: RunDir, train_time: float | None) -> float | None:
        """Return the seconds of all attempts since the run was last retired; its train time if unknown."""
        attempts = self.times.get(run_dir.run_id)
        if not attempts:
            return train_time
        retired = run_dir.retired if len(attempts) > 1 else 0
        own = {number: attempt for number, attempt in attempts.items() if number > retired}
        seconds = (
            attempt.seconds
            if attempt.ended
            else max(attempt.seconds, run_dir.attempt(number).seconds_of_life() or 0.0)
            for number, attempt in own.items()
        )
        return max(train_time or 0.0, sum(seconds))

    def _facts(self, run_dir: RunDir) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        """Return a result's columns, and the ids of the code that trained it; ``None`` without a result."""
        result = run_dir.result()
        if result is None:
            return None
        run_dir.verify(result, checksums=self.checksums)
        return {**facts_of(result.fields), CODE_FILES: result.fields.get("code_files")}, result.code_ids

    def _finished(self, run_id: str) -> tuple[RunState, str]:
        # The folder is newer than the survey, but only the survey can find a result stale.
        status = self.seen.statuses.get(run_id)
        if status is not None and status.state is RunState.STALE:
            return RunState.STALE, status.why or "made by other code or configuration than today's"
        return RunState.DONE, ""

    def _unfinished(
        self, run_id: str, attempts: Sequence[AttemptDir], problems: list[str]
    ) -> tuple[RunState, str]:
        if problems:
            return RunState.UNKNOWN, problems[0]
        status = self.seen.statuses.get(run_id)
        if status is None:
            return _guarded(lambda: _newest_state(attempts), problems) or (RunState.UNKNOWN, problems[0])
        if status.state not in (RunState.DONE, RunState.STALE):
            return status.state, status.why
        problems.append(f"recorded as {status.state.value}, but there is no result in its folder")
        return RunState.UNKNOWN, problems[0]


def _guarded(read: Callable[[], _T], problems: list[str]) -> _T | None:
    try:
        return read()
    except DamagedFileError as error:
        problems.append(f"{error}; {error.hint}" if error.hint else str(error))
    except (OSError, *MALFORMED) as error:
        problems.append(f"cannot be read ({error!r})")
    return None


def _newest_state(attempts: Sequence[AttemptDir]) -> tuple[RunState, str]:
    """Return state and reason of a run without a result, from its newest attempt."""
    if not attempts:
        return RunState.PENDING, ""
    end = attempts[-1].end()
    if end is None:
        return (RunState.INTERRUPTED if attempt_ended(attempts[-1]) else RunState.RUNNING), ""
    if end.outcome is RunState.DONE:
        return RunState.UNKNOWN, "its last attempt ended as done, but there is no result in its folder"
    return end.outcome, end.why


def _progress(attempts: Sequence[AttemptDir], history: Sequence[Row]) -> dict[str, Any]:
    """Return the columns of an unfinished run."""
    facts: dict[str, Any] = {"attempts": len(attempts)}
    if history:
        facts |= {
            "frames": history[-1].frames,
            "iterations": history[-1].iteration + 1,
            "train_time": history[-1].wall_time,
        }
    return facts


def _index(sweep: SweepDir, problems: list[str]) -> list[IndexRow]:
    """Return the sweep's runs: those in the index, then those that only have a folder."""
    indexed = _guarded(sweep.read_index, problems) or []
    known = {row.run_id for row in indexed}
    for run_id in sweep.run_ids():
        if run_id not in known:
            run = _guarded(sweep.run_to_read(run_id).description, problems)
            indexed.append(IndexRow(run_id, False, run.point if run else {}))
    return indexed


def _trainers(sweeps: Iterable[SweepDir], readings: Iterable[RunReading]) -> dict[str, str]:
    """Return each sweep's trainer, from its first readable run description."""
    by_name = {sweep.name: sweep for sweep in sweeps}
    trainers: dict[str, str] = {}
    for reading in readings:
        if reading.sweep not in trainers:
            run = _guarded(by_name[reading.sweep].run_to_read(reading.index.run_id).description, [])
            if run is not None:
                trainers[reading.sweep] = run.trainer
    return trainers


# Limits of a comparison


def _warnings(runs: pl.DataFrame) -> list[str]:
    finished = runs.filter(pl.col("state").is_in([RunState.DONE.value, RunState.STALE.value]))
    warnings = []
    code = finished["accepted_as"].fill_null(finished["code_id"])
    for column, word in (
        (finished["cpu_capability"], "CPU capability"),
        (finished["threads"], "threads"),
        (code, "code"),
    ):
        if text := _differing(Counter(column.drop_nulls().to_list())):
            warnings.append(f"not comparable bitwise: {word} differs ({text})")
    packages: dict[str, Counter[str]] = {}
    for text, number in Counter(finished["versions"].drop_nulls().to_list()).items():
        for package, version in json.loads(text).items():
            packages.setdefault(package, Counter())[str(version)] += number
    for package, counts in sorted(packages.items()):
        if text := _differing(counts):
            warnings.append(f"not comparable bitwise: version of {package} differs ({text})")
    if dropped := finished["dropped_metrics"].drop_nulls().to_list():
        runs_with = count(len(dropped), "finished run")
        warnings.append(
            f"{runs_with} wrote metrics that cannot be used: {sum(dropped):,} lines or values dropped"
        )
    if caught := finished["caught_error"].drop_nulls().to_list():
        runs_ended = f"{count(len(caught), 'finished run')} left with exit code 0 and"
        warnings.append(f"{runs_ended} an exception as their last words, first {caught[0]}")
    warnings += _not_as_trained_again(finished)
    if stale := runs["state"].to_list().count(RunState.STALE.value):
        warnings.append(f"{stale} stale: made by other code or configuration than today's")
    return warnings


def _not_as_trained_again(finished: pl.DataFrame) -> list[str]:
    """Warn of results that `orchestrate verify` could not reproduce."""
    wrong = finished.filter(pl.col(VERIFIED).str.starts_with(DIFFERS)).rows(named=True)
    first = "".join(f"{row['run_id']} {row[VERIFIED]}" for row in wrong[:1])
    results = f"{count(len(wrong), 'result')} not as trained again by `orchestrate verify`"
    return [f"{results}, first {first}"] if wrong else []


def _mixed_codes(readings: Iterable[RunReading]) -> list[str]:
    """Warn of runs that were resumed by other code than they began with."""
    mixed = [reading for reading in readings if len(reading.codes) > 1]
    if not mixed:
        return []
    first = f"{mixed[0].sweep}/{mixed[0].index.run_id} by {', then '.join(mixed[0].codes)}"
    return [f"not comparable bitwise: the code changed within {count(len(mixed), 'run')} ({first})"]


def _differing(counts: Counter[Any]) -> str:
    if len(counts) < 2:
        return ""
    return "; ".join(f"{value}: {count(number, 'run')}" for value, number in sorted(counts.items()))

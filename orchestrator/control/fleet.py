"""A sweep wherever its runs are: in this tree, and in those behind ssh that were given some.

What a person asks or decides at home reaches every tree. :mod:`orchestrator.control.remote.delegate` gives
them their runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from orchestrator.control import decisions, follow, submit
from orchestrator.control.cloud import cloud_instances
from orchestrator.control.cloud.exchange import Tell, age_note, command, exchange_with_instances
from orchestrator.control.decisions import unchecked
from orchestrator.control.poll import poll_sweep
from orchestrator.control.remote.places import assigned_of, decide, program_of, status_there
from orchestrator.control.remote.status_cache import overlaid, recall, remote_status
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import TreePlace, submissions
from orchestrator.status.ownership import TreeAssignment, assigned
from orchestrator.status.survey import Survey
from orchestrator.sync.listing import folder_of
from orchestrator.sync.request import SyncOptions, SyncProgress
from orchestrator.sync.source import Source, find_source
from orchestrator.sync.sync import sync

_REFRESH_S = 2.0
# Seconds in which a job that has ended submits what is left.
_ENDING_S = 15.0
_AGAIN = "the runs are cancelled; `sweep`, `cancel` and `status --exchange` try again until it is gone"


def present(sweep_dir: SweepDir, here: Survey | None = None) -> Survey:
    """The sweep's state for people: this tree's (``here``), and of runs elsewhere what their trees say.

    Changes nothing but the record of the trees' last answers. Notes say how to fetch what is not here.
    """
    seen = submit.present(sweep_dir) if here is None else here
    notes = list(age_note(sweep_dir)) if here is None else []
    silence = _never_asked(sweep_dir)
    for one in _given(sweep_dir):
        before = _done(seen, one)
        heard = (silence or _is_home(seen, one)) and replace(recall(sweep_dir, one.place), silence=silence)
        seen = overlaid(
            seen, one, heard or remote_status(sweep_dir, one.place, partial(status_there, sweep_dir, one))
        )
        if (away := _done(seen, one) - before) > 0:
            results = f"{count(away, 'result')} not fetched from {one.place.name} yet"
            notes.append(f"{results}: {command(sweep_dir)}")
    return replace(seen, notes=(*seen.notes, *notes)) if notes else seen


def _never_asked(sweep_dir: SweepDir) -> str | None:
    """Return why no place that the sweep's ledger names is logged in to; None for a sweep of this user.

    A question is a login on a machine that the ledger names, and starts the code of a folder there.
    """
    return None if sweep_dir.is_used_by(os.geteuid()) else f"{sweep_dir.path} belongs to another user"


def _done(seen: Survey, one: TreeAssignment) -> int:
    statuses = (seen.statuses.get(run_id) for run_id in one.run_ids)
    done = (RunState.DONE, RunState.STALE)
    return sum(status is not None and status.state in done for status in statuses)


def _is_home(seen: Survey, one: TreeAssignment) -> bool:
    """Whether there is nothing left to ask: every run that a place was given is done, and its result here."""
    given = (seen.statuses.get(run_id) for run_id in one.run_ids)
    return all(status is None or status.state is RunState.DONE for status in given)


class End:
    """The end of all work on sweeps: a job that ends takes a moment to submit what is left."""

    def __init__(self) -> None:
        self._since: float | None = None

    def reached(self, *surveys: Survey) -> bool:
        """Return whether nothing works on these sweeps, and no job will submit what is left."""
        now = time.monotonic()
        if any(seen.active or seen.unanswered for seen in surveys):
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= _ENDING_S or not any(map(_is_left_to_jobs, surveys))


def _is_left_to_jobs(seen: Survey) -> bool:
    """Return whether runs are left that jobs submit when they end, here or in another tree."""
    made = submissions(seen.ledger)
    feeds = bool(made) and made[-1].waiting and made[-1].backend != "local"
    return bool(seen.left) and (feeds or bool(assigned(seen.ledger)))


def watch(sweep_dir: SweepDir, tell: Tell) -> Iterator[Survey]:
    """The sweep's state again and again, until nothing works on it anywhere; then fetch the results."""
    end = End()
    while True:
        exchange_with_instances(sweep_dir, tell)
        seen = present(sweep_dir)
        yield seen
        if end.reached(seen):
            break
        time.sleep(_REFRESH_S)
    fetch_from_trees(sweep_dir, tell)
    yield present(sweep_dir)


def exchange(sweep_dir: SweepDir, tell: Tell) -> bool:
    """Fetch results of the sweep from instances and other trees; ``False`` if some could not be fetched.

    ``tell`` gets what was done, and problems.
    """
    whole = exchange_with_instances(sweep_dir, tell, not_within=0)
    return fetch_from_trees(sweep_dir, tell) and whole


def fetch_from_trees(sweep_dir: SweepDir, tell: Tell) -> bool:
    """Fetch finished results, without checkpoints, from the trees behind ssh that have runs of the sweep.

    ``False`` if some could not be fetched; ``tell`` gets the reason.
    """
    whole = True
    options = SyncOptions(sweeps=(sweep_dir.name,), only=frozenset({"metrics"}))
    for one in _given(sweep_dir):
        name = one.place.name
        try:
            source = find_source(f"{one.place.ssh}:{one.place.folder}/results")
            for fetched in sync(source, sweep_dir.results, options, SyncProgress()):
                if fetched.complete:
                    tell(f"fetched {count(len(fetched.complete), 'result')} from {name}")
                for problem in fetched.problems:
                    tell(f"{name}: {problem}")
                whole = whole and not fetched.problems
        except OrchestrateError as error:
            tell(f"without what is new on {name}: {error}")
            whole = False
    return whole


def _given(sweep_dir: SweepDir) -> list[TreeAssignment]:
    """The trees behind ssh that have runs of the sweep."""
    return [one for one in assigned_of(sweep_dir) if one.run_ids]


def works(source: Source, results: Path, names: Iterable[str]) -> bool:
    """Whether one of these synced sweeps had unfinished jobs at its source at the last sync."""
    folders = (folder_of(SweepDir(results.absolute(), name), source).path for name in names)
    return any(poll_sweep(SweepDir(folder.parent, folder.name)).active for folder in folders)


def is_open(sweep_dir: SweepDir) -> bool:
    """Whether the sweep has instances or other trees to exchange with."""
    return bool(cloud_instances.sent_jobs(sweep_dir) or _given(sweep_dir))


@dataclass(frozen=True)
class DecisionReport:
    """The runs that a decision concerned, of this tree and of each place; ``problems``: who did not hear.

    ``news``: what the exchange with instances did.
    """

    here: tuple[str, ...]
    there: Mapping[TreePlace, tuple[str, ...]]
    problems: tuple[OrchestrateError, ...]
    news: tuple[str, ...] = ()

    @property
    def run_ids(self) -> list[str]:
        return [*self.here, *(run_id for group in self.there.values() for run_id in group)]

    def to_json(self) -> dict[str, Any]:
        """Return it for the tree that decided, where :func:`_tell` reads it."""
        problems = [(str(problem), problem.hint, problem.exit_code) for problem in self.problems]
        return {"runs": self.run_ids, "problems": problems}


def cancel(
    sweep_dir: SweepDir, run_ids: Sequence[str], check: Callable[[], None] = unchecked
) -> DecisionReport:
    """Take runs out of the sweep, wherever they are. ``check`` as for :func:`decisions.cancel_runs`."""
    here, elsewhere = _parted(sweep_dir, run_ids)
    concerned = decisions.cancel_runs(sweep_dir, here, check) if here else []
    # Also where nothing is concerned: an earlier one may not have been able to take an instance down.
    problems = decisions.withdraw(sweep_dir, rented=not concerned)
    done = cloud_instances.exchange(sweep_dir, not_within=0, orphans=True)
    problems += [BackendUnavailableError(text, hint=_AGAIN) for text in done.problems]
    there, unheard = _tell(sweep_dir, "cancel", elsewhere)
    return DecisionReport(tuple(concerned), there, (*problems, *unheard), tuple(done.news))


def retry(sweep_dir: SweepDir, run_ids: Sequence[str]) -> DecisionReport:
    """Make runs pending again, wherever they are. They are still to be submitted."""
    here, elsewhere = _parted(sweep_dir, run_ids)
    concerned = decisions.retry_runs(sweep_dir, here) if here else []
    there, problems = _tell(sweep_dir, "retry", elsewhere)
    for again in there.values():
        decisions.retry_runs(sweep_dir, again)  # results of theirs that came home are put aside here too
    return DecisionReport(tuple(concerned), there, problems)


def retry_for_home(sweep_dir: SweepDir, run_ids: Sequence[str], check: Callable[[], None]) -> DecisionReport:
    """Make runs of this tree pending again for its home; report all of them that are to be done now.

    So the same request again, after its answer was lost, has the same answer.
    """
    decisions.retry_runs(sweep_dir, run_ids, check)
    statuses = decisions.poll_named(sweep_dir, run_ids).statuses
    return DecisionReport(tuple(one for one in run_ids if not statuses[one].state.final), {}, ())


def _tell(
    sweep_dir: SweepDir, command: str, elsewhere: Sequence[tuple[TreeAssignment, list[str]]]
) -> tuple[dict[TreePlace, tuple[str, ...]], tuple[OrchestrateError, ...]]:
    """Run the command on each place's runs; return those that it concerned, and what was in the way."""
    there, problems = dict[TreePlace, tuple[str, ...]](), list[OrchestrateError]()
    for one, runs in elsewhere:
        try:
            answer = decide(sweep_dir, one, [command, sweep_dir.name, "--delegated"], runs)
        except OrchestrateError as error:
            problems.append(error)
            continue
        if answer["runs"]:
            there[one.place] = tuple(answer["runs"])
        for text, hint, code in answer["problems"]:
            problem = OrchestrateError(f"{one.place.name}: {text}", hint=hint)
            problem.exit_code = code
            problems.append(problem)
    return there, tuple(problems)


def stop(sweep_dir: SweepDir) -> bool:
    """Ask workers everywhere to save and leave, and wait until they have; ``False`` if some do not.

    Raises the first error of a place, after the others were asked.
    """
    stopped, problems = [follow.stop(sweep_dir)], []
    for one in _given(sweep_dir):
        try:
            stopped.append(decide(sweep_dir, one, ["stop", sweep_dir.name])["stopped"])
        except OrchestrateError as error:
            problems.append(error)
    for problem in problems:
        raise problem
    return all(stopped)


@contextmanager
def log_from(
    sweep_dir: SweepDir, run_id: str, attempt: int | None, to_the_end: bool
) -> Iterator[BufferedReader | None]:
    """The log of a run that another tree has; ``None`` for one of this tree."""
    one = next((one for one in assigned_of(sweep_dir) if run_id in one.run_ids), None)
    if one is None or sweep_dir.run_to_read(run_id).has_result():
        yield None
        return
    if (silence := _never_asked(sweep_dir)) is not None:
        raise OrchestrateError(f"{one.place.name} has the log and is not asked: {silence}")
    which = [] if attempt is None else ["--attempt", str(attempt)]
    command = ["logs", sweep_dir.name, run_id, *which, *(["--follow"] if to_the_end else [])]
    with program_of(sweep_dir, one).stream(command) as pipe:
        yield pipe


def _parted(
    sweep_dir: SweepDir, run_ids: Sequence[str]
) -> tuple[list[str], list[tuple[TreeAssignment, list[str]]]]:
    """Runs by the tree that has them; what came home from elsewhere is still that tree's to decide."""
    left, elsewhere = list(run_ids), []
    for one in assigned_of(sweep_dir):
        if runs := [run_id for run_id in left if run_id in one.run_ids]:
            elsewhere.append((one, runs))
            left = [run_id for run_id in left if run_id not in one.run_ids]
    return left, elsewhere

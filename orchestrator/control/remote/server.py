"""Answer for the results tree on this machine; started as ``python -m orchestrator.answer``.

One question as a line of JSON on stdin, its answer as a line of JSON on stdout after the question's mark, so
that what a login shell prints is no part of it. The code that answers was sent from where the question comes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from orchestrator.backends.base import Backend
from orchestrator.backends.registry import AllBackends, make_backend
from orchestrator.config.check import check_plan
from orchestrator.config.code.snapshot import received
from orchestrator.config.grid import parse_grid
from orchestrator.config.profiles import parse_profile
from orchestrator.config.sweep import expand
from orchestrator.control import follow
from orchestrator.control.dry_run import rehearse, said_before
from orchestrator.control.poll import (
    close_attempts,
    give_up,
    idle_jobs,
    leave_queue,
    only_waiting,
    poll_sweep,
)
from orchestrator.control.remote import CODE_DAMAGED
from orchestrator.control.remote.messages import (
    Answer,
    CancelRequest,
    DecisionAnswer,
    DecisionRequest,
    LogsRequest,
    PlanRequest,
    ReleaseAnswer,
    ReleaseRequest,
    Request,
    RetryRequest,
    StatusRequest,
    StopAnswer,
    StopRequest,
    SubmitAnswer,
    SubmitRequest,
    SubmittedArray,
    parse_request,
)
from orchestrator.control.submit import (
    SubmitOptions,
    cancel_runs,
    is_settled,
    plan_sweep,
    present,
    retry_runs,
    submit_sweep,
    withdraw,
)
from orchestrator.core.errors import ChecksFailedError, DamagedFileError, OrchestrateError
from orchestrator.core.formats import require_known_format, stamp
from orchestrator.core.types import RunState, Sweep
from orchestrator.rundir import CodeDir, SweepDir
from orchestrator.rundir.atomic import write_atomic
from orchestrator.rundir.frozen_code import FrozenCode, SentCode
from orchestrator.rundir.ledger_entries import AssignedShare, CancelEntry, RetryEntry, ShareEntry, jobs_of
from orchestrator.status.cost import job_state, worked
from orchestrator.status.disk_check import correct, inspect, proved_ended
from orchestrator.status.ledger import job_ids
from orchestrator.status.ownership import RELEASED, given_back, share
from orchestrator.status.run_logs import log_pieces
from orchestrator.status.survey import RunStatus, Survey

_OLD_CODE_HINT = (
    "an older version of this program answers there: `orchestrate sweep` with the grid sends this one"
)


def submit(request: SubmitRequest, sweep_dir: SweepDir) -> SubmitAnswer:
    """Submit what is missing of the runs that this tree was given."""
    sweep, backend, wish, code = _asked(request, sweep_dir)
    _take_share(request, sweep_dir)
    prospect = plan_sweep(sweep, sweep_dir, backend.capacity(ask=False), wish)
    if is_settled(sweep, sweep_dir, prospect):
        notes = leave_queue(sweep_dir, prospect.seen)
        return SubmitAnswer(settled=True, notes=notes, **vars(status(request, sweep_dir)))
    report = check_plan(prospect.plan, code.cwd)
    if report.problems:
        return SubmitAnswer(problems=[str(problem) for problem in report.problems])
    said = (*map(str, report.warnings), *said_before(backend, prospect.plan))
    done = submit_sweep(sweep, sweep_dir, backend, wish, code=code)
    arrays = [
        SubmittedArray(done.job_ids.get(array.jobs[0].token), len(array.jobs), array.jobs[0].slots)
        for array in done.plan.arrays
    ]
    return SubmitAnswer(
        to_do=len(done.plan.run_ids),
        adopted=len(done.adopted),
        queued=len(done.queued),
        arrays=arrays,
        waiting=len(done.plan.waiting),
        no_feed=done.plan.no_feed,
        cannot=dict(done.plan.problems),
        notes=[*said, *done.notes],
        **vars(status(request, sweep_dir)),
    )


def plan(request: PlanRequest, sweep_dir: SweepDir) -> dict[str, Any]:
    """What would be submitted, to the byte, as :func:`dry_run.planned` describes it; writes nothing.

    Where the checks fail, ``problems`` alone.
    """
    sweep, backend, wish, code = _asked(request, sweep_dir, dry=True)
    try:
        return dict(rehearse(sweep, sweep_dir, backend, wish, code=code))
    except ChecksFailedError as error:
        return {"problems": list(error.problems)}


def status(_: Request, sweep_dir: SweepDir) -> Answer:
    """Where the runs stand that this tree was ever given, and the jobs that it can say anything about."""
    if not sweep_dir.index_path.exists():
        return Answer(runs=())
    seen = present(sweep_dir)
    runs = [seen.statuses[row.run_id].to_json() for row in seen.rows]
    return Answer(runs=runs, jobs=_jobs(sweep_dir, seen))


def _jobs(sweep_dir: SweepDir, seen: Survey) -> dict[str, Any]:
    """Jobs that ever began or that a backend was asked about, by token.

    Each with the backend's id, its state, its own words, the runs, and how many seconds it has worked.
    """
    ledger, logs = sweep_dir.read_ledger(), {log.token: log for log in sweep_dir.read_journals()}
    ids, runs = job_ids(ledger), {job.token: job.run_ids for _, job in jobs_of(ledger)}
    times = worked(seen, logs.values(), time.time())
    return {
        token: {
            "id": ids.get(token),
            "state": job_state(token, seen, logs.get(token)).value,
            "text": seen.jobs[token].text if token in seen.jobs else "",
            "runs": runs.get(token, []),
            "seconds": times.get(token),
        }
        for token in dict.fromkeys((*seen.jobs, *logs))
    }


def cancel(request: CancelRequest, sweep_dir: SweepDir) -> DecisionAnswer:
    _require_home(request, share(sweep_dir.read_ledger()), sweep_dir)
    cancelled = cancel_runs(sweep_dir, request.runs)
    # Also where nothing is cancelled now: an earlier one may not have been able to take an instance down.
    for problem in withdraw(sweep_dir, rented=not cancelled):
        raise problem
    return DecisionAnswer(concerned=cancelled, **vars(status(request, sweep_dir)))


def stop(request: StopRequest, sweep_dir: SweepDir) -> StopAnswer:
    """Ask the workers to save and leave, and wait for it."""
    _require_home(request, share(sweep_dir.read_ledger()), sweep_dir)
    stopped = follow.stop(sweep_dir)
    return StopAnswer(stopped=stopped, **vars(status(request, sweep_dir)))


def retry(request: RetryRequest, sweep_dir: SweepDir) -> DecisionAnswer:
    """Make runs pending again; a submission follows."""
    _require_home(request, share(sweep_dir.read_ledger()), sweep_dir)
    again = retry_runs(sweep_dir, request.runs)
    return DecisionAnswer(concerned=again, **vars(status(request, sweep_dir)))


def release(request: ReleaseRequest, sweep_dir: SweepDir) -> ReleaseAnswer:
    """Give back runs that no job here works on or will; return the reasons for the others.

    ``moved``: also runs that failed here or that a person took out of the sweep. ``waiting``: also runs of
    jobs that only wait in a queue, which thereby never begin; their other runs are then unassigned here. A
    tree without the sweep yet records the request: decisions from before it come too late.
    """
    sweep_dir.create()
    with sweep_dir.lock():
        own = share(sweep_dir.read_ledger())
        _require_home(request, own, sweep_dir)
        seen = poll_sweep(sweep_dir)
        if request.waiting:
            tokens = only_waiting(sweep_dir, seen, request.runs)
            AllBackends().cancel(give_up(sweep_dir, tokens, "assigned to another target"))
            seen = poll_sweep(sweep_dir)
        close_attempts(sweep_dir, seen)
        statuses = correct(seen, inspect(sweep_dir, seen.statuses), sweep_dir).statuses
        already = given_back(sweep_dir.read_ledger())
        held = {
            run_id: why
            for run_id in request.runs
            if run_id in statuses and run_id not in already
            if (why := _why_held(statuses[run_id], sweep_dir, moved=request.moved))
        }
        free = {run_id for run_id in request.runs if run_id not in held}
        new = sorted(run_id for run_id in free if run_id in statuses and run_id not in already)
        if new:
            sweep_dir.add_to_ledger(CancelEntry(runs=dict.fromkeys(new, 0), why=RELEASED))
            AllBackends().cancel(list(idle_jobs(sweep_dir).values()))
        # From here on no worker takes one of them. Whoever was faster has it.
        late = [run_id for run_id in new if not _is_free(sweep_dir, run_id)]
        if late:
            sweep_dir.add_to_ledger(RetryEntry(runs=dict.fromkeys(late, 0)))
            held |= dict.fromkeys(late, "a job there has just begun it")
        gone = free.difference(late)
        left = (own.run_ids if own is not None else frozenset(statuses)) - gone
        _set_share(request, sweep_dir, left)
    return ReleaseAnswer(released=sorted(gone), held=held)


def _why_held(status: RunStatus, sweep_dir: SweepDir, *, moved: bool) -> str | None:
    if status.state is RunState.DONE:
        return "it is done there; bring its result home: orchestrate sync"
    if status.state in (RunState.QUEUED, RunState.RUNNING, RunState.STALLED, RunState.UNKNOWN):
        return f"it is {status.state.value} there; cancel it first"
    if status.state.final and not moved:
        return f"it is {status.state.value} there; orchestrate retry names what is to be done again"
    return None if _is_free(sweep_dir, status.run_id) else "nothing proves that its attempt there has ended"


def _is_free(sweep_dir: SweepDir, run_id: str) -> bool:
    """Whether the run has no result here and every attempt at it has provably ended."""
    return not sweep_dir.run_to_read(run_id).has_result() and proved_ended(sweep_dir.run(run_id))


def logs(request: LogsRequest, sweep_dir: SweepDir) -> dict[str, Any]:
    """What a run has written, after the answer, as it is; with ``follow`` until the run ends."""
    _leave_with_the_asker()
    pieces = log_pieces(sweep_dir, request.run, request.attempt, follow=request.follow)
    first = next(pieces, b"")  # what is wrong with the question shows before the answer begins
    _say(request.mark, {})
    for piece in chain([first], pieces):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    raise SystemExit(0)


def _leave_with_the_asker() -> None:
    """End this program when the other side of ssh is gone, which shows as the end of stdin."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1 << 16):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _asked(
    request: PlanRequest, sweep_dir: SweepDir, dry: bool = False
) -> tuple[Sweep, Backend, SubmitOptions, FrozenCode]:
    """The sweep, only with the runs that this tree is given, and what it is to be submitted with."""
    sent = request.code
    kept, folder = CodeDir.of(sweep_dir, sent.id), sweep_dir.results.parent
    if dry:
        cwd = folder if sent.cwd is None else kept.path / sent.cwd
        paths = tuple(kept.path / path for path in sent.python_path)
        code = FrozenCode(sent.id, kept.path, paths, cwd, folder, entries=sent.entries)
    else:
        code = _received(kept, sent, folder)
    name, text = request.profile.name, request.profile.text
    # By its content: jobs that submit others find the profile that they were submitted with.
    path = folder / "profiles" / sha256(text.encode()).hexdigest()[:8] / f"{name}.yaml"
    if not dry:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
    backend = make_backend(parse_profile(text, str(path), name), request.options)
    return _sweep(request, code), backend, request.wish, code


def _received(kept: CodeDir, sent: SentCode, folder: Path) -> FrozenCode:
    try:
        return replace(received(kept, sent.python_path, sent.cwd, folder), entries=sent.entries)
    except DamagedFileError as error:
        error.exit_code = CODE_DAMAGED
        raise


def _sweep(request: PlanRequest, code: FrozenCode) -> Sweep:
    source = request.grid.path
    folder = code.cwd if code.cwd.is_dir() else Path.cwd()
    with chdir(folder):  # what a grid names by its path is part of the code
        full = expand(parse_grid(request.grid.text, source))
    runs = {run.run_id: run for run in full.runs}
    if unknown := [run_id for run_id in request.runs if run_id not in runs]:
        raise OrchestrateError(
            f"{len(unknown)} runs of {full.name} have another identity here than where it was submitted",
            hint="both machines need the same versions of the trainer's packages (constraints.txt)",
        )
    return replace(full, runs=tuple(run for run in full.runs if run.run_id in set(request.runs)))


def _take_share(request: SubmitRequest, sweep_dir: SweepDir) -> None:
    """Enter what this tree is given; what it had released before is to be done here again."""
    sweep_dir.create()
    with sweep_dir.lock():
        own = share(sweep_dir.read_ledger())
        if not request.adopt:
            _require_home(request, own, sweep_dir)
        if back := sorted(given_back(sweep_dir.read_ledger()).intersection(request.runs)):
            runs = {run_id: sweep_dir.run(run_id).newest_attempt() for run_id in back}
            sweep_dir.add_to_ledger(RetryEntry(runs=runs))
        _set_share(request, sweep_dir, frozenset(request.runs))


def _require_home(request: DecisionRequest, own: AssignedShare | None, sweep_dir: SweepDir) -> None:
    """Raise unless the question is of the tree that gave these runs, and no later one of it came first."""
    if own is None:
        if sweep_dir.latest_grid() is None:
            return
        raise OrchestrateError(
            f"{sweep_dir.path}: a sweep of this name was submitted on that machine itself",
            hint="to go on with it from here, add --adopt; otherwise give yours another name",
        )
    if own.home != request.decision.home:
        raise OrchestrateError(
            f"{sweep_dir.path}: a sweep of this name is {own.owner}'s",
            hint="if that one has given it up, add --adopt; otherwise give yours another name, or folder",
        )
    if request.decision.number < own.number:
        raise OrchestrateError(
            "what this was about has been decided anew meanwhile, by another command",
            hint="orchestrate status shows how it is; the same command again goes on from there",
        )


def _set_share(request: DecisionRequest, sweep_dir: SweepDir, run_ids: frozenset[str]) -> None:
    new = AssignedShare(run_ids, request.decision.home or "", request.decision.owner, request.decision.number)
    if share(sweep_dir.read_ledger()) != new:
        sweep_dir.add_to_ledger(ShareEntry(share=new))


ANSWERS: Mapping[type[Request], Callable[[Any, SweepDir], Answer | Mapping[str, Any]]] = {
    SubmitRequest: submit,
    PlanRequest: plan,
    StatusRequest: status,
    CancelRequest: cancel,
    StopRequest: stop,
    RetryRequest: retry,
    ReleaseRequest: release,
    LogsRequest: logs,
}


def _parsed(record: Mapping[str, Any]) -> Request:
    try:
        return parse_request(record)
    except (KeyError, TypeError, ValueError) as error:
        raise OrchestrateError(
            f"found a request that this version does not know ({error!r})", hint=_OLD_CODE_HINT
        ) from error


def _say(mark: str, answer: Mapping[str, Any]) -> None:
    sys.stdout.write(f"\n{mark}\n{json.dumps({**stamp(), **answer})}\n")
    sys.stdout.flush()


def main() -> int:
    record = json.loads(sys.stdin.buffer.readline())
    try:
        require_known_format(record, "the request", _OLD_CODE_HINT)
        request = _parsed(record)
        sweep_dir = SweepDir(Path.cwd() / "results", record["sweep"])
        found = ANSWERS[type(request)](request, sweep_dir)
        answer = found.to_json() if isinstance(found, Answer) else found
    except OrchestrateError as error:
        answer = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
    except OSError as error:
        answer = {"error": f"{error.filename or ''}: {error.strerror or error}", "hint": None, "exit_code": 3}
    _say(record["mark"], answer)
    return 0

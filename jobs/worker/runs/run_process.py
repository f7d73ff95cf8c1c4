"""The process of one run, forked by the worker: claim an attempt, train, publish, report the end."""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from jobs.training.context import (
    DONE_EXIT,
    FAILED_EXIT,
    FENCED_EXIT,
    INTERRUPTED_EXIT,
    NOT_MINE_EXIT,
    FencedRun,
    InterruptedRun,
    Outcome,
    RunContext,
    send,
)
from jobs.training.plugins import as_submitted, load_plugins
from jobs.training.processes.connection import Connection
from jobs.training.processes.life import Life
from jobs.training.processes.process_tree import descendants, die_with_parent
from jobs.training.processes.ranks import RankError, Ranks
from jobs.training.processes.run_memory import RunMemory
from jobs.training.records import provenance, result_figures
from jobs.worker.capacity.slots import Slot
from jobs.worker.failures import (
    ProgramFailed,
    end_of,
    one_line,
    require_complete,
    storage_reason,
    unless_in_vain,
)
from jobs.worker.runs.keeper import keep
from jobs.worker.signals import STOP_SIGNALS, grace_seconds
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.core.records import plain
from orchestrator.core.types import PluginSource, Reason, RunState
from orchestrator.planning.throughput.measure import throughput
from orchestrator.rundir import AttemptDir, Claim, End, Lease, SweepDir, check_writable, tidy_finished
from orchestrator.rundir.copies.prefix import prefix_of
from orchestrator.rundir.files.plain_files import open_descriptor
from orchestrator.rundir.records.run_state import decisions_in

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Seconds between attempts to publish a complete training while its file server fails.
_PUBLICATION_PAUSES_S = (1.0, 5.0, 15.0, 30.0, 60.0)
_EXIT_CODES = {RunState.DONE: DONE_EXIT, RunState.FAILED: FAILED_EXIT, RunState.INTERRUPTED: INTERRUPTED_EXIT}


@dataclass(frozen=True)
class Launch:
    """The arguments of a run's process. ``relay`` is its pipe to the worker.

    ``since``: attempts up to this one do not count. ``ledger_read``: the worker's last entry. ``target``: of
    the worker's job. ``members``: names of the job's other nodes, with their agents. ``code`` is set by the
    run's own process as it begins.
    """

    sweep: SweepDir
    run_id: str
    worker: str
    slot: Slot
    relay: int
    commit: str | None
    plugins: tuple[PluginSource, ...] = ()
    since: int = 0
    ledger_read: int = 0
    target: str | None = None
    members: tuple[tuple[str, Connection], ...] = ()
    memory: RunMemory = field(default_factory=RunMemory)
    life: Life = field(default_factory=Life)
    code: provenance.Code = provenance.NO_CODE


def fork_run(launch: Launch) -> int:
    """Fork the run's keeper, and by it the run's process; return the keeper's pid.

    The caller is single-threaded and blocks the stop signals.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        keep(parent, launch.memory, launch.life, lambda keeper: _live_as_child(launch, keeper))
    return pid


def _live_as_child(launch: Launch, parent: int) -> NoReturn:
    code = FAILED_EXIT
    try:
        os.setsid()
        die_with_parent(parent)
        let_signals_end_children()
        os.sched_setaffinity(0, launch.slot.cores)
        if launch.slot.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = launch.slot.gpus
        code = _run(launch)
    except FencedRun:
        code = FENCED_EXIT
    except BaseException as error:
        traceback.print_exc()
        send(launch.relay, {"end": plain(end_of(error))})
    finally:
        _flush()
        os._exit(code)


def _run(launch: Launch) -> int:
    run_dir = launch.sweep.run(launch.run_id)
    run = run_dir.description()
    spec = get_trainer(run.trainer).with_plugins(map(as_submitted, launch.plugins))
    since = Lease.clock()
    launch = replace(launch, code=provenance.code_of(spec, run, launch.sweep.results))
    claim = Claim.fresh(launch.worker, code_id=launch.code.id, target=launch.target)
    attempt = run_dir.take(claim)
    if attempt is None:
        return NOT_MINE_EXIT
    if _was_cancelled(launch):
        attempt.write_end(End(RunState.INTERRUPTED, Reason.STOPPED, "cancelled as it began"))
        return NOT_MINE_EXIT
    send(launch.relay, {"attempt": attempt.number})
    _redirect_output(attempt)
    if launch.code.unknown is not None:
        sys.stderr.write(f"warning: the run has no code_id: {launch.code.unknown}\n")
    _set_threads(run.threads)
    lease = Lease(attempt.claim_path, claim.lease, since)
    context = RunContext(launch.sweep.name, run, run_dir, attempt, lease, launch.relay)
    context.memory, context.life = launch.memory, launch.life
    context.ranks, context.plugins = Ranks(launch.members), spec.plugins
    context.program = launch.code.program
    if (prefix := prefix_of(run_dir)) is not None:
        context.other_bits = provenance.other_bits(prefix, spec, run)
        context.forked_from = prefix.fork
    context.keep_lease()  # before the stop signals are unblocked: its thread never gets one
    end = _train(launch, context, spec)
    if end.outcome is RunState.INTERRUPTED:  # at other ends the run is done, or failed
        end = unless_in_vain(end, run_dir.attempts(), launch.since, attempt.number)
    send(launch.relay, {"end": plain(end)})
    context.guard()
    attempt.write_end(end)
    if end.outcome is RunState.DONE:
        result = run_dir.result()
        assert result is not None, "just published"
        tidy_finished(run_dir, result)
    return _EXIT_CODES[end.outcome]


def _was_cancelled(launch: Launch) -> bool:
    """Whether a ledger entry since the worker's last look takes the run out of the sweep, or of its job.

    A run is given to another target by an entry first and a look for claims then. So one of the two sees the
    other.
    """
    new = launch.sweep.read_ledger(after=launch.ledger_read, strict=False)
    decided = decisions_in(new).of(launch.run_id)
    return decided.cancelled or decided.elsewhere > 0


def _train(launch: Launch, context: RunContext, spec: TrainerSpec) -> End:
    try:
        _listen(context)
        load_plugins(spec)
        if silence := spec.silence(context.run):
            launch.life.expect(silence.seconds)
        outcome = pkgutil.resolve_name(spec.train)(context)
        _stop_listening()
        require_complete(context.rows, context.total, context.attempt.log)
        _persist_in_publishing(launch, context, spec, outcome)
        end = End(RunState.DONE)
    except FencedRun:
        raise
    except BaseException as error:
        _stop_listening()
        if _is_published(context):  # only a step after publication failed
            return End(RunState.DONE, frames=context.rows[-1].frames if context.rows else None)
        end = _unless_disk_full(end_of(error), context.attempt)
        if context.stopping and end.reason is Reason.CODE_ERROR:
            # The interruption can strike inside a library that turns it into an error of its own.
            end = end_of(InterruptedRun(context.stop_signal))
        if end.reason in (Reason.CODE_ERROR, Reason.KILLED) and context.memory.await_verdict():
            message = one_line(f"one of its processes was killed for want of memory: {end.message}")
            end = replace(end, outcome=RunState.FAILED, reason=Reason.OUT_OF_MEMORY, message=message)
        if end.outcome is RunState.FAILED and not isinstance(
            error, OrchestrateError | ProgramFailed | RankError
        ):
            traceback.print_exc()  # of use only where our code or a library raised it
        sys.stderr.write(f"{end.outcome.value}: {end.message}\n")
    frames = context.rows[-1].frames if context.rows else None
    return replace(end, frames=frames, checkpointed=context.checkpointed_frames)


def _unless_disk_full(end: End, attempt: AttemptDir) -> End:
    """Name the results' full disk as the reason: programs fail in many ways without room, and cannot say so.

    Only a failed write here proves it: a program may speak of another disk.
    """
    if end.outcome is not RunState.FAILED and end.reason not in (Reason.DISK_FULL, Reason.STORAGE):
        return end
    try:
        check_writable(attempt.path)
    except StorageError as error:
        return replace(end_of(error), counts=False)
    return end


def _persist_in_publishing(launch: Launch, context: RunContext, spec: TrainerSpec, outcome: Outcome) -> None:
    """Publish the result of a complete training; try again after errors of the file server, with pauses."""
    for pause in _PUBLICATION_PAUSES_S:
        try:
            return _publish(launch, context, spec, outcome)
        except Exception as error:
            if storage_reason(error) is not Reason.STORAGE:
                raise
            sys.stderr.write(f"warning: not published yet: {one_line(str(error))}\n")
        time.sleep(pause)
    return _publish(launch, context, spec, outcome)


def _publish(launch: Launch, context: RunContext, spec: TrainerSpec, outcome: Outcome) -> None:
    context.memory.measure(process.pid for process in descendants(os.getppid()))
    context.before_checkpoint()
    context.attempt.pack_wandb()
    _flush()
    result = _result(launch, context, spec, outcome)
    manifest = _manifest(context, outcome)
    if not context.run_dir.publish(result, manifest.items(), guard=context.guard):
        raise FencedRun


def _is_published(context: RunContext) -> bool:
    try:
        result = context.run_dir.result()
    except (DamagedFileError, OSError):
        return False
    return result is not None and result.attempt == context.attempt.number


def _manifest(context: RunContext, outcome: Outcome) -> dict[Path, bool]:
    """Return the result's files, and whether the result is void without each."""
    attempt = context.attempt
    extras = [attempt.log, attempt.wandb_packed, *attempt.event_files()]
    optional = {path: False for path in extras if path.exists()}
    chain = context.run_dir.chain(attempt.number)
    metrics = {context.run_dir.attempt(piece.attempt).metrics: True for piece in chain}
    optional |= dict.fromkeys(outcome.final_state, False)
    return optional | dict.fromkeys(context.kept[-1:], True) | dict(outcome.files) | metrics


def _result(launch: Launch, context: RunContext, spec: TrainerSpec, outcome: Outcome) -> dict[str, Any]:
    attempts = context.run_dir.current_attempts()
    chain = context.run_dir.chain(context.attempt.number)
    claims = [claim for piece in chain if (claim := _claim(context.run_dir.attempt(piece.attempt)))]
    origin = prefix_of(context.run_dir)
    prefix = origin if chain[0].attempt == 0 else None
    code = {**launch.code.to_json(), **outcome.code}
    return {
        "sweep": launch.sweep.name,
        "attempt": context.attempt.number,
        "attempts": len(attempts),
        "state": RunState.DONE.value,
        "frames": int(outcome.frames),
        "iterations": int(outcome.iterations),
        "wall_time": context.rows[-1].wall_time if context.rows else 0.0,
        "started": _began(attempts[0]),
        "ended": max(time.time(), *(_began(attempt) or 0.0 for attempt in attempts)),
        "seconds": _seconds(context.attempt),
        "exactness": outcome.exactness,
        "config": dict(outcome.config),
        "config_hash": _config_hash(outcome.config),
        "evaluation": None if outcome.evaluation is None else asdict(outcome.evaluation),
        **code,
        # The files that count are known only in the end.
        "code_ids": _each_once(
            [
                prefix.code_id if prefix else None,
                *(code["code_id"] if claim.code_id == launch.code.id else claim.code_id for claim in claims),
            ]
        ),
        "targets": _each_once(claim.target for claim in claims),
        "commit": launch.commit,
        "versions": provenance.versions(spec, context.run),
        "host": provenance.host(),
        "threads": context.run.threads,
        "cores": len(launch.slot.cores) * (1 + len(launch.members)),
        **_memory(context),
        "speed": plain(throughput(piece.rows for piece in chain if piece.attempt)),
        "final_state": [path.relative_to(context.run_dir.path).as_posix() for path in outcome.final_state],
        **({"prefix": plain(prefix)} if prefix else {}),
        **({"init": plain(origin)} if origin and context.run.init else {}),
        **result_figures.learned(context.rows, spec.returns),
        **outcome.extra,
    }


def _memory(context: RunContext) -> dict[str, Any]:
    """Return the run's peak of memory in MiB: on several nodes the sum over them, and that of each."""
    nodes = [context.memory.peak_mb(), *context.ranks.memory_mb]
    more = {"node_peak_memory_mb": nodes} if len(nodes) > 1 else {}
    return {"peak_memory_mb": round(sum(nodes), 1), **more}


def _began(attempt: AttemptDir) -> float | None:
    claim = _claim(attempt)
    return claim.created if claim else None


def _seconds(attempt: AttemptDir) -> float | None:
    """Return the attempt's duration by the clock that never jumps."""
    claim = _claim(attempt)
    return None if claim is None or claim.up is None else Lease.clock() - claim.up


def _claim(attempt: AttemptDir) -> Claim | None:
    """Return an earlier attempt's claim; ``None`` if it is damaged, which voids no training."""
    try:
        return attempt.claim()
    except DamagedFileError:
        return None


def _each_once(found: Iterable[str | None]) -> list[str]:
    """Return the distinct values of the attempts behind the history, in their order."""
    return list(dict.fromkeys(filter(None, found)))


def _config_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def _listen(context: RunContext) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, lambda got, _frame: context.on_signal(got, grace_seconds(got)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def let_signals_end_children() -> None:
    """Have stop signals end forked children of this process, as any process: it alone handles them.

    They are blocked meanwhile, because a child would lose one that comes before its handler is reset.
    """
    mask = threading.local()

    def block() -> None:
        mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask.before)

    def reset() -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


def _stop_listening() -> None:
    """Ignore stop signals: finishing is quicker now. Blocking would not do, other threads get signals too."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _redirect_output(attempt: AttemptDir) -> None:
    _flush()
    log = open_descriptor(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _set_threads(threads: int) -> None:
    """Set the threads in the environment, for programs still to be started, and of a loaded torch."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # a full disk costs the end of the log, not the result
            pass

"""The process of one run: forked by the worker; claims its attempt, trains, publishes, says how it ended."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from jobs.training import measures, provenance
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
)
from jobs.training.plugins import as_submitted, load_plugins
from jobs.worker.failures import End, ProgramFailed, deaths_in_vain, end_of, in_vain
from jobs.worker.signals import STOP_SIGNALS, grace_seconds
from jobs.worker.slots import Slot
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.errors import DamagedFileError, OrchestrateError, StorageError
from orchestrator.core.types import PluginSource, Reason, RunState
from orchestrator.planning.throughput.measure import throughput
from orchestrator.rundir import (
    AttemptDir,
    Claim,
    Lease,
    SweepDir,
    check_writable,
    tidy_finished,
)
from orchestrator.rundir.plain_files import open_descriptor

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_EXIT_CODES = {
    RunState.DONE: DONE_EXIT,
    RunState.FAILED: FAILED_EXIT,
    RunState.INTERRUPTED: INTERRUPTED_EXIT,
}


@dataclass(frozen=True)
class Launch:
    """All that a run's process needs to know. ``relay`` is the pipe on which it tells the worker.

    ``since``: attempts up to this one are forgotten. ``told``: the ledger as far as the worker read it.
    ``target``: what the worker's job was submitted to. ``code`` is found out
    by the run's own process as it begins.
    """

    sweep: SweepDir
    run_id: str
    worker: str
    slot: Slot
    relay: int
    commit: str | None
    plugins: tuple[PluginSource, ...] = ()
    since: int = 0
    told: int = 0
    target: str | None = None
    code: provenance.Code = provenance.NO_CODE


def fork_run(launch: Launch) -> int:
    """Fork the run's process; its pid. The caller is single-threaded and has the stop signals blocked."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _live_as_child(launch, parent)
    return pid


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when ``parent`` dies; it ends if that is dead already."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(FAILED_EXIT)


def _live_as_child(launch: Launch, parent: int) -> NoReturn:
    code = FAILED_EXIT
    try:
        os.setsid()
        die_with_parent(parent)
        os.sched_setaffinity(0, launch.slot.cores)
        if launch.slot.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = launch.slot.gpus
        code = _run(launch)
    except FencedRun:
        code = FENCED_EXIT
    except BaseException as error:
        traceback.print_exc()
        _tell(launch.relay, {"end": end_of(error).to_json()})
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
        attempt.write_end(End(RunState.INTERRUPTED, Reason.STOPPED, "cancelled as it began").to_json())
        return NOT_MINE_EXIT
    _tell(launch.relay, {"attempt": attempt.number})
    _redirect_output(attempt)
    if launch.code.unknown is not None:
        sys.stderr.write(f"warning: the run has no code_id: {launch.code.unknown}\n")
    _set_threads(run.threads)
    lease = Lease(attempt.claim_path, claim.lease, since)
    context = RunContext(launch.sweep.name, run, run_dir, attempt, lease, launch.relay)
    context.keep_lease()  # before the stop signals are unblocked: its thread never gets one
    end = _unless_in_vain(_train(launch, context, spec), context, launch.since)
    _tell(launch.relay, {"end": end.to_json()})
    context.guard()
    attempt.write_end(end.to_json())
    if end.outcome is RunState.DONE:
        result = run_dir.result()
        assert result is not None, "just published"
        tidy_finished(run_dir, result)
    return _EXIT_CODES[end.outcome]


def _was_cancelled(launch: Launch) -> bool:
    """Whether somebody took the run out of the sweep between the worker's last look and the claim.

    Whoever gives a run to another tree writes that down first and looks for claims then. So one of the two
    sees the other.
    """
    new = launch.sweep.read_ledger(after=launch.told)
    return any(entry.kind == "cancel" and launch.run_id in entry.data["runs"] for entry in new)


def _train(launch: Launch, context: RunContext, spec: TrainerSpec) -> End:
    try:
        _listen(context)
        load_plugins(spec)
        module, _, function = spec.train.partition(":")
        outcome = getattr(importlib.import_module(module), function)(context)
        _stop_listening()
        _publish(launch, context, spec, outcome)
        end = End(RunState.DONE)
    except FencedRun:
        raise
    except BaseException as error:
        _stop_listening()
        if _is_published(context):  # it was the disk's last word about it that failed
            return End(RunState.DONE, frames=context.rows[-1].frames if context.rows else None)
        end = _unless_disk_full(end_of(error), context.attempt)
        if context.stopping and end.reason is Reason.CODE_ERROR:
            # The interruption can strike inside a library that turns it into an error of its own.
            end = end_of(InterruptedRun(context.stop_signal))
        if end.outcome is RunState.FAILED and not isinstance(error, OrchestrateError | ProgramFailed):
            traceback.print_exc()  # of use only where our code or a library raised it
        sys.stderr.write(f"{end.outcome.value}: {end.message}\n")
    frames = context.rows[-1].frames if context.rows else None
    return End(end.outcome, end.reason, end.message, frames, context.checkpointed_frames)


def _unless_in_vain(end: End, context: RunContext, since: int) -> End:
    """A run whose time is over each time before it reaches a checkpoint would never be done."""
    if end.reason is not Reason.TIME_LIMIT:
        return end
    deaths = deaths_in_vain(context.run_dir.attempts(), since, context.attempt.number)
    return in_vain(deaths, Reason.TIME_LIMIT, end.message, end.frames) if deaths else end


def _unless_disk_full(end: End, attempt: AttemptDir) -> End:
    """A full disk makes programs fail in ways of their own, and takes their last words."""
    if end.outcome is not RunState.FAILED:
        return end
    try:
        check_writable(attempt.path)
    except StorageError as error:
        return end_of(error)
    return end


def _publish(launch: Launch, context: RunContext, spec: TrainerSpec, outcome: Outcome) -> None:
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
    return result is not None and result.get("attempt") == context.attempt.number


def _manifest(context: RunContext, outcome: Outcome) -> dict[Path, bool]:
    """Every file that belongs to the result, and whether the result is void without it."""
    attempt = context.attempt
    extras = [attempt.log, attempt.wandb_packed, *attempt.event_files()]
    optional = {path: False for path in extras if path.exists()}
    chain = context.run_dir.chain(attempt.number)
    metrics = {context.run_dir.attempt(piece.attempt).metrics: True for piece in chain}
    return optional | dict(outcome.files) | metrics


def _result(launch: Launch, context: RunContext, spec: TrainerSpec, outcome: Outcome) -> dict[str, Any]:
    attempts = context.run_dir.current_attempts()
    chain = context.run_dir.chain(context.attempt.number)
    claims = [claim for piece in chain if (claim := _claim(context.run_dir.attempt(piece.attempt)))]
    final, best = measures.returns(context.rows, spec.returns)
    return {
        "sweep": launch.sweep.name,
        "attempt": context.attempt.number,
        "attempts": len(attempts),
        "state": RunState.DONE.value,
        "frames": outcome.frames,
        "iterations": outcome.iterations,
        "wall_time": context.rows[-1].wall_time if context.rows else 0.0,
        "started": _began(attempts[0]),
        "ended": max(time.time(), *(_began(attempt) or 0.0 for attempt in attempts)),
        "seconds": _seconds(context.attempt),
        "exactness": outcome.exactness,
        "config": dict(outcome.config),
        "config_hash": _config_hash(outcome.config),
        **launch.code.to_json(),
        "code_ids": _each_once(claim.code_id for claim in claims),
        "targets": _each_once(claim.target for claim in claims),
        "commit": launch.commit,
        "versions": provenance.versions(spec),
        "host": provenance.host(),
        "threads": context.run.threads,
        "peak_memory_mb": measures.peak_memory_mb(),
        "speed": throughput(piece.rows for piece in chain).to_json(),
        "final_return": final,
        "best_return": best,
        **outcome.extra,
    }


def _began(attempt: AttemptDir) -> float | None:
    claim = _claim(attempt)
    return claim.created if claim else None


def _seconds(attempt: AttemptDir) -> float | None:
    """How long the attempt took, by the clock that never jumps."""
    claim = _claim(attempt)
    return None if claim is None or claim.up is None else Lease.clock() - claim.up


def _claim(attempt: AttemptDir) -> Claim | None:
    """An earlier attempt's claim; one that is damaged tells less, but voids no training."""
    try:
        return attempt.claim()
    except DamagedFileError:
        return None


def _each_once(found: Iterable[str | None]) -> list[str]:
    """What the attempts that made the history say, each once, in the order they came."""
    return list(dict.fromkeys(filter(None, found)))


def _config_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def _listen(context: RunContext) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, lambda got, _frame: context.on_signal(got, grace_seconds(got)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _stop_listening() -> None:
    """From here finishing is quicker than leaving. Blocking would not do: other threads get signals too."""
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
    """For programs still to be started by the environment, for a torch that is loaded by a call."""
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _tell(relay: int, message: Mapping[str, Any]) -> None:
    """One line to the worker. It is gone, or it will find the same on disk: a failure does not matter."""
    try:
        os.write(relay, (json.dumps(message) + "\n").encode())
    except OSError:
        pass


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # a full disk takes the last words of the log, not the run's result
            pass

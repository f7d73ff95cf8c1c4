"""Train with any program that follows the run protocol (docs/run-protocol.md).

Overrides: ``command``, an argument list, never a shell, with the run's values in place of ``{key}``
(:mod:`orchestrator.config.command_line.placeholders`). ``code`` lists the files that count as the program
(:mod:`orchestrator.config.program.identity`). After ``minutes`` of training the program is stopped and the
run is done, unless ``{minutes}`` is an argument of the program. All other keys are the program's own.

The program runs as a child of this process and writes metrics and checkpoints into an inbox. This process
takes them over in order, so that no checkpoint is ever ahead of the metrics and a fenced attempt changes
nothing. On several nodes the same program runs on each; the inboxes of the others are dropped.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.trainers.command.declared import Declared, declared_in, imported_packages, raised
from jobs.trainers.command.inbox import Inbox
from jobs.trainers.command.traced import Trace
from jobs.trainers.command.working_folder import WorkingFolder
from jobs.training.context import GRACE_SHARE, BadConfigError, FencedRun, InterruptedRun, Outcome, RunContext
from jobs.training.processes.log_reason import FROM_OUTSIDE, UNKNOWN, FailureReason, reason_in
from jobs.training.processes.process_tree import die_with_parent
from jobs.training.processes.ranks import SCRATCH, RankError, how_it_ended
from jobs.training.processes.stop_request import StopRequest
from jobs.training.records import provenance
from jobs.training.records.loggers import Logging, logging_to, thinned
from jobs.training.time_budget import minutes_of
from jobs.worker.failures import ProgramFailed, ProgramLeft
from jobs.worker.runs.run_process import THREAD_VARIABLES
from jobs.worker.signals import grace_seconds
from orchestrator.config.command_line.command import COMMAND_KEY, command_meant, program_file
from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.program.patterns import CODE_KEY, Patterns
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine.package_files import PROGRAM_HOOK
from orchestrator.core.types import Reason, Run, Value
from orchestrator.rundir import AttemptDir, CheckpointFile, CodeDir

# The variable that names the file with a run's values.
DESCRIPTION = "ORCHESTRATE_RUN"
SEED = "ORCHESTRATE_SEED"
METRICS, CHECKPOINTS = "ORCHESTRATE_METRICS", "ORCHESTRATE_CHECKPOINT_DIR"
SUBMIT_DIR = "ORCHESTRATE_SUBMIT_DIR"
RESUME, IMPORTS = "ORCHESTRATE_RESUME", "ORCHESTRATE_IMPORTS"
INIT = "ORCHESTRATE_INIT"
# Inboxes of programs on other nodes, which are dropped.
_DROPPED = {METRICS: f"{SCRATCH}/metrics.jsonl", CHECKPOINTS: SCRATCH, IMPORTS: f"{SCRATCH}/imports"}

# Exit codes of a program, from sysexits.h: 64 wrong usage, 75 try again later, 78 wrong configuration.
DONE, INTERRUPTED, BAD_CONFIG = 0, 75, (64, 78)
# Those of a program whose time was up; of one that SIGTERM ended its own, and that of a shell around it.
_OUT_OF_TIME = (DONE, INTERRUPTED, -signal.SIGTERM, 128 + signal.SIGTERM)
# The exit code of a shell whose program was killed from outside.
_SHELL_KILLED = 128 + signal.SIGKILL

_POLL_S = 0.05
# Seconds for the programs on other nodes to leave after the one here is done.
_LEAVE_S = 10.0
# Rows of earlier attempts that sinks get at most.
_MOST_HISTORY = 20_000


@dataclass(frozen=True)
class _Exit:
    """How the program left: its exit code, and the request to stop that it got before."""

    code: int
    stop: StopRequest | None


def patterns_of(run: Run) -> Value:
    """Return the value of the key `code`. Raises :class:`BadConfigError` if it cannot be used."""
    value = run.overrides.get(CODE_KEY)
    try:
        Patterns.of(value)
    except OrchestrateError as error:
        raise BadConfigError(str(error), hint=error.hint) from None
    return value


def train(context: RunContext) -> Outcome:
    """Run the program to its end; stop it when the run is stopped."""
    context.polls_stopping = True
    argv = command_line(context.run)
    require_executable(argv)
    require_program(argv)
    patterns_of(context.run)
    minutes = minutes_of(context.run)
    with _working_folder(argv, context) as start:
        return _train(argv, start, minutes, context)


def _train(argv: list[str], start: Path, minutes: float | None, context: RunContext) -> Outcome:
    """Run the program in the folder ``start``."""
    checkpoint = context.newest()
    inbox = Inbox(context, checkpoint, minutes, context.run_dir.work)
    attempt, history = context.attempt, thinned(context.rows, _MOST_HISTORY)
    trace = Trace(context, argv)
    where = Logging(context.run.loggers, os.environ.get("WANDB_PROJECT") or context.sweep)
    with logging_to(where, context, context.run.point, history) as inbox.sinks:
        if inbox.time.over and checkpoint is not None:
            # Its worker was killed between the program's end and the result.
            sys.stderr.write("the time was up before: the program is not started again\n")
            attempt = context.run_dir.attempt(checkpoint.attempt)
            inbox.declared = declared_in(attempt.inbox_metrics)
        else:
            _run(argv, start, inbox, context, {**_variables(context, checkpoint), **trace.variables})
        inbox.log()
    rows = context.rows
    if inbox.time.over or (COMMAND.minutes in context.run.overrides and not COMMAND.minutes_key(context.run)):
        context.total = None  # time ends it, counted here or by itself
    return Outcome(
        frames=rows[-1].frames if rows else 0,
        iterations=rows[-1].iteration if rows else 0,
        exactness=inbox.declared.exactness,
        config={**context.run.overrides, "command": argv},
        extra={
            "versions": _versions(attempt.inbox_imports, trace, inbox.declared),
            **_remarks(inbox, context),
        },
        code=trace.result(),
        final_state=tuple(context.kept[-1:]),
    )


def _remarks(inbox: Inbox, context: RunContext) -> dict[str, Any]:
    """Return the fields of a result with remarks, and all of them together as its ``remark``."""
    missing = (
        "" if context.rows else f"no metrics found: {inbox.found.looked_for}; name the file by `metrics:`"
    )
    lacking = inbox.found.lacks_return(context.rows) if context.rows else ""
    parts = [inbox.dropped.to_json(), _caught_error(inbox, context), {"remark": missing or lacking}]
    remark = "; ".join(filter(None, (str(part.get("remark", "")) for part in parts)))
    return {key: value for part in parts for key, value in part.items()} | {"remark": remark}


def _caught_error(inbox: Inbox, context: RunContext) -> dict[str, str]:
    """Return the parts of a result where the last words are an exception, of a program without a `total`."""
    if context.total is not None or inbox.time.over:
        return {}
    reason = reason_in(context.attempt.log, raised=False)
    if not reason.of_exception:
        return {}
    remark = f"left with exit code 0 and an exception as its last words: {reason.text}"
    return {"caught_error": reason.text, "remark": remark}


def _run(argv: list[str], start: Path, inbox: Inbox, context: RunContext, variables: dict[str, str]) -> None:
    """Run the program until it is done. Raises the error that its exit code means."""
    context.ranks.start(argv, {**variables, **_DROPPED}, start)
    inherited = {name: value for name, value in os.environ.items() if name not in (RESUME, INIT)}
    program = _start(argv, {**inherited, **variables, **context.ranks.variables()}, start)
    inbox.program_started()
    try:
        _judge(_supervise(program, inbox, context), context, inbox)
        context.ranks.wait(_LEAVE_S)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
        context.ranks.close()


@contextmanager
def _working_folder(argv: list[str], context: RunContext) -> Iterator[Path]:
    """Provide the folder in which the program starts; remove what was placed in it afterwards.

    An attempt that lost its claim removes nothing: the folder is the next attempt's.
    """
    context.guard()
    results = context.run_dir.path.parents[2].resolve()
    folder = WorkingFolder(context.run_dir.work.absolute(), Path.cwd(), results)
    folder.place(argv)
    try:
        yield folder.start
    finally:
        with suppress(FencedRun, OSError):
            context.guard()
            folder.clear()


def command_line(run: Run) -> list[str]:
    """Return the program's argument vector. Raises :class:`BadConfigError`."""
    command = run.overrides.get(COMMAND_KEY)
    if not isinstance(command, list | tuple) or not command:
        found = f"is {command!r}" if COMMAND_KEY in run.overrides else "is not in the grid"
        raise BadConfigError(
            f"`command` {found}; expected a list: the program and its arguments",
            hint=f"write {command_meant(run.overrides)}",
        )
    if unquoted := next((item for item in command if isinstance(item, Mapping)), None):
        name = next(iter(unquoted))
        raise BadConfigError(
            f"`command`: found a mapping, {{{name}: …}}: YAML reads {{…}} without quotes as one",
            hint=f'write "{{{name}}}", in quotes, for the value of a key',
        )
    try:
        argv = arguments(command, {**run.overrides, "seed": run.seed, "threads": run.threads})
    except OrchestrateError as error:
        raise BadConfigError(str(error), hint=error.hint) from None
    if not argv:
        raise BadConfigError("`command`: no program is left of it: the values of the run are empty lists")
    return argv


def require_executable(argv: Sequence[str]) -> None:
    """Raise :class:`BadConfigError` unless the command's first word can be executed here."""
    if shutil.which(argv[0]) is None:
        script = shlex.quote(argv[0])
        run_by = f"chmod +x {script}, or name its interpreter first: [bash, {argv[0]}]"
        hint = run_by if os.path.isfile(argv[0]) else None
        raise BadConfigError(f"`command`: found no program {argv[0]!r} that can be executed", hint=hint)


def require_program(argv: Sequence[str]) -> None:
    """Raise :class:`BadConfigError` unless the file that the command runs exists."""
    script = program_file(argv)
    if script is None:
        return
    hint = "write the program's path relative to that folder, or an absolute one"
    if not os.path.exists(script):
        message = f"`command`: found no file {script!r} in {Path.cwd()}, where runs start"
        raise BadConfigError(message, hint=hint)
    if os.path.isdir(script) and not os.path.exists(os.path.join(script, "__main__.py")):
        raise BadConfigError(f"`command`: found the folder {script!r}, which holds no __main__.py", hint=hint)


def _variables(context: RunContext, checkpoint: CheckpointFile | None) -> dict[str, str]:
    """Return the variables of the program beside those of this process."""
    attempt, run = context.attempt, context.run
    variables = {
        SUBMIT_DIR: os.environ.get(SUBMIT_DIR, os.getcwd()),
        DESCRIPTION: str(context.run_dir.description_path),
        METRICS: str(attempt.inbox_metrics),
        CHECKPOINTS: str(attempt.inbox_checkpoints),
        SEED: str(run.seed),
        "ORCHESTRATE_THREADS": str(run.threads),
        IMPORTS: str(attempt.inbox_imports),
        # As for all runs: without a login or a network W&B would end the program, or make it wait.
        "WANDB_MODE": os.environ.get("WANDB_MODE", "offline"),
        **{name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }
    if checkpoint is not None:
        variables[RESUME] = str(checkpoint.path)
    elif (init := context.init) is not None:
        variables[INIT] = str(init)
    code, path = CodeDir.holding(Path(__file__)), os.environ.get("PYTHONPATH", "")
    if code is not None:
        # This program's packages are on the worker's path; a `jobs` of the user's own is to be found instead.
        path = os.pathsep.join(name for name in path.split(os.pathsep) if name != str(code.modules))
    variables["PYTHONPATH"] = f"{PROGRAM_HOOK}{os.pathsep}{path}" if path else str(PROGRAM_HOOK)
    return variables


def _start(argv: list[str], environment: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(parent)
        # Ignored, it marks processes that a shell of the program started in the background.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)

    try:
        return subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, cwd=folder, preexec_fn=prepare
        )
    except OSError as error:
        raise BadConfigError(f"cannot start {argv[0]!r}: {error.strerror}") from error


def _supervise(program: subprocess.Popen[bytes], inbox: Inbox, context: RunContext) -> _Exit:
    """Empty the inbox until the program has exited; return how it did.

    Stop it when the run is stopped or its time is up. One that stays longer than its grace is killed, and
    counts as interrupted. If a program on another node is the cause of a failure, raise its error.
    """
    stop: StopRequest | None = None
    killed = False
    while True:
        try:
            code = program.wait(0.0 if inbox.behind else _POLL_S)
        except subprocess.TimeoutExpired:
            inbox.take()
            inbox.log(_POLL_S)
        else:
            if stop is not None and not killed and code != INTERRUPTED:
                stop.await_others(inbox.take)
            inbox.take_all(ended=code == DONE and stop is None)
            if stop is None and code not in (DONE, INTERRUPTED) and -code not in FROM_OUTSIDE:
                _raise_if_cause(context.ranks.error())
            return _Exit(INTERRUPTED if killed and code < 0 else code, stop)
        if stop is None and (context.stopping or inbox.time.over):
            stop = _ask_to_leave(program, context)
        elif stop is None and context.ranks.failed:
            _end_with_ranks(program, inbox, context)
        if stop is not None:
            stop.attend()
            if stop.over or (context.stopping and context.grace_left == 0):
                killed = True
                program.kill()


def _ask_to_leave(program: subprocess.Popen[bytes], context: RunContext) -> StopRequest:
    """Ask the program to stop, here and on the other nodes."""
    urgent = GRACE_SHARE * grace_seconds(signal.SIGTERM)
    seconds = context.grace_left if context.stopping else urgent
    context.ranks.signal(signal.SIGTERM)
    return StopRequest(os.getppid(), program.pid, seconds, through=[os.getpid()])


def _end_with_ranks(program: subprocess.Popen[bytes], inbox: Inbox, context: RunContext) -> None:
    """End the program because one on another node failed, and raise that one's error.

    Not if the run is stopped or this program ends by itself meanwhile.
    """
    error = context.ranks.error()
    if error is None or context.stopping or program.poll() is not None:
        return
    program.kill()
    program.wait()
    inbox.take_all(ended=False)
    raise error


def _raise_if_cause(error: RankError | None) -> None:
    """Raise the error of a rank that did not fail by itself, so that no other rank's failure explains it."""
    if error is not None and error.reason is not Reason.CODE_ERROR:
        raise error


def _versions(imports: Path, trace: Trace, declared: Declared) -> dict[str, str]:
    """Return versions: this program's, those of imported packages, those that the program declared."""
    ours = provenance.versions(COMMAND)
    ours.pop("python")  # the worker's, maybe not the program's
    return {**ours, **imported_packages(imports, trace.program()[0]), **declared.versions}


def _judge(left: _Exit, context: RunContext, inbox: Inbox) -> None:
    """Raise the error that the program's exit means, unless it is done or its time was up."""
    asked = left.stop is not None and left.stop.handled
    code, reason = _first_failure(left.code, context.attempt)
    if inbox.time.over and (code in _OUT_OF_TIME or (left.stop is not None and left.stop.of_a_wrapper)):
        return
    if code == DONE and not (asked and context.stopping and not inbox.complete):
        return
    if context.stopping and (code in (DONE, INTERRUPTED) or code < 0):
        raise InterruptedRun(context.stop_signal)
    if code == INTERRUPTED:
        raise ProgramLeft(f"the program left by itself (exit code {INTERRUPTED}), to go on later")
    if reason.killed:
        raise RankError(reason.killed, Reason.KILLED)
    if code == -signal.SIGKILL:
        # This process dies in the same way, and the worker judges it as any killed run.
        os.kill(os.getpid(), signal.SIGKILL)
    if -code in FROM_OUTSIDE:
        raise RankError(f"the program was killed by {signal.Signals(-code).name}", Reason.KILLED)
    said = f": {reason.text}" if reason.text else ""
    if code in BAD_CONFIG:
        raise BadConfigError(f"the program refused its configuration (exit code {code}){said}")
    raise ProgramFailed(f"the program {how_it_ended(code)}{said}", reason.behind)


def _first_failure(code: int, attempt: AttemptDir) -> tuple[int, FailureReason]:
    """Return the exit code that counts, and the reason in the log: a launcher has a code of its own."""
    if code == _SHELL_KILLED:
        code = -signal.SIGKILL
    if code in (DONE, INTERRUPTED) or -code in FROM_OUTSIDE:
        return code, UNKNOWN
    reason = reason_in(attempt.log, raised(attempt.inbox_imports))
    return code if reason.code is None else reason.code, reason

"""Run the trainer's checks on a sweep in a separate process, before anything is submitted."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.config.grid.model import bare_key
from orchestrator.config.passed_checks import PassedCheck
from orchestrator.config.trainers import get_trainer, is_installed
from orchestrator.core.errors import ChecksFailedError, OrchestrateError
from orchestrator.core.machine import hardware
from orchestrator.core.machine.installation import install_here
from orchestrator.core.progress import report_step
from orchestrator.core.records import plain
from orchestrator.core.types import Plan, Run, Sweep, Value
from orchestrator.core.units import ALL_MEMORY, megabytes

LOCAL = "local"
_TAIL_LINES = 15
_MISSING = re.compile(r"No module named '?([\w]+)")
_PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class CheckProblem:
    """A fault found before any training. ``run_id``: one affected run; ``line`` is in the grid file."""

    run_id: str
    key: str | None
    message: str
    hint: str | None
    file: str
    line: int | None
    column: int | None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{place}: {self.message}{hint}"

    def to_json(self) -> dict[str, Value]:
        return asdict(self)


@dataclass(frozen=True)
class CheckReport:
    """The result of a check. ``structures``: the number of distinct configurations among the ``points`` runs.

    ``early``: a quick first check failed and the rest was skipped. ``warnings`` do not prevent a submission.
    """

    problems: tuple[CheckProblem, ...]
    structures: int
    points: int
    seconds: float
    early: bool = False
    warnings: tuple[CheckProblem, ...] = ()

    def require_passed(self) -> tuple[CheckProblem, ...]:
        """Return the warnings. Raises :class:`ChecksFailedError` if there are problems."""
        if self.problems:
            raise ChecksFailedError(self.problems)
        return self.warnings


def check_plan(plan: Plan, folder: Path | None = None) -> CheckReport:
    """Check the runs to be submitted now or later.

    ``folder``: where they start, the current one by default.
    """
    todo = {*plan.run_ids, *plan.waiting}
    if not todo:
        return CheckReport((), 0, 0, 0.0)
    runs = tuple(run for run in plan.sweep.runs if run.run_id in todo)
    partial = len(runs) < len(plan.sweep.runs)
    sweep = replace(plan.sweep, runs=runs, targets=(plan.target,))
    return check_sweep(sweep, partial=partial, folder=folder)


def check_sweep(
    sweep: Sweep, python: str = sys.executable, *, partial: bool = False, folder: Path | None = None
) -> CheckReport:
    """Validate every distinct structure and value of a sweep on the worker's side, without training.

    ``python``: the workers' interpreter. ``partial``: the grid has other runs too. ``folder``: where runs
    start, the current one by default. Raises :class:`OrchestrateError` if the check itself fails.
    """
    began = time.monotonic()
    runs = distinct(sweep.runs)
    request = {
        "trainer": sweep.trainer,
        "plugins": [asdict(plugin) for plugin in sweep.plugins],
        # Files and packages of other machines are invisible here.
        "elsewhere": any(target != LOCAL for target in sweep.targets),
        "memory": _memory_of_run(sweep),
        "seeds": len({run.seed for run in sweep.runs}) > 1,
        "progress": True,
    }
    spec = get_trainer(sweep.trainer).with_plugins(sweep.plugins)
    passed = PassedCheck.of(spec, runs, [python, str(folder), request])
    structures = passed and passed.structures()
    if structures is not None:
        answer: dict[str, Value] = {"problems": [], "structures": structures}
    else:
        request["runs"] = [plain(run) for run in runs.values()]
        answer = _ask(python, json.dumps(request), folder, f"checking configurations with {sweep.trainer}")
        if passed and not answer["problems"]:
            passed.record(answer["structures"])
    faults = [fault for fault in answer["problems"] if not (partial and fault["whole"])]
    faults += _shared_cores(sweep) or _beyond_physical_cores(sweep)
    problems, warnings = (
        _sorted((fault for fault in faults if fault["blocks"] is blocks), sweep) for blocks in (True, False)
    )
    early = any(fault["early"] for fault in answer["problems"])
    seconds = time.monotonic() - began
    counted = answer["structures"], len(sweep.runs)
    return CheckReport(problems, *counted, seconds, early, warnings)


def distinct(runs: Iterable[Run]) -> dict[str, Run]:
    """Return the first run of each configuration; runs that differ in the seed alone have the same one."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(json.dumps([run.overrides, run.threads, run.target, run.loggers]), run)
    return first


def refuse_wrong_names(sweep: Sweep) -> None:
    """Raise :class:`ChecksFailedError` for names, keys and values that the trainer's first look refuses.

    Loads nothing that trains, and so says nothing where the trainer has no first look, or is not installed;
    nor of sweeps with plug-ins, which bring names of their own.
    """
    spec = get_trainer(sweep.trainer)
    if not spec.first_look or sweep.plugins or not is_installed(spec):
        return
    runs = [plain(run) for run in distinct(sweep.runs).values()]
    request = {"trainer": sweep.trainer, "plugins": [], "runs": runs, "early": True}
    answer = _ask(sys.executable, json.dumps(request), None, f"checking names with {sweep.trainer}")
    if problems := _sorted(answer["problems"], sweep):
        raise ChecksFailedError(problems)


def _sorted(faults: Iterable[Mapping[str, Value]], sweep: Sweep) -> tuple[CheckProblem, ...]:
    problems = (_located(fault, sweep) for fault in faults)
    return tuple(sorted(problems, key=lambda problem: (problem.line is None, problem.line, problem.column)))


def _shared_cores(sweep: Sweep) -> list[dict[str, Value]]:
    """Return a warning if the grid requests fewer cores for a run than it has processes and threads."""
    for run in sweep.runs:
        needs = sweep.needs_of(run)
        occupied = get_trainer(run.trainer).resources_of(run, needs.nodes).cpus_per_task
        if occupied > needs.cpus_per_task:
            return _warning(
                run,
                f"resources.cpus_per_task: found {needs.cpus_per_task}, and the processes of a run occupy "
                f"{occupied}: they will share cores and be slow",
                f"write cpus_per_task: {occupied}, or remove it for what each run occupies",
            )
    return []


def _beyond_physical_cores(sweep: Sweep) -> list[dict[str, Value]]:
    """Return a warning if a run's processes and threads are more than this machine's physical cores.

    Runs for which all its cores together are too few are skipped, with the reason.
    """
    if LOCAL not in sweep.targets:
        return []
    there, most = hardware.physical_cores(), hardware.whole_cores()
    for run in sweep.runs:
        occupied = get_trainer(run.trainer).resources_of(run).cpus_per_task
        if there < occupied <= most and run.target in (None, LOCAL):
            return _warning(
                run,
                f"the processes of a run take {occupied} cores with their threads, and this machine has "
                f"{there} physical ones: they will share cores and be slow",
                "set fewer actors or threads, or start it on a larger machine: --on PROFILE",
            )
    return []


def _warning(run: Run, message: str, hint: str) -> list[dict[str, Value]]:
    return [{"run_id": run.run_id, "key": None, "message": message, "hint": hint, "blocks": False}]


def _memory_of_run(sweep: Sweep) -> int | None:
    """Return the megabytes that the grid requests for a run, or a run's share of this machine."""
    needs = sweep.resources
    if needs.mem is not None and megabytes(needs.mem) < ALL_MEMORY:
        return megabytes(needs.mem) * needs.nodes
    machine = hardware.memory_mb()
    if machine is None or any(target != LOCAL for target in sweep.targets):
        return None
    return machine // max(1, min(len(sweep.runs), hardware.whole_cores() // needs.cpus_per_task))


def _ask(python: str, request: str, folder: Path | None, step: str) -> dict[str, Value]:
    # -P: ignore a folder named jobs in the current one.
    argv = [python, "-P", "-m", "jobs.check"]
    report_step(step)
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as error:
            where = f" in {folder}" if folder else ""
            raise OrchestrateError(f"cannot start {python}{where}: {error.strerror}") from None
        lines, ended = _lines_of(process, request, step)
        if ended:
            raise OrchestrateError(f"the check took more than {_PATIENCE_SECONDS} s and was ended")
        if process.returncode != 0:
            errors.seek(0)
            tail = errors.read().strip().splitlines()[-_TAIL_LINES:]
            raise _check_failure(python, process.returncode, tail)
    answer: dict[str, Value] = json.loads(lines[-1])
    return answer


def _lines_of(process: subprocess.Popen[str], request: str, step: str) -> tuple[list[str], bool]:
    """Send the request, report progress, return what is left of the output and whether time was up."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(_PATIENCE_SECONDS, end)
    timer.start()
    lines: list[str] = []
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # its exit code says why
            stdin.write(request)
        for line in process.stdout:
            if line.startswith("["):
                report_step(step, *json.loads(line))
            else:
                lines.append(line)
        process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
    return lines, late.is_set()


def _check_failure(python: str, code: int, tail: Sequence[str]) -> OrchestrateError:
    missing = _MISSING.search(tail[-1]) if tail else None
    if missing is None:
        return OrchestrateError("\n".join([f"the check ended with exit code {code}:", *tail]))
    return OrchestrateError(
        f"the trainer needs the Python package {missing[1]}, which {python} does not have",
        hint=f"install what training needs: {install_here('train')}",
    )


def _located(fault: Mapping[str, Value], sweep: Sweep) -> CheckProblem:
    key, run_id = fault["key"], fault["run_id"]
    name = "" if key is None else bare_key(key)
    at = (
        sweep.own_positions.get(run_id, {}).get(name) or sweep.positions.get(key) or sweep.positions.get(name)
    )
    line, column, file = at if at is not None else (None, None, "")
    return CheckProblem(run_id, key, fault["message"], fault["hint"], file or sweep.source, line, column)

"""Lines of `setup` and `modules` that fail end the job before its worker begins, with the line as reason."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.backends.script import Setting
from orchestrator.backends.setup_lines import visibly_failing
from orchestrator.backends.slurm import SlurmBackend
from orchestrator.config.profiles import find_profile
from orchestrator.core.records import plain
from orchestrator.core.types import Array, Job, Reason, Resources, RunState
from orchestrator.rundir import FrozenCode, IndexRow, SweepDir
from orchestrator.status.liveness import Moment
from orchestrator.status.survey import RunStatus, survey
from tests.helpers import enter

TOKEN, RUN = "0001-0001.0", "0" * 16
# Stands for a worker that takes its token.
WORKER = ("sh", "-c", "echo 'the worker begins' in ${INNER-none}; >>results/s/journals/0001-0001.0.jsonl")
FILES = {
    "good.sh": "false\n[ -n '' ] && echo\nexport INNER=good",
    "bad.sh": "export INNER=bad\nls /nowhere",
    ".bashrc": "export INNER=rc\n[ -f /nowhere ] && source /nowhere",
    "functions.sh": "act() { false; [ $1 = base ]; }",
    # As Environment Modules 3 load what is not there, and what is.
    "old_modules.sh": 'module() { [ "$2" != cuda ] || export LOADEDMODULES=cuda/12; '
    '[ "$2" = cuda ] || echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate $2" >&2; }',
}


def run_job(
    folder: Path, *setup: str, modules: tuple[str, ...] | None = None, python: tuple[str, ...] = WORKER
) -> tuple[str, RunStatus]:
    """What a job with these lines printed, and the state of its run afterwards."""
    for name, text in FILES.items():
        (folder / name).write_text(f"{text}\n")
    sweep_dir = SweepDir(folder / "results", "s")
    sweep_dir.create()
    code = FrozenCode("c", folder, (folder,), folder, folder)
    job = Job(TOKEN, "s", "cpu", (RUN,), 1, Resources())
    entered = {"backend": "slurm", "target": "cpu", "jobs": [plain(job)], "job_ids": {}, "skipped": {}}
    enter(sweep_dir, "submission", {"time": 1.0, "grid": 1, "on": "cpu", "trainer": "command", **entered})
    profile = replace(find_profile("cpu"), setup=setup, modules=modules, python=python)
    script = folder / "job.sh"
    script.write_text(
        SlurmBackend(profile).render(Array("0001-0001", (job,), Resources()), Setting(sweep_dir, code))
    )
    with open(sweep_dir.worker_output(TOKEN), "ab") as output:
        output.write(b"of an earlier start\n")
        output.flush()
        variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "SLURMD_NODENAME": "node7"}
        subprocess.run(
            ["bash", script],
            cwd=folder,
            env={**variables, "SLURM_ARRAY_TASK_ID": "0"},
            stdout=output,
            stderr=output,
        )
    logs = sweep_dir.read_journals()
    assert not any(log.damaged for log in logs)
    rows = [IndexRow(RUN, True, {})]
    seen = survey(rows, sweep_dir.read_ledger(), logs, Moment(lambda _: None, 2.0, 300.0))
    return sweep_dir.worker_output(TOKEN).read_text(), seen.statuses[RUN]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["conda activate marl"], "conda activate marl: exit code 127: conda: command not found"),
        (["source /nowhere/bin/activate"], "source /nowhere/bin/activate: exit code 1: /nowhere/bin"),
        (["source bad.sh"], "source bad.sh: exit code 2: ls: cannot access '/nowhere'"),
        (["source functions.sh", "act base", 'act marl  # "é\\'], 'act marl  # "'),
        (["if true; then", "  false", "fi"], "false: exit code 1 (on"),
        (["set -e", "false"], "false: exit code 1 (on"),
        (["set -u", "echo $NOTHING"], "echo $NOTHING: exit code 1: NOTHING: unbound variable"),
        (["[ -d /nowhere ] || exit 3"], "exit 3: exit code 3"),
        (["source old_modules.sh", "module load torch"], "module load torch: exit code 1: ModuleCmd_Load"),
        (["nosuch marl && export A=1  # it's"], "nosuch marl && export A=1: exit code 127: nosuch: command"),
        (
            ["if true; then", "  cd /nowhere && export A=1", "fi"],
            "cd /nowhere && export A=1: exit code 1: cd:",
        ),
        (["cd /nowhere && \\", "  export A=1"], "cd /nowhere && export A=1: exit code 1: cd: /nowhere"),
        (["cd /nowhere && export A=1; export B=2 # it's"], "cd /nowhere && export A=1; export B=2: exit"),
        (["nosuch | tail -n 1; echo"], "nosuch | tail -n 1; echo: exit code 127: nosuch: command not found"),
        (["nosuch $(echo 1) | cat"], "nosuch $(echo 1) | cat: exit code 127: nosuch: command not found"),
        (["[ -d / ] && cd /nowhere && export A=1"], "[ -d / ] && cd /nowhere && export A=1: exit code 1"),
        (["for m in a b; do nosuch $m && echo; done"], "for m in a b; do nosuch $m && echo; done: exit"),
        (["{ nosuch && echo; }"], "{ nosuch && echo; }: exit code 127: nosuch: command not found"),
        (
            ["source old_modules.sh", "module purge; module load torch"],
            "module purge; module load torch: exit code 1: ModuleCmd_Load",
        ),
        (["source old_modules.sh", "for m in cuda torch; do module load $m; done"], "for m in cuda torch"),
        (["export A=1 B=$(nosuch)"], "export A=1 B=$(nosuch): exit code 127: nosuch: command not found"),
        (["export A=$(dirname $(nosuch x))"], "export A=$(dirname $(nosuch x)): exit code 1: "),
        (["readonly A=/x/`nosuch`"], "readonly A=/x/`nosuch`: exit code 127: nosuch: command not found"),
        (['eval "$(nosuch "$(echo 1)")"'], 'eval "$(nosuch "$(echo 1)")": exit code 127: nosuch: command'),
        (["nosuch 2>&1 | tee m.log"], "nosuch 2>&1 | tee m.log: exit code 127: nosuch: command not found"),
        (
            ["source old_modules.sh", "module load torch 2>&1 | tee m.log"],
            "module load torch 2>&1 | tee m.log: exit code 1: ModuleCmd_Load",
        ),
        (["export A=$(nosuch)"], "export A=$(nosuch): exit code 127: nosuch: command not found"),
        (['eval "$(nosuch hook)"'], 'eval "$(nosuch hook)": exit code 127: nosuch: command not found'),
        (["bash -c 'exit 255'"], "bash -c 'exit 255': exit code 255"),
        (["false || exit 137"], "exit 137: exit code 137"),
        (["cd /nowhere && [ -f x ] && export A=1"], "cd /nowhere && [ -f x ] && export A=1: exit code 1"),
        (["cd / && [ -d / ] && nosuch"], "cd / && [ -d / ] && nosuch: exit code 127"),
        (["[ -d / ] && cd / && [ -d / ] && nosuch && echo"], "[ -d / ] && cd / && [ -d / ] && nosuch"),
    ],
)
def test_a_line_that_fails_is_the_reason_and_no_worker_begins(
    tmp_path: Path, lines: list[str], reason: str
) -> None:
    printed, status = run_job(tmp_path, *lines, "export LATER=1")
    assert "the worker begins" not in printed
    assert (status.state, status.reason) == (RunState.PENDING, Reason.SETUP)
    assert str(status.message).startswith(reason)
    assert str(status.message).endswith("(on node7)")


@pytest.mark.parametrize(
    ("lines", "inner"),
    [
        ([], "none"),
        (["source good.sh"], "good"),
        (["cd . && [ -f .nowhere ] && source .nowhere", "export A=1 && [ $A = 2 ] && x"], "none"),
        (["[ -d / ] && cd . && which nosuch && nosuch && echo; export INNER=a"], "a"),
        (["source bad.sh || true"], "bad"),
        (["source ~/.bashrc"], "rc"),
        (
            ["[ -f /nowhere ] && source /nowhere", "false | true || true", "if false; then", "  false", "fi"],
            "none",
        ),
        (
            ["cd /nowhere && export INNER=no || true", "yes | head -n 1", "export INNER=$(echo 'a b')"],
            "a b",
        ),
        (["source good.sh && export INNER=$INNER-1 # don't", 'eval "$(printf "A=1\\nINNER=e")"'], "e"),
        (["command -v nosuch && export A=1", "cat >in <<E", "cd /nowhere && x", "E", "INNER=$(<in)"], "none"),
        (
            ["if cd /nowhere &&", "  true; then", "  false", "fi", "# don't", "export INNER=$(echo 1)/$A"],
            "1/",
        ),
        (["source functions.sh", "act base", "source old_modules.sh", "module load cuda"], "none"),
        (["echo a | grep -q b && cd /nowhere", "pgrep -f 'no such' && x; export INNER=a"], "a"),
        (["source ~/.bashrc; export A=1 INNER=$A$(echo 2)", "ulimit -n 999999999"], "2"),
        (
            ["echo a | while read -r A; do [ $A = b ] && x; echo; done", "[[ $A && b ]] && cd /nowhere && x"],
            "none",
        ),
        (
            ["f() {", "  [ -d /nowhere ] && cd /nowhere && x", "}", "f || export INNER=$'a\\'b && c'"],
            "a'b && c",
        ),
    ],
)
def test_lines_that_work_keep_their_effect(tmp_path: Path, lines: list[str], inner: str) -> None:
    printed, status = run_job(tmp_path, *lines)
    assert f"the worker begins in {inner}\n" in printed
    assert status.reason is None


@pytest.mark.parametrize(
    "line", ["&& module load x", "a; && b", "a && && b", "if true; then && x; fi", "| x"]
)
def test_a_line_that_bash_cannot_read_stays_as_it_is(line: str) -> None:
    assert list(visibly_failing([line])) == [line]


def test_a_long_list_of_variables_is_read_in_no_time() -> None:
    paths = "".join(f'"$A{number}":$B{number},' for number in range(200))
    assert list(visibly_failing([f"echo {paths}"])) == [f"echo {paths}"]


def test_a_module_without_the_command_is_the_reason(tmp_path: Path) -> None:
    _, status = run_job(tmp_path, modules=("cuda/12.4",))
    assert str(status.message).startswith("module load cuda/12.4: exit code 127: module: command not found")


def test_a_python_that_is_not_there_is_the_reason(tmp_path: Path) -> None:
    _, status = run_job(tmp_path, python=("/nowhere/python",))
    assert status.reason is Reason.SETUP
    assert str(status.message).startswith("/nowhere/python -m jobs.worker: exit code 127")


def test_a_worker_whose_journal_is_compacted_began_all_the_same(tmp_path: Path) -> None:
    """Failed runs end the worker with 1; a command may compact its journal before the script looks."""
    _, status = run_job(tmp_path, python=("sh", "-c", ': >"$ORCHESTRATE_MAILBOX"; exit 1'))
    assert status.reason is None
    assert list((tmp_path / "results/s/journals").glob("*.jsonl")) == []

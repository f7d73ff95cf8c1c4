"""Slurm's doctor: what each check says, and that nothing programs print can end it."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.backends.skypilot import doctor
from orchestrator.backends.slurm.doctor.cluster_facts import associations, gpus, node_groups, qualities
from orchestrator.backends.slurm.parse import all_partitions
from orchestrator.config.profiles import parse_profile
from orchestrator.core import findings as core_findings
from orchestrator.core.types import CommandAnswer
from orchestrator.ui.doctor import Finding, Verdict, diagnose
from tests.helpers import ROOT
from tests.libraries import well

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo")

# What a cluster answers when all is well, by the beginning of the question.
CONFIG = "ClusterName = test\nMaxArraySize = 1001\nMaxJobCount = 10000\nKillWait = 30 sec\nJobRequeue = 1\n"
WELL = {
    "scontrol ping": "Slurmctld(primary) at here is UP",
    "scontrol show config": CONFIG,
    "scontrol --oneliner show partition": (
        "PartitionName=cpu AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES MaxTime=1-00:00:00 "
        "PreemptMode=OFF State=UP TotalNodes=12\n"
        "PartitionName=gpu AllowAccounts=lab DenyQos=slow AllocNodes=ALL Default=NO MaxTime=UNLIMITED "
        "PreemptMode=REQUEUE State=UP TotalNodes=1\n"
    ),
    "sinfo": "cpu*|idle|10|64|256000|(null)|skylake,ib\ncpu*|down*|2|64|256000|(null)|skylake\n"
    "gpu|mixed|1|32|128000|gpu:l4:4(S:0-1)|(null)\n",
    "sacctmgr -n -P show user": "other|far|far||high||||\n"
    "test|lab|lab||normal,long||||\ntest|lab|poor||normal||||\n",
    "sacctmgr -n -P show qos": "normal|||\nlong|2|5|1-00:00:00\n",
    "sbatch --version": "slurm 24.05.1",
    "sbatch --test-only": "",
    "sacct": "",
}
FULL = """
account: lab
partition: cpu
qos: long
constraint: skylake&ib
cpus_per_task: 4
mem: 8G
time: "8:00:00"
setup: [ulimit -c 0]
"""


@pytest.fixture
def login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on PATH with a program for each of Slurm's commands."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for program in PROGRAMS:
        put_program(folder, program, "exit 1")
    return folder


def put_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def answering(answers: Mapping[str, str | CommandAnswer]) -> Callable[[Sequence[str]], CommandAnswer]:
    """Stands in for Slurm's commands; raises at a command without a prepared answer."""

    def ask(argv: Sequence[str]) -> CommandAnswer:
        asked = " ".join(argv)
        answer = next((said for begin, said in answers.items() if asked.startswith(begin)), None)
        assert answer is not None, asked
        return answer if isinstance(answer, CommandAnswer) else CommandAnswer(0, answer)

    return ask


def findings(
    tmp_path: Path, profile: str | None = FULL, answers: Mapping[str, str | CommandAnswer] | None = None
) -> dict[str, Finding]:
    """By name, on a cluster that is well but for ``answers``."""
    parsed = None if profile is None else parse_profile(profile, "lab.yaml", "lab")
    answers = answers or {}
    ask = answering({**answers, **{asked: said for asked, said in WELL.items() if asked not in answers}})
    found = diagnose(tmp_path / "results", parsed, ask, well)
    return {finding.name: finding for finding in found}


def verdicts(found: Mapping[str, Finding], *names: str) -> list[str]:
    return [found[name].verdict.value for name in names]


def test_all_is_well(login_node: Path, tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert {one.name for one in found.values() if one.verdict is not Verdict.OK} <= {
        "Training in jobs",
        "Space",
        "W&B",
        "StarCraft II",
    }
    assert found["Partition"].found == "cpu (the default) is up, 12 nodes, jobs of up to 1-00:00:00"
    assert found["Account"].found == "lab, QOS long"
    assert found["Nodes"].found == "10 of 12 can run such a job now or later"
    assert "5 of yours, 2 of yours run at once" in found["Limits"].found
    assert found["Training in jobs"].fix == (
        f"orchestrate sweep --grid sweeps/validate.yaml --on lab.yaml --results {tmp_path / 'results'}"
    )
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("change", "name", "said", "fix"),
    [
        ("partition: cpus", "Partition", "no cpus", "`partition:` in lab.yaml to one of cpu, gpu"),
        ("time: 2-0", "Partition", "after 1-00:00:00", '`time:` in lab.yaml to "1-00:00:00"'),
        ("account: poor\npartition: gpu", "Partition", "not open to account poor", "`partition:`"),
        ("qos: slow\npartition: gpu", "Partition", "not open to QOS slow", "`partition:`"),
        ("account: rich", "Account", "rich is none of yours", "`account:` in lab.yaml to one of lab, poor"),
        ("qos: fast", "Account", "QOS fast is none of lab's", "one of normal, long"),
        ("partition: gpu\ntime: 2-0", "Account", "after 1-00:00:00", "`time:`"),
        ("gpus: 1", "Nodes", "no node of cpu has a GPU", "`partition:`"),
        ("partition: gpu\nconstraint:\ngpus: h100:2", "Nodes", "of type h100", "`gpus:` in lab.yaml to l4:2"),
        ("partition: gpu\nconstraint:\ngpus: 5", "Nodes", "more than 4", "4 or less"),
        ("constraint: zen", "Nodes", "no node has feature zen", "what there is: ib, skylake"),
        ("partition: gpu", "Nodes", "feature skylake, ib", "leave `constraint` out"),
        ("cpus_per_task: 65", "Nodes", "more than 64 cores", "64 or less"),
        ("mem: 300G", "Nodes", "more than 256000M", "256000M or less"),
        ("setup: ['if true']", "Setup", "syntax error", "`setup` in lab.yaml"),
        (
            "setup: [source /no/such/activate]",
            "Setup",
            "source /no/such/activate: exit code 1: /no/such/activate: No such file",
            "`setup` or `modules` in lab.yaml",
        ),
        ("setup:\nmodules: [cuda]", "Setup", "module: command not found", "`bash --login`"),
        ("setup: [conda activate marl]", "Setup", "conda activate marl: exit code 127", "`setup`"),
        ("setup:\npython: pithon", "Python in jobs", "pithon is not on PATH", "`python` in lab.yaml"),
    ],
)
def test_what_the_profile_asks_for_in_vain(
    login_node: Path, tmp_path: Path, change: str, name: str, said: str, fix: str
) -> None:
    keys = {line.partition(":")[0] for line in change.splitlines()}
    rest = [line for line in FULL.splitlines() if line.partition(":")[0] not in keys]
    finding = findings(tmp_path, "\n".join([*rest, change]))[name]
    assert finding.verdict in (Verdict.PROBLEM, Verdict.WARNING)
    assert said in finding.found
    assert finding.fix is not None
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("asked", "answer", "name", "verdict", "said"),
    [
        (
            "scontrol ping",
            CommandAnswer(1, "Slurmctld(primary) at here is DOWN"),
            "Slurm controller",
            "problem",
            "DOWN",
        ),
        (
            "scontrol ping",
            CommandAnswer(None, "", "no answer within 15 s"),
            "Slurm controller",
            "problem",
            "15 s",
        ),
        (
            "sacct -n",
            CommandAnswer(1, "", "Slurm accounting storage is disabled"),
            "Accounting",
            "ok",
            "keeps none",
        ),
        (
            "sacct -n",
            CommandAnswer(1, "", "sacct: error: refused"),
            "Accounting",
            "warning",
            "sacct: refused",
        ),
        ("sacctmgr", CommandAnswer(1, "", "no"), "Account", "not here", "sacctmgr: no"),
        ("sacctmgr", "", "Account", "not here", "demands none"),
        ("sinfo", CommandAnswer(1, ""), "Nodes", "not here", "shows none"),
        ("sinfo", "cpu*|down*|12|64|256000|(null)|skylake,ib\n", "Nodes", "warning", "0 of 12"),
        ("scontrol show config", CommandAnswer(1, ""), "Limits", "not here", "does not answer"),
        ("scontrol show config", CONFIG.replace("1001", "11"), "Limits", "ok", "arrays of up to 11 jobs"),
        ("sacctmgr -n -P show qos", "long||0|\n", "Limits", "problem", "0 of yours"),
        ("scontrol show config", CONFIG + "JobRequeue = 0\n", "Requeueing", "ok", "JobRequeue=0"),
        ("scontrol show config", CONFIG + "KillWait = 2 sec\n", "Time to save", "warning", "2 s before"),
        (
            "sbatch --test-only",
            CommandAnswer(1, "", "error: --mem is not for you"),
            "Script",
            "problem",
            "not for you",
        ),
    ],
)
def test_what_the_cluster_may_say(
    login_node: Path,
    tmp_path: Path,
    asked: str,
    answer: str | CommandAnswer,
    name: str,
    verdict: str,
    said: str,
) -> None:
    finding = findings(tmp_path, answers={asked: answer})[name]
    assert finding.verdict.value == verdict
    assert said in finding.found
    assert (finding.fix is None) == (verdict in ("ok", "not here"))


def test_a_refused_option_can_be_forbidden_and_a_refusal_points_at_its_cause(
    login_node: Path, tmp_path: Path
) -> None:
    refuses = {"sbatch --test-only": CommandAnswer(1, "", "sbatch: error: --mem is not for you")}
    assert "`forbid: [mem]` to lab.yaml" in (findings(tmp_path, answers=refuses)["Script"].fix or "")
    fix = findings(tmp_path, FULL.replace("cpu\n", "no\n"), answers=refuses)["Script"].fix
    assert fix == "solve the problems above first"


def test_a_partition_that_cannot_be_used(login_node: Path, tmp_path: Path) -> None:
    said = WELL["scontrol --oneliner show partition"]
    for old, new, found in (
        ("State=UP", "State=DRAIN", "cpu is drain"),
        ("TotalNodes=12", "TotalNodes=0", "cpu has no nodes"),
    ):
        answers = {"scontrol --oneliner": said.replace(old, new)}
        assert findings(tmp_path, answers=answers)["Partition"].found == found
    nameless = FULL.replace("partition: cpu\n", "")
    found = findings(tmp_path, nameless, {"scontrol --oneliner": said.replace("Default=YES", "Default=NO")})
    assert found["Partition"].found == "this cluster has no default one"
    found = findings(tmp_path, answers={"scontrol --oneliner": said.replace("=OFF", "=CANCEL")})
    assert found["Requeueing"].verdict is Verdict.WARNING
    found = findings(
        tmp_path, answers={"scontrol --oneliner": said.replace("AllocNodes=ALL", "AllocNodes=login")}
    )
    assert found["Jobs submit jobs"].verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "More runs than that share 5 jobs"),
        ("pack: 1", "a job that ends submits the next"),
        ("pack: 1\nmax_jobs: 1", "a job that ends submits the next"),
        ("pack: 1\nfeed: false", "run `orchestrate sweep` again"),
        ("max_jobs: 1", "All runs share one job"),
    ],
)
def test_what_a_short_queue_means(login_node: Path, tmp_path: Path, more: str, said: str) -> None:
    assert said in findings(tmp_path, FULL + more)["Limits"].found


def test_a_job_that_counts_itself_submits_no_other(login_node: Path, tmp_path: Path) -> None:
    answers = {"sacctmgr -n -P show qos": "long||1|\n"}
    found = findings(tmp_path, FULL + "pack: 1", answers=answers)["Limits"].found
    assert "A job that ends still counts: run `orchestrate sweep` again" in found


def test_the_page_explains_every_line(login_node: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)[2:]
    slurm, clouds = rows[: rows.index("line")], rows[rows.index("line") + 2 :]
    assert slurm == list(findings(tmp_path))
    source = Path(doctor.__file__).read_text()  # tests/sky/test_doctor.py has SkyPilot's answers
    assert [name for name in clouds if f'"{name}"' not in source] == []


def test_without_a_profile_the_cluster_is_looked_at_all_the_same(login_node: Path, tmp_path: Path) -> None:
    found = findings(tmp_path, None)
    assert "Partition" not in found
    assert verdicts(found, "Slurm controller", "Limits", "Profile") == ["ok", "ok", "not here"]


def test_programs_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    found = findings(tmp_path, None)
    assert verdicts(found, "git", "Slurm") == ["warning", "not here"]
    found = findings(tmp_path)
    assert verdicts(found, "Slurm commands", "All other checks") == ["problem", "not here"]
    for program in ("sbatch", "squeue", "scontrol"):
        put_program(folder, program, "")
    assert findings(tmp_path)["Slurm commands"].found == "scancel not on PATH"
    put_program(folder, "scancel", "")
    found = findings(tmp_path)
    assert verdicts(found, "Slurm commands", "Slurm controller") == ["warning", "ok"]


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        "exit 3",
        "kill -9 $$",
        "cat NOISE",
        "cat NOISE >&2; exit 1",
    ],
)
def test_programs_that_hang_fail_or_print_anything(
    login_node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """First all of them; then the others of a controller that answers."""
    noise = tmp_path / "noise"
    # The word alone, as it turns up in random bytes, is no answer of a controller.
    noise.write_bytes(random.Random(0).randbytes(9999) + b" UP ")
    script = script.replace("NOISE", str(noise))
    if script.startswith("sleep"):  # the others are given all the time that a busy machine takes
        monkeypatch.setattr(core_findings, "PATIENCE_S", 1.0)
    profile = parse_profile(FULL, "lab.yaml", "lab")
    for program in PROGRAMS:
        put_program(login_node, program, script)
    found = {one.name: one for one in diagnose(tmp_path, profile, probe=well)}
    assert verdicts(found, "Slurm controller", "All other checks") == ["problem", "not here"]
    put_program(login_node, "scontrol", f'[ "$1" = ping ] && exec echo ctl is UP\n{script}')
    found = {one.name: one for one in diagnose(tmp_path, profile, probe=well)}
    assert verdicts(found, "Slurm controller", "Limits", "Partition") == ["ok", "not here", "not here"]
    assert found["Script"].verdict is (Verdict.OK if script.endswith("noise") else Verdict.PROBLEM)
    assert all(text.isprintable() for one in found.values() for text in (one.found, one.fix or ""))


def test_a_program_that_cannot_be_started(
    login_node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(login_node))
    for program in PROGRAMS:
        (login_node / program).write_text("no program")
    profile = parse_profile(FULL, "lab.yaml", "lab")
    found = {one.name: one for one in diagnose(tmp_path, profile, probe=well)}
    assert "cannot be started: Exec format error" in found["Slurm controller"].found


LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from([line for said in WELL.values() for line in said.splitlines()]),
        st.sampled_from(WELL["sinfo"].splitlines()).map(
            lambda line: line.replace("64", "").replace("1", "²")
        ),
        st.lists(
            st.sampled_from(["", "gpu:", "gpu:l4:", "=", "MaxTime=", "-1", "9" * 30, "²"]), max_size=9
        ).map("|".join),
    ),
    max_size=4,
).map("\n".join)
ANSWERS = st.builds(CommandAnswer, st.sampled_from([0, 0, 0, 1, None]), LINES, LINES)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([asked for asked in WELL if asked != "scontrol ping"]), ANSWERS))
def test_nothing_that_is_answered_ends_it(
    login_node: Path, tmp_path: Path, answers: dict[str, CommandAnswer]
) -> None:
    found = findings(tmp_path, FULL.replace("setup: [ulimit -c 0]\n", "gpus: l4:1\n"), answers)
    assert list(found)[-1] == "Training in jobs"


@given(st.text() | LINES)
def test_parsers_take_any_text(text: str) -> None:
    groups = node_groups(text)
    assert all(group.cpus >= 0 and group.mem >= 0 for group in groups)
    for parse in (all_partitions, qualities, lambda text: associations(text, ""), gpus):
        parse(text)


def test_resources_of_nodes() -> None:
    assert gpus("gpu:l4:2(S:0-1),lscratch:100") == {"l4": 2}
    assert gpus("gpu:2,gpu:a100:4(S:0,1)") == {"": 2, "a100": 4}
    assert gpus("gpu:a100-sxm4-80gb:8") == {"a100-sxm4-80gb": 8}
    assert gpus("gpu") == {"": 1}
    assert gpus("(null)") == gpus("tpu:4") == {}

"""The scripts that are submitted, whole, as golden files; read them in the diff."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.backends.script import Setting
from orchestrator.backends.slurm import SlurmBackend
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Array, Job, Resources
from orchestrator.rundir import FrozenCode, SweepDir

GOLDEN = Path(__file__).parents[3] / "golden"
HOSTILE = '/data/it\'s 100% "ours"; $(id) `id` %A_%a é/'
PLAIN = Resources(cpus_per_task=2, mem="2G", time="0:30:00")
CASES = {
    "cpu": find_profile("cpu"),
    "gpu": find_profile("gpu"),
    "jean_zay_v100": replace(find_profile("jean-zay-v100"), account="abc@v100"),
    "jean_zay_a100": replace(find_profile("jean-zay-a100"), account="abc@a100"),
    "chain": replace(find_profile("cpu"), requeue=False, chain=3, array_limit=2),
    "nodes": replace(find_profile("gpu"), name="nodes"),
    "hostile": Profile(
        "hostile",
        "hostile.yaml",
        account="a b\"c'd\\e%f$g",
        options=(("licenses", "x y#z"), ("exclusive", None)),
        modules=("weird name;ls",),
        setup=("source /some/where/activate",),
        python=("apptainer", "exec", "/my images/i.sif", "python"),
        environment={"GREETING": 'it\'s $HOME and "more" \\ `id`'},
        scratch='$JOBSCRATCH/a b"$(id)`id`',
    ),
}


def array_for(profile: Profile, *indices: int) -> Array:
    """Jobs of one run each with these indices, which ask for what the profile's have."""
    jobs = tuple(
        Job(f"0003-0001.{index}", "speed", profile.name, (f"{index:016x}",), 1, Resources())
        for index in indices
    )
    allocation = Resources(
        profile.cpus_per_task or PLAIN.cpus_per_task,
        profile.gpus or 0,
        profile.job_mem or PLAIN.mem,
        profile.time or PLAIN.time,
        nodes=3 if profile.name == "nodes" else 1,
    )
    return Array("0003-0001", jobs, allocation)


def setting_in(folder: str) -> Setting:
    top = Path(folder)
    code = top / "results" / "speed" / "code" / "0123456789abcdef"
    frozen = FrozenCode(code.name, code, (code / "ours", code / "tree"), code / "tree" / "sub", top / "sub")
    return Setting(SweepDir(top / "results", "speed"), frozen)


@pytest.fixture(autouse=True)
def _one_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/me/.venv/bin/python")


@pytest.mark.parametrize("name", CASES)
def test_the_whole_script(name: str, update_golden: bool) -> None:
    profile = CASES[name]
    folder = HOSTILE if name == "hostile" else "/home/me/project"
    script = SlurmBackend(profile).render(array_for(profile, 0, 1, 2, 5), setting_in(folder))
    golden = GOLDEN / f"slurm_{name}.sbatch"
    if update_golden:
        golden.write_text(script)
    assert script == golden.read_text()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_what_a_person_adds_comes_last() -> None:
    profile, setting = CASES["cpu"], setting_in("/home/me")
    array = array_for(profile, 0)
    script = SlurmBackend(profile, ["--reservation=a b", "--exclusive"]).render(array, setting)
    options = [line for line in script.split("\n") if line.startswith("#SBATCH")]
    assert options[-2:] == ['#SBATCH --reservation="a b"', "#SBATCH --exclusive"]


@pytest.mark.parametrize(
    ("typed", "problem", "told"),
    [
        ("--array=0-9", "array is set by the program itself", "`array_limit:`"),
        ("--arr=0-9", "array is set by the program itself", "`array_limit:`"),
        ("--no-req", "no-requeue is set by the program itself", "`requeue:`"),
        ("--requeue", "requeue is set by the program itself", "`requeue:`"),
        ("--signal=B:TERM@60", "signal is set by the program itself", "`signal:`"),
        ("--output=x", "output is set by the program itself", "dry-run"),
        ("--job-name=x", "job-name is set by the program itself", "dry-run"),
        ("-J x", "-J: job-name is set by the program itself", "dry-run"),
        ("--parsable", "parsable is set by the program itself", "dry-run"),
        ("--nodes=2", "nodes is what runs decide: a job has the nodes", "resources: {nodes: 2}"),
        ("--nodes", "nodes is what runs decide", "resources: {nodes: 2}"),
        ("-N2", "-N: nodes is what runs decide", "resources: {nodes: 2}"),
        ("-n4", "-n: ntasks is what runs decide", "resources: {nodes: 2}"),
        ("--ntasks=4", "ntasks is what runs decide", "resources: {nodes: 2}"),
        ("--ntasks-per-node=2", "ntasks-per-node is what runs decide", "resources: {nodes: 2}"),
        ("--tasks-per=2", "tasks-per-node is what runs decide", "resources: {nodes: 2}"),
        ("--gres=lscratch:1,gpu:2", "gres asks for GPUs", "`gpus:`"),
        ("--gpus-per-node=2", "gpus-per-node is what jobs are planned by", "`gpus:`"),
        ("--cpus-per-g=2", "cpus-per-gpu is what jobs are planned by", "`cpus_per_task:`"),
        ("-t5", "-t: time is what the sweep's jobs are planned by", "set `time:`"),
        ("-c 4", "-c: cpus-per-task is what the sweep's jobs are planned by", "`cpus_per_task:`"),
        ("--clusters=other", "clusters is set by the program itself", "dry-run"),
        ("--mem=4G", "mem is in `forbid`", "`forbid` in here.yaml"),
        ("--time=5", "jobs are planned by", "set `time:` in the profile"),
        ("--tim=5", "jobs are planned by", "set `time:` in the profile"),
        ("--cpus-per-task=2", "jobs are planned by", "set `cpus_per_task:`"),
        ("--exclude=cpu1", "jobs are planned by", "set `exclude:`"),
        ("-p", "expected an option", "--partition=x for -p x"),
        ("cpu", "expected an option", "in one word"),
        ("--", "expected an option", "in one word"),
    ],
)
def test_what_is_not_a_persons_to_pass_on(typed: str, problem: str, told: str) -> None:
    profile = Profile("here", "here.yaml", cpus_per_task=2, forbid=frozenset({"mem"}))
    with pytest.raises(OrchestrateError, match=problem) as caught:
        SlurmBackend(profile, [typed]).render(array_for(profile, 0), setting_in("/home/me"))
    assert caught.value.hint is not None
    assert told in caught.value.hint


def test_no_option_takes_nodes_away() -> None:
    """sbatch would let the last one win."""
    profile = Profile("nodes", "nodes.yaml")
    for given, typed in ((replace(profile, options=(("nodes", "1"),)), []), (profile, ["--node=1"])):
        with pytest.raises(OrchestrateError, match="runs of the grid need 3 nodes"):
            SlurmBackend(given, typed).render(array_for(given, 0), setting_in("/home/me"))


@pytest.mark.parametrize(
    "option",
    [
        "nodes=1",
        "ntasks=1",
        "partition=x",
        "gres=lscratch:10",
        "time-min=5",
        "mem-bind=local",
        "gpu-bind=none",
        "nice",
        "wckey=a",
    ],
)
def test_other_options_pass(option: str) -> None:
    profile = Profile("here", "here.yaml")
    script = SlurmBackend(profile, [f"--{option}"]).render(array_for(profile, 0), setting_in("/home/me"))
    assert f"#SBATCH --{option}\n" in script


def test_generic_resources_are_asked_for_in_one_line() -> None:
    """Of several lines sbatch takes the last, and the job would have no GPU."""
    options = (("gres", "lscratch:10"),)
    profile = Profile("here", "here.yaml", gpus=1, gpu_type="l4", gpu_option="gres", options=options)
    script = SlurmBackend(profile, ["--gres=shm:1"]).render(array_for(profile, 0), setting_in("/home/me"))
    assert re.findall(r"--gres.*", script) == ["--gres=gpu:l4:1,lscratch:10,shm:1"]


@pytest.mark.parametrize(
    ("mem", "expected"),
    [
        ("8G", "--mem-per-cpu=4G"),
        ("8192M", "--mem-per-cpu=4G"),
        ("16384M", "--mem=16384M"),
        ("0", "--mem=0"),
        (None, "--mem-per-cpu=4G"),
    ],
)
def test_a_job_that_is_to_have_more_memory_gets_it(mem: str | None, expected: str) -> None:
    profile = Profile("here", "here.yaml", cpus_per_task=2, mem_per_cpu="4G")
    array = replace(array_for(profile, 0), allocation=Resources(2, 0, mem, "1:00:00"))
    script = SlurmBackend(profile).render(array, setting_in("/home/me"))
    assert re.findall(r"--mem.*", script) == [expected]


def test_the_path_of_modules_does_not_grow_from_job_to_job(tmp_path: Path) -> None:
    setting = setting_in(str(tmp_path / "a [*] b"))
    script = SlurmBackend(CASES["cpu"]).render(array_for(CASES["cpu"], 0), setting)
    [lines] = re.findall(r"^ours=(?:.*\n)*?.*PYTHONPATH.*\n", script, re.MULTILINE)
    ours = f"{setting.code.path}/ours:{setting.code.path}/tree"
    for before, after in {
        None: ours,
        "/theirs": f"{ours}:/theirs",
        ours: ours,
        f"{ours}:/theirs": f"{ours}:/theirs",
        f"{ours}2": f"{ours}:{ours}2",
    }.items():
        given = {} if before is None else {"PYTHONPATH": before}
        done = subprocess.run(
            ["bash", "-uc", f"{lines}printenv PYTHONPATH"],
            env=given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{after}\n"


@pytest.mark.parametrize(
    ("folder", "problem"), [("/data/a\\b", "found a backslash"), ("/data/a\nb", "nothing invisible")]
)
def test_a_folder_that_sbatch_cannot_be_told(folder: str, problem: str) -> None:
    with pytest.raises(OrchestrateError, match=problem):
        SlurmBackend(CASES["cpu"]).render(array_for(CASES["cpu"], 0), setting_in(folder))


def test_what_a_site_forbids_is_not_asked_for() -> None:
    script = SlurmBackend(CASES["jean_zay_v100"]).render(
        array_for(CASES["jean_zay_v100"], 0), setting_in("/home/me")
    )
    assert "--mem" not in script


def test_the_shell_reads_every_hostile_word_as_it_is(tmp_path: Path) -> None:
    """The script's own lines, with a printing program in the worker's place."""
    folder = tmp_path / HOSTILE.strip("/").replace("/", "-")
    setting = setting_in(str(folder))
    setting.code.cwd.mkdir(parents=True)
    printer = ("printf", "%s\\n", "worker", "$HOME `id` 'x' \"y\" %s é")
    profile = replace(CASES["hostile"], python=printer, modules=None, setup=())
    script = SlurmBackend(profile).render(array_for(profile, 0), setting)
    (setting.sweep_dir.path / "journals").mkdir(parents=True)
    show = 'printf "%s\\n" "$GREETING" "$TMPDIR" "$PWD" "$PYTHONPATH" "$ORCHESTRATE_SUBMIT_DIR"\n'
    begin = script.index("# What the scheduler tells this shell")
    done = subprocess.run(
        ["bash"],
        input=script[:begin] + show + script[begin:],
        env={"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "0", "JOBSCRATCH": "/local job"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    code = setting.code
    assert done.stdout.splitlines() == [
        profile.environment["GREETING"],
        '/local job/a b"$(id)`id`',
        str(code.cwd),
        f"{code.path}/ours:{code.path}/tree",
        str(code.submit_dir),
        *printer[2:],
        *["-P", "-m", "jobs.worker", str(setting.sweep_dir.results), "speed", "0003-0001.0"],
    ]


@pytest.mark.parametrize(("requeue", "told"), [(True, ["requeue 12_0"] * 3), (False, [])])
def test_a_script_that_stops_at_errors_still_hears_its_worker(
    tmp_path: Path, requeue: bool, told: list[str]
) -> None:
    """The worker has its script signalled, and asks for another go; the controller is away at first."""
    calls, programs = tmp_path / "calls", tmp_path / "programs"
    bodies = {
        "python": "kill -USR1 $PPID; /bin/sleep 0.3; exit 75",
        "scontrol": f'echo "$@" >>{calls}; [ $(wc -l <{calls}) -eq 3 ]',
        "sleep": ":",
    }
    programs.mkdir()
    for name, body in bodies.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    setting = setting_in(str(tmp_path))
    setting.code.cwd.mkdir(parents=True)
    (setting.sweep_dir.path / "journals").mkdir(parents=True)
    profile = replace(CASES["cpu"], python=("python",), setup=("set -eu", "set -o posix"), requeue=requeue)
    script = SlurmBackend(profile).render(array_for(profile, 0), setting)
    job = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(["bash"], input=script, env={"PATH": f"{programs}:/usr/bin:/bin", **job}, text=True)
    assert done.returncode == 0, "the last sleep's, or that of a chain that goes on"
    assert (calls.read_text().splitlines() if calls.exists() else []) == told


def test_the_end_is_counted_from_the_beginning() -> None:
    """Modules that load slowly take of the job's time."""
    profile = replace(CASES["cpu"], modules=("slow",))
    script = SlurmBackend(profile).render(array_for(profile, 0), setting_in("/home/me"))
    assert script.index("ORCHESTRATE_ENDS=") < script.index("module load")

"""What SkyPilot is given for a job: the task file, whole; the shell in it, run; names of instances."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.backends.script import Script, Setting
from orchestrator.backends.skypilot import SkyPilotBackend, client, doctor
from orchestrator.backends.skypilot.task import (
    SECRET_FILE,
    boot_commands,
    cluster_name,
    is_ours,
    refuse_shown_secrets,
    requirements,
    task_file,
)
from orchestrator.config.profiles import Profile
from orchestrator.config.trainers.actor_critic import PPO, PROCGEN
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.findings import Verdict
from orchestrator.core.types import Array, Job, Plan, Resources, Run, Sweep
from orchestrator.rundir import FrozenCode, SweepDir
from orchestrator.rundir.copies.parcel import add_private, parcel
from orchestrator.rundir.index import SWEEP_NAME

GOLDEN = Path(__file__).parents[3] / "golden" / "skypilot_l4.yaml"
ROOT = Path(__file__).parents[4]
PACKAGES = PROCGEN.install
QUIET = "--yes --no-install-recommends"
CODE_ID = "0123456789abcdef"
L4 = Profile(
    "l4",
    "l4.yaml",
    backend="skypilot",
    infra="aws/us-east-1",
    accelerators="L4:1",
    gpus=1,
    cpus_per_task=8,
    mem="30G",
    disk=100,
    spot=True,
    setup=("echo ready",),
    python=("~/env/bin/python",),
    environment={"WANDB_MODE": "offline", "TRUTH": "yes"},
    store="backup:results",
    hold="1:00:00",
    file_mounts={"~/data": "~/my data"},
)


def setting_in(top: str, cwd: str = "tree") -> Setting:
    sweep = SweepDir(Path(top) / "results", "speed")
    code = sweep.path / "code" / CODE_ID
    return Setting(sweep, FrozenCode(CODE_ID, code, (code / "tree",), code / cwd, Path(top)))


def file_of(profile: Profile, setting: Setting) -> str:
    job = Job("0003-0001", "speed", profile.name, ("a" * 16, "b" * 16), 2, Resources())
    return task_file(job, setting, profile)


def test_the_whole_file(update_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    monkeypatch.setenv("WANDB_API_KEY", "not to be seen")
    text = file_of(L4, setting_in("/home/me/lab"))
    if update_golden:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_job_on_several_nodes_has_agents_that_read_its_secret_from_a_private_file(tmp_path: Path) -> None:
    """SkyPilot passes all variables of a job on Slurm in the arguments of processes."""
    setting = setting_in(str(tmp_path))
    job = Job("0003-0001", "speed", "l4", ("a" * 16,), 1, Resources(nodes=3))
    task = yaml.safe_load(task_file(job, setting, L4))
    assert task["num_nodes"] == 3
    assert "secrets" not in task
    sent = parcel(setting.sweep_dir, job.token)
    sent.mkdir(parents=True)
    add_private(setting.sweep_dir, job.token, SECRET_FILE, "sesame")
    assert (sent / SECRET_FILE).stat().st_mode & 0o077 == 0
    stubs = (
        'exec() { echo "$ORCHESTRATE_WORKER $ORCHESTRATE_AGENTS_AT $*"; exit; }; cd() { :; }; mkdir() { :; }'
    )
    said = []
    for rank in "0", "2":
        given = {"SKYPILOT_NODE_RANK": rank, "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8\n10.0.0.9"}
        given |= {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        argv = ["bash", "-c", f"{stubs}\n{task['run']}"]
        done = subprocess.run(argv, env=given, capture_output=True, text=True, check=True, cwd=sent)
        said.append(done.stdout)
    port = said[0].strip().partition(":")[0]
    assert said[0].startswith(f" {port}:sesame {tmp_path}/env/bin/python -P -m jobs.instance ")
    assert said[1] == f"10.0.0.7:{port}:sesame  {tmp_path}/env/bin/python -P -m jobs.worker.nodes.agent\n"
    assert "num_nodes" not in yaml.safe_load(file_of(L4, setting))


def test_secrets_that_others_could_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("0003-0001", "speed", "l4", ("a" * 16,), 1, Resources())
    array = Array("0003-0001", (job,), Resources())
    setting, backend = setting_in("/lab"), SkyPilotBackend(replace(L4, infra="slurm/test"))
    assert backend.render(array, setting)
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    with pytest.raises(OrchestrateError, match="WANDB_API_KEY: every user of a node") as refused:
        backend.render(array, setting)
    assert "secrets: []" in (refused.value.hint or "")
    assert SkyPilotBackend(replace(L4, infra="slurm/test", secrets=())).render(array, setting)
    assert SkyPilotBackend(L4).render(array, setting)


@pytest.mark.parametrize("infra", [None, "*", "*/us-east-1"])
def test_secrets_are_refused_where_skypilot_may_choose_slurm(
    infra: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = ["aws", "slurm"]
    monkeypatch.setattr(client, "enabled_clouds", lambda: enabled)
    monkeypatch.setattr(client, "check", lambda _: client.Check(enabled, ""))
    job = Job("0003-0001", "speed", "l4", ("a" * 16,), 1, Resources())
    profile = replace(L4, infra=infra)
    script = Script(Array("0003-0001", (job,), Resources()), "", setting_in("/lab"))
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    with pytest.raises(
        OrchestrateError, match="WANDB_API_KEY: every user of a node of Slurm, which"
    ) as refused:
        SkyPilotBackend(profile).submit(script)
    assert "infra" in (refused.value.hint or "")
    assert doctor.enabled(profile).verdict is Verdict.PROBLEM
    refuse_shown_secrets(replace(profile, infra="aws/us-east-1"), lambda: enabled)
    refuse_shown_secrets(profile, lambda: ["aws"])
    monkeypatch.delenv("WANDB_API_KEY")
    refuse_shown_secrets(profile, lambda: enabled)


def test_a_secret_is_named_only_where_it_is_set_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert "secrets" not in yaml.safe_load(file_of(L4, setting_in("/lab")))
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    text = file_of(L4, setting_in("/lab"))
    assert yaml.safe_load(text)["secrets"] == {"WANDB_API_KEY": None}
    assert "sesame" not in text


def test_the_instance_is_told_which_variables_hold_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "sesame")
    text = file_of(replace(L4, secrets=("PLACE", "NOT_SET")), setting_in("/lab"))
    assert text.endswith(" --secrets PLACE\n")


def test_scripts_with_secrets_are_for_the_job_alone_and_in_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SkyPilot leaves them on an instance, and has an interactive shell read them."""
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    plain = replace(L4, python=None, infra="slurm/test")
    text = yaml.safe_load(file_of(plain, setting_in("/lab")))["setup"]
    head = "".join(text.splitlines(keepends=True)[:2])
    script = tmp_path / ".sky" / "sky_app" / "sky_job_1"
    script.parent.mkdir(parents=True)
    script.write_text(f"export WANDB_API_KEY=sesame\n{head}echo more\n")
    script.chmod(0o644)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-i", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "more\n"
    assert (script.stat().st_mode & 0o077, script.parent.stat().st_mode & 0o077) == (0, 0)
    assert not [path for path in tmp_path.iterdir() if "history" in path.name]


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({"hold": "0:05"}, 3600),
        ({"hold": "2:00:00"}, 7200),
        ({"infra": None}, 3600),
        ({"infra": "gcp"}, None),
        ({"infra": "slurm/test"}, None),
        ({"image": "docker:me/image"}, None),
    ],
)
def test_a_machine_of_aws_turns_itself_off_if_no_job_begins(
    keys: dict[str, Any], limit: int | None, tmp_path: Path
) -> None:
    """The command is a line of YAML in what the machine gets; its shell is run here, without a machine."""
    profile = replace(L4, **keys)
    commands = boot_commands(profile)
    shown = file_of(profile, setting_in("/lab")).splitlines()[2]
    if limit is None:
        assert commands == []
        assert "boots" not in shown
        return
    (command,) = commands
    assert yaml.safe_load(f"- {command}") == [command]
    assert command in shown  # what a dry run shows is what is done
    timer, *told = shlex.split(command)
    assert (timer, told[0]) == ("systemd-run", f"--on-active={limit}")
    mark, off = tmp_path / "begun", tmp_path / "off"
    (tmp_path / "poweroff").write_text(f"#!/bin/sh\ntouch {off}\n")
    (tmp_path / "poweroff").chmod(0o755)
    argv = [word.replace("/var/tmp/orchestrate-job-begun", str(mark)) for word in told[1:]]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    mark.touch()
    subprocess.run(argv, env=env, check=True)
    assert not off.exists()
    mark.unlink()
    subprocess.run(argv, env=env, check=True)
    assert off.exists()


@pytest.mark.parametrize(
    ("command", "git", "expected"),
    [
        (["python", "train.py"], False, ["(it is in no git repository), but `command` starts train.py"]),
        (["python", "train.py"], True, []),
        (["python", "/opt/train.py"], False, []),
        (["simulate", "--fast"], False, []),
    ],
)
def test_a_program_that_is_not_sent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], git: bool, expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if git:
        subprocess.run(["git", "init", "--quiet"], check=True)
    run = Run("a" * 16, "command", {"command": command})
    plan = Plan(Sweep("mine", "command", (run,), ""), "l4", (), {}, {}, {})
    said = [one.text.partition(" is sent to an instance ")[2] for one in SkyPilotBackend(L4).concerns(plan)]
    assert said == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["cpu"], ["1 run uses no GPU, and its job asks for a GPU (l4)"]),
        (["cpu", "cpu"], ["2 runs use no GPU, and each of their jobs asks for a GPU (l4)"]),
        (["cpu", "cuda"], []),
    ],
)
def test_an_instance_with_a_gpu_that_no_run_uses(devices: list[str], expected: list[str]) -> None:
    """Runs of all needs share an instance, and its job names none of them."""
    runs = [Run(str(n) * 16, "benchmarl", {"experiment.train_device": one}) for n, one in enumerate(devices)]
    job = Job("0001-0001", "speed", "l4", tuple(run.run_id for run in runs), 1, Resources(1))
    array = Array("0001-0001", (job,), Resources(1))
    plan = Plan(Sweep("speed", "benchmarl", tuple(runs), ""), "l4", (array,), {}, {}, {})
    assert [one.text for one in SkyPilotBackend(L4).concerns(plan)] == expected


def test_values_stay_texts() -> None:
    assert yaml.safe_load(file_of(L4, setting_in("/lab")))["envs"] == L4.environment


def test_without_a_word_of_python_this_environments_packages_are_installed() -> None:
    plain = Profile("l4", "l4.yaml", backend="skypilot")
    task = yaml.safe_load(file_of(plain, setting_in("/lab")))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[0-9][^+ ]*", one) for one in requirements())
    assert {"torch", "benchmarl"} <= {one.partition("==")[0] for one in requirements()}
    assert all(one in task["setup"] for one in requirements())
    assert (
        '"$HOME"/.orchestrate/env/bin/python' in task["run"] or ".orchestrate/env/bin/python" in task["run"]
    )


@pytest.mark.parametrize("there", [True, False])
def test_the_packages_of_a_task_are_installed_too(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its libraries only where they lack; versions are those of this environment, or of the constraints."""
    if not there:
        monkeypatch.setattr("importlib.metadata.version", not_installed)
    plain = Profile("cpu", "cpu.yaml", backend="skypilot")
    needs = PPO.needs_of_tasks([PPO.identify({"task": "procgen/coinrun"}, seed, 1) for seed in range(2)])
    text = file_of(plain, replace(setting_in("/lab"), tasks_need=needs))
    lines = yaml.safe_load(text)["setup"].splitlines()
    (install,) = [line for line in lines if "--no-deps" in line]
    wanted = install.partition("--no-deps ")[2].split()
    assert [one.partition("==")[0] for one in wanted] == list(PACKAGES)
    assert set(wanted) <= set((ROOT / "constraints.txt").read_text().splitlines())
    home, log = tmp_path / "home", tmp_path / "log"
    python = home / ".orchestrate" / "env" / "bin" / "python"
    for path, code in ((python, int(not there)), (tmp_path / "apt-get", 0), (tmp_path / "sudo", 0)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "${{0##*/}}" "$@" >> {log}\nexit {code}\n')
        path.chmod(0o755)
    env = {"HOME": str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    tail = "\n".join(["set -e", *lines[lines.index(install) + 1 :]])
    subprocess.run(["bash", "-c", tail], env=env, check=True)
    asked = [line for line in log.read_text().splitlines() if line.startswith("sudo")]
    missing = ["sudo apt-get -qq update", f"sudo apt-get -qq install {QUIET} libgl1 libglib2.0-0"]
    assert asked == ([] if there else missing)


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


def test_other_tasks_need_no_more() -> None:
    plain = Profile("cpu", "cpu.yaml", backend="skypilot")
    assert PPO.needs_of_tasks([PPO.identify({"task": "bucket_brigade/hard"}, 0, 1)]) == ()
    assert "--no-deps" not in file_of(plain, setting_in("/lab"))


def test_make_installs_the_same_for_procgen() -> None:
    assert f"PROCGEN := --no-deps {' '.join(PACKAGES)}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("conda activate marl", 127),
        ("conda activate marl && export A=1", 127),
        ("conda activate marl 2>&1 | cat", 127),
        ("export A=$(conda info)", 127),
        ("ulimit -n 999999999; conda activate marl && echo; echo", 127),
        ("false || true", 0),
        (". ./inner.sh", 0),
    ],
)
def test_a_line_of_the_set_up_that_fails_ends_it(tmp_path: Path, lines: str, code: int) -> None:
    (tmp_path / "inner.sh").write_text("false\ntrue\n")
    profile = replace(L4, infra="slurm/test", setup=(lines, "echo ready"))
    (tmp_path / "setup.sh").write_text(yaml.safe_load(file_of(profile, setting_in("/lab")))["setup"])
    done = subprocess.run(["bash", "-i", "setup.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code
    assert ("ready" in done.stdout) == (code == 0)
    assert bool(re.search("set-up failed: .*conda .*: exit code 127", done.stderr)) == (code != 0)


@pytest.mark.parametrize(("store", "count"), [("s3://bucket/folder", 1), ("host:boto3", 0), (None, 0)])
def test_a_bucket_for_a_store_needs_its_client(store: str | None, count: int) -> None:
    bare = Profile("bare", "bare.yaml", backend="skypilot", store=store)
    lines = yaml.safe_load(file_of(bare, setting_in("/lab")))["setup"].splitlines()
    (install,) = [line for line in lines if line.startswith("uv pip install")]
    assert install.split().count("boto3") == count


def test_the_shell_starts_the_program_with_the_submitted_code(tmp_path: Path) -> None:
    """Run as an instance does, in a folder and from a folder with hostile names."""
    workdir, home = tmp_path / 'it\'s "$(here)" `é`', tmp_path / "home"
    started = workdir / "results" / "speed" / "code" / CODE_ID / "tree" / "a b;c"
    started.mkdir(parents=True)
    (home / "env" / "bin").mkdir(parents=True)
    python = home / "env" / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$PYTHONPATH" "$ORCHESTRATE_SUBMIT_DIR" "$@"\n')
    python.chmod(0o755)
    task: dict[str, Any] = yaml.safe_load(file_of(L4, setting_in("/lab", "tree/a b;c")))
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    said = subprocess.run(["bash", "-c", task["run"]], cwd=workdir, env=env, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    cwd, path, submit_dir, *argv = said.stdout.splitlines()
    assert (cwd, submit_dir) == (str(started), str(workdir))
    assert path == str(workdir / "results" / "speed" / "code" / CODE_ID / "tree")
    options = ["--hold", "3600", "--store", "backup:results"]
    there = [str(workdir / "results"), "speed", "0003-0001"]
    assert argv == ["-P", "-m", "jobs.instance", *there, *options]


@given(some.from_regex(SWEEP_NAME, fullmatch=True), some.integers(1, 12_000))
def test_every_sweep_has_instances_that_skypilot_can_name(name: str, number: int) -> None:
    cluster = cluster_name(SweepDir(Path("/lab/results"), name), f"{number:04d}-0001")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", cluster)
    assert is_ours(cluster)
    assert len(cluster) < 60


def test_no_two_folders_have_the_same_instance() -> None:
    one, other = (SweepDir(Path(f"/lab/{folder}"), "speed") for folder in ("a", "b"))
    assert cluster_name(one, "0001-0001") != cluster_name(other, "0001-0001")
    assert not is_ours("somebody-elses-cluster")

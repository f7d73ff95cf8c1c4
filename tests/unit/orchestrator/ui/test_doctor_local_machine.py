"""The doctor on this machine: PyTorch, threads, W&B, StarCraft II, rsync; well, unwell and hostile."""

from __future__ import annotations

import os
import random
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.backends.skypilot.doctor import examined_here
from orchestrator.core.machine import hardware
from orchestrator.ui.doctor import Finding, Verdict, diagnose, training
from orchestrator.ui.doctor.local_machine import cores_and_gpus, rsync, trainers
from orchestrator.ui.doctor.torch_probe import Facts
from orchestrator.ui.doctor.wandb_login import wandb
from tests.libraries import well

KEY = "0123456789abcdef" * 3
CUDA = {"version": "2.13.0", "cuda": "12.8", "threads": 4}
STARCRAFT = ("Versions/Base75689/SC2_x64", "Maps/SMAC_Maps/32x32_flat.SC2Map")


def put(file: Path, content: str = "", mode: int = 0o644) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    file.chmod(mode)
    return file


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: ())


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: ("NVIDIA L4",))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")) or name in ("SC2PATH", "NETRC"):
            monkeypatch.delenv(name)


def pytorch(**facts: object) -> Finding:
    return training.pytorch(lambda _: facts)


def test_pytorch_without_a_gpu(no_gpu: None) -> None:
    assert training.pytorch(well).found == "2.13.0, a CPU build, and no GPU here"
    slow = pytorch(version="2.13.0", cuda=None, threads=4, bf16=12.3)
    assert (slow.verdict, "bf16 is 12 times slower" in slow.found) == (Verdict.OK, True)
    finding = pytorch(**CUDA, error="RuntimeError: Found no NVIDIA driver on your system")
    assert (finding.verdict, finding.found) == (Verdict.OK, "2.13.0 for CUDA 12.8, and no GPU here")


def test_pytorch_with_a_gpu(gpu: None) -> None:
    finding = pytorch(**CUDA, device="NVIDIA L4", memory=24e9)
    assert finding.found == "2.13.0 for CUDA 12.8 computes on NVIDIA L4 (24 GB)"
    finding = training.pytorch(well)
    assert finding.verdict is Verdict.WARNING
    assert finding.found == "2.13.0 is a CPU build: it cannot use the NVIDIA L4 here"
    assert "built for CUDA" in (finding.fix or "")


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040).", "update NVIDIA's driver"),
        ("CUDA error: no kernel image is available for execution on the device", "supports this GPU"),
        ("CUDA error: out of memory", "`nvidia-smi` shows its users"),
        ("CUDA-capable device(s) is/are busy or unavailable", "`nvidia-smi` shows its users"),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", "must answer first"),
    ],
)
def test_a_gpu_that_pytorch_cannot_use(gpu: None, error: str, fix: str) -> None:
    finding = pytorch(**CUDA, error=f"RuntimeError: {error}")
    assert finding.verdict is Verdict.PROBLEM
    assert error in finding.found
    assert fix in (finding.fix or "")


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cpu_quota", lambda: None)
    assert (
        training.threads(well).found
        == "a run takes as many as `threads` of its grid says, or 1 (PyTorch alone: 4)"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "many\x1b[31m")
    finding = training.threads(well)
    assert (finding.verdict, finding.found.isprintable()) == (Verdict.OK, True)
    assert "OMP_NUM_THREADS=many" in finding.found
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    assert training.threads(well).fix == "unset OMP_THREAD_LIMIT: each run has cores of its own anyway"
    monkeypatch.setenv("GOMP_CPU_AFFINITY", "0")
    assert training.threads(well).fix == "unset GOMP_CPU_AFFINITY: each run has cores of its own anyway"
    for variable in ("OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY"):
        monkeypatch.delenv(variable)
    monkeypatch.setattr(hardware, "cpu_quota", lambda *_: 0.5)
    finding = training.threads(well)
    assert finding.verdict is Verdict.OK
    assert "allows the time of 0.5: sweeps here keep 1 core busy" in finding.found


def test_limits_of_containers(tmp_path: Path) -> None:
    """The smallest one on the way up, of either version of cgroups; where nothing is limited, none."""
    assert hardware.cpu_quota(tmp_path) is None
    put(tmp_path / "proc/self/cgroup", "0::/job/step\n")
    put(tmp_path / "sys/fs/cgroup/job/step/cpu.max", "max 100000\n")
    assert hardware.cpu_quota(tmp_path) is None
    put(tmp_path / "sys/fs/cgroup/job/cpu.max", "250000 100000\n")
    assert hardware.cpu_quota(tmp_path) == 2.5
    put(tmp_path / "sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert hardware.cpu_quota(tmp_path) == 1.5
    put(tmp_path / "proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/elsewhere\n")
    put(tmp_path / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    quota = put(tmp_path / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    assert hardware.cpu_quota(tmp_path) is None
    put(quota, "50000\n")
    assert hardware.cpu_quota(tmp_path) == 0.5


def test_memory_is_the_machines_or_what_a_container_has(tmp_path: Path) -> None:
    assert hardware.memory_mb(tmp_path) is None
    put(tmp_path / "proc/meminfo", "MemTotal:       24684096 kB\nMemFree: 1 kB\n")
    assert hardware.memory_mb(tmp_path) == 24 << 10, "what the kernel keeps is not missed"
    put(tmp_path / "proc/self/cgroup", "0::/box/inner\n")
    put(tmp_path / "sys/fs/cgroup/box/inner/memory.max", "max\n")
    assert hardware.memory_mb(tmp_path) == 24 << 10
    put(tmp_path / "sys/fs/cgroup/box/memory.max", f"{6000 << 20}\n")
    assert hardware.memory_mb(tmp_path) == 6000
    put(tmp_path / "proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/elsewhere\n")
    old = put(tmp_path / "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n")
    assert hardware.memory_mb(tmp_path) == 24 << 10
    put(old, f"{2 << 30}\n")
    assert hardware.memory_mb(tmp_path) == 2 << 10


def test_physical_cores_are_told_where_cores_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: ())
    monkeypatch.setattr(hardware, "cores", lambda: 8)
    monkeypatch.setattr(hardware, "physical_cores", lambda: 4)
    assert cores_and_gpus(Path()).found == "8 cores (4 physical ones), no GPU that can be used"
    monkeypatch.setattr(hardware, "physical_cores", lambda: 8)
    assert cores_and_gpus(Path()).found == "8 cores, no GPU that can be used"


def test_a_quota_counts_whole_cores(tmp_path: Path) -> None:
    assert hardware.whole_cores(tmp_path) == hardware.cores()
    put(tmp_path / "proc/self/cgroup", "0::/\n")
    for limit, cores in (("50000 100000", 1), ("150000 100000", 1), ("9000000 100000", hardware.cores())):
        put(tmp_path / "sys/fs/cgroup/cpu.max", limit)
        assert hardware.whole_cores(tmp_path) == cores


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.text(max_size=20))
def test_limits_that_mean_nothing_end_nothing(tmp_path: Path, groups: str, limit: str) -> None:
    put(tmp_path / "proc/self/cgroup").write_bytes(f"0::/{groups}\n{groups}".encode())
    put(tmp_path / "sys/fs/cgroup/cpu.max").write_bytes(f"{limit} {limit}".encode())
    hardware.cpu_quota(tmp_path)


def test_wandb_without_a_login() -> None:
    finding = wandb(Path())
    assert finding.verdict is Verdict.WARNING
    assert "no login for api.wandb.ai: runs log offline, complete" in finding.found
    assert "`wandb login`" in (finding.fix or "")


@pytest.mark.parametrize(
    ("variables", "verdict", "said"),
    [
        ({"WANDB_API_KEY": KEY}, "ok", "sends them to api.wandb.ai, by the login in WANDB_API_KEY"),
        ({"WANDB_API_KEY": f"local-{KEY}"}, "ok", "by the login in WANDB_API_KEY"),
        ({"WANDB_API_KEY": KEY, "WANDB_MODE": "online"}, "ok", "runs log to api.wandb.ai"),
        ({"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:8080"}, "ok", "to 127.0.0.1:8080"),
        ({"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://[::1"}, "ok", "to http://[::1"),
        ({"WANDB_API_KEY": KEY, "WANDB_BASE_URL": f"https://me:{KEY}@w.org:80"}, "ok", "to w.org:80"),
        ({"WANDB_MODE": "online"}, "warning", "WANDB_MODE is online, but there is no login"),
        ({"WANDB_API_KEY": KEY, "WANDB_MODE": "onlin"}, "warning", "WANDB_MODE is 'onlin'"),
        ({"WANDB_API_KEY": KEY[:9]}, "problem", "it has 9 characters, and a key has 40 or more"),
        ({"WANDB_API_KEY": f"{KEY}\n"}, "problem", "other characters than letters"),
    ],
)
def test_wandb_by_the_environment(
    variables: dict[str, str], verdict: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    finding = wandb(Path())
    assert finding.verdict.value == verdict
    assert said in finding.found
    assert KEY[:9] not in f"{finding.found}{finding.fix}"


def test_wandb_by_netrc(own_world: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = own_world / ".netrc"
    put(netrc, f"machine api.wandb.ai\n  login user\n  password {KEY}\n", 0o600)
    assert wandb(Path()).found.endswith(f"sends them to api.wandb.ai, by the login in {netrc}")
    monkeypatch.setenv("WANDB_MODE", "online")  # a worker takes the key from its environment alone
    assert "they log offline" in wandb(Path()).found
    monkeypatch.setenv("WANDB_MODE", "offline")
    put(own_world / ".config/wandb/settings", "[default]\nbase_url = https://wandb.lab.example.org\n")
    assert "no login for wandb.lab.example.org" in wandb(Path()).found
    put(netrc, "machine wandb.lab.example.org login user password\n", 0o600)
    assert wandb(Path()).verdict is Verdict.PROBLEM
    put(netrc, f"machine wandb.lab.example.org login user password {KEY[:5]}\n", 0o600)
    finding = wandb(Path())
    assert "it has 5 characters" in finding.found
    assert "https://wandb.lab.example.org/authorize" in (finding.fix or "")
    assert KEY[:5] not in f"{finding.found}{finding.fix}"
    monkeypatch.setenv("NETRC", str(tmp_path))  # a folder
    assert "Is a directory" in wandb(Path()).found
    monkeypatch.setenv("NETRC", str(put(tmp_path / "noise")))
    for seed in range(20):
        (tmp_path / "noise").write_bytes(random.Random(seed).randbytes(300))
        (own_world / ".config/wandb/settings").write_bytes(random.Random(seed).randbytes(300))
        wandb(Path())


def test_starcraft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_world: Path) -> None:
    assert training.starcraft(well).verdict is Verdict.NOT_HERE
    monkeypatch.setattr(training, "installed_version", lambda _: "0.1")
    assert "no SC2PATH, and no ~/StarCraftII" in training.starcraft(well).found
    monkeypatch.setenv("SC2PATH", str(tmp_path / "nowhere"))
    assert "nowhere, which is no folder" in training.starcraft(well).found
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    for number, missing in enumerate(("Versions/*/SC2_x64", "Maps/SMAC_Maps/32x32_flat.SC2Map")):
        finding = training.starcraft(well)
        assert finding.verdict is Verdict.PROBLEM
        assert finding.found.endswith(f"{tmp_path} has no {missing}")
        put(tmp_path / STARCRAFT[number])
    assert training.starcraft(well).found == f"{tmp_path}, smacv2 0.1"
    monkeypatch.setenv("SC2PATH", "~nobody-of-that-name/\x7f" + "x" * 9999)
    assert training.starcraft(well).verdict is Verdict.PROBLEM
    monkeypatch.delenv("SC2PATH")
    (own_world / "StarCraftII").symlink_to(tmp_path)
    assert training.starcraft(well).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("said", "verdict", "found"),
    [
        ("echo 'rsync  version 3.2.7  protocol version 31'", "ok", "3.2.7, with "),
        (
            "echo 'rsync  version 3.1.3  protocol version 31'",
            "warning",
            "3.1.3, and `orchestrate sync` needs 3.2.5",
        ),
        ("echo 'openrsync: protocol version 29'", "warning", "is another program of that name"),
        ("head -c 999 /dev/urandom", "warning", "is another program of that name"),
        ("kill -9 $$", "warning", "is another program of that name"),
    ],
)
def test_rsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, verdict: str, found: str) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    put(tmp_path / "ssh", "#!/bin/sh\n", 0o755)
    put(tmp_path / "rsync", f"#!/bin/sh\n{said}\n", 0o755)
    finding = rsync()
    assert finding.verdict.value == verdict
    assert found in finding.found


def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rsync().found == "rsync and ssh not on PATH: `orchestrate sync` cannot fetch results"
    put(tmp_path / "ssh", "", 0o755)
    put(tmp_path / "rsync", "no program", 0o755)
    assert "does not run" in rsync().found


def test_packages_that_are_not_there_or_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(package: str) -> str:
        raise KeyError("Version")

    monkeypatch.setattr("importlib.metadata.version", damaged)
    assert trainers(Path()).verdict is Verdict.WARNING
    for finding in (*examined_here(Path()), wandb(Path()), training.pytorch(well), training.starcraft(well)):
        assert finding.verdict is Verdict.NOT_HERE
        assert finding.fix


def test_somebodys_trainer_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any installed package can bring one along."""
    points = EntryPoints([EntryPoint("theirs", "nowhere.at_all:SPEC", "orchestrate.trainers")])
    monkeypatch.setattr("orchestrator.config.plug_ins.entry_points", lambda **asked: points.select(**asked))
    finding = trainers(Path())
    assert finding.verdict is Verdict.WARNING
    assert "theirs of orchestrate.trainers cannot be loaded: ModuleNotFoundError" in finding.found


def test_a_backend_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("theirs", "nowhere.at_all:SPEC", "orchestrate.backends")])
    monkeypatch.setattr("orchestrator.config.plug_ins.entry_points", lambda **asked: points.select(**asked))
    finding = list(diagnose(tmp_path, probe=well))[-1]
    assert finding.verdict is Verdict.WARNING
    assert "theirs of orchestrate.backends cannot be loaded: ModuleNotFoundError" in finding.found


@pytest.mark.parametrize("check", training.CHECKS)
def test_every_check_takes_it_when_there_is_no_answer(check: object) -> None:
    def nothing(_: str) -> Facts:
        return {"broken": "no answer within 60 s"}

    assert callable(check)
    assert check(nothing).verdict in (Verdict.WARNING, Verdict.PROBLEM, Verdict.NOT_HERE, Verdict.OK)
    assert training.pytorch(nothing).verdict is Verdict.PROBLEM
    assert training.drawing(nothing).verdict is Verdict.WARNING

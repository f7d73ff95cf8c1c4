"""Detect the resources of this machine without heavy imports. Imports nothing of ours."""

from __future__ import annotations

import fcntl
import glob
import math
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_NO_LIMIT = 1 << 60
# The flags of a processor that PyTorch looks for, best first.
_CAPABILITIES = {
    "AVX512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"},
    "AVX2": {"avx2", "fma"},
    "DEFAULT": set[str](),
}
# The request for an interface's address (`man 7 netdevice`), and the place of the address in the answer.
_SIOCGIFADDR, _ADDRESS = 0x8915, slice(20, 24)
_ANY_PORT = 9
# Where StarCraft's own library searches without SC2PATH, and the files that SMACv2 needs.
_STARCRAFT = "~/StarCraftII"
_GAME, _MAP = "Versions/*/SC2_x64", "Maps/SMAC_Maps/32x32_flat.SC2Map"


@dataclass(frozen=True)
class StarCraft:
    """The StarCraft II installation that SMACv2 finds; ``lack`` names a missing part, ``fix`` the remedy."""

    folder: str
    lack: str = ""
    fix: str = ""


def cores() -> int:
    """Return the number of cores this process may use, as limited by a scheduler or `taskset`."""
    return len(os.sched_getaffinity(0))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the cores' worth of time that a cgroup allows (a container sees all cores), or None."""
    limits = [limit for folder in _cgroups(root) if (limit := _quota(folder)) is not None]
    return min(limits, default=None)


def whole_cores(root: Path = Path("/")) -> int:
    """Return the cores that runs here can keep busy: this process's, or fewer under a cgroup's quota."""
    quota = cpu_quota(root)
    return cores() if quota is None else max(1, min(cores(), int(quota)))


def physical_first(cores: Iterable[int], root: Path = Path("/")) -> list[int]:
    """Return cores with those first that share no physical core, in their order."""
    groups: dict[str, int] = {}
    places = {}
    for core in sorted(cores):
        physical = _physical(core, root)
        places[core] = groups[physical] = groups.get(physical, -1) + 1
    return sorted(places, key=lambda core: (places[core], core))


def physical_cores(cores: Iterable[int] | None = None, root: Path = Path("/")) -> int:
    """Return the number of physical cores among these, by default among those this process may use."""
    return len({_physical(core, root) for core in (os.sched_getaffinity(0) if cores is None else cores)})


def _physical(core: int, root: Path) -> str:
    """Return a text that is the same for all cores (hardware threads) of one physical core."""
    lines = _lines(root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return lines[0] if lines else str(core)


def interface_to(address: str) -> str | None:
    """Return the name of the network interface that leads to an IPv4 address; None if it is not known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((address, _ANY_PORT))  # sends nothing
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if answer[_ADDRESS] == own:
                    return name
    return None


def memory_mb(root: Path = Path("/")) -> int | None:
    """Return the megabytes that all processes here may use together; None if unknown.

    The machine's total is rounded up to whole gigabytes, as the kernel reserves a part. A cgroup's limit is
    exact.
    """
    limits = [limit for folder in _cgroups(root, "memory") if (limit := _memory_limit(folder)) is not None]
    total = _total_memory(root)
    if total is not None:
        limits.append(math.ceil(total / (1 << 30)) << 30)
    return min(limits) >> 20 if limits else None


def starcraft() -> StarCraft:
    """Find StarCraft II by ``SC2PATH`` or in its default folder."""
    named = os.environ.get("SC2PATH", "")
    folder = os.path.expanduser(named or _STARCRAFT)
    install = "install StarCraft II for Linux and set SC2PATH to its folder"
    if not os.path.isdir(folder):
        lack = f"SC2PATH is {named}, which is no folder" if named else f"no SC2PATH, and no {_STARCRAFT}"
        return StarCraft(folder, lack, install)
    if not glob.glob(_GAME, root_dir=folder):
        return StarCraft(folder, f"{folder} has no {_GAME}", install)
    if not os.path.isfile(os.path.join(folder, _MAP)):
        maps = os.path.dirname(os.path.join(folder, _MAP))
        return StarCraft(folder, f"{folder} has no {_MAP}", f"put the maps of SMACv2 into {maps}")
    return StarCraft(folder)


def gpus() -> tuple[str, ...]:
    """Return the model names of the GPUs this process may use, in the driver's order."""
    models = _models()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return models
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    known = [models[int(name)] for name in wanted if name.isdigit() and int(name) < len(models)]
    by_uuid = [name for name in wanted if not name.lstrip("-").isdigit()]
    return (*known, *(models[:1] * len(by_uuid)))


def cpu_model() -> str:
    """Return the processor's name as the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return "unknown"


def cpu_capability(root: Path = Path("/")) -> str | None:
    """Return the instructions that PyTorch uses here, as it names them; ``None`` if that is unknown.

    Results of different ones differ in bits. It is PyTorch's own rule, without loading it.
    """
    flags = next((line for line in _lines(root / "proc/cpuinfo") if line.startswith("flags")), "").split()
    there = [name for name, needed in _CAPABILITIES.items() if flags and needed.issubset(flags)]
    asked = os.environ.get("ATEN_CPU_CAPABILITY", "").upper()
    return asked if asked in there else next(iter(there), None)


def _models() -> tuple[str, ...]:
    try:
        folders = sorted(_NVIDIA_DRIVER.iterdir())
    except OSError:
        return _ask_nvidia_smi()
    return tuple(_model(folder / "information") for folder in folders)


def _model(information: Path) -> str:
    for line in information.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Model":
            return value.strip()
    return "NVIDIA GPU"


def _ask_nvidia_smi() -> tuple[str, ...]:
    """Query nvidia-smi, for containers that hide the driver's folder."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line for line in answer.stdout.splitlines() if line.startswith("GPU ")]
    return tuple(line.partition(":")[2].partition("(")[0].strip() for line in lines)


def _cgroups(root: Path, wanted: str = "cpu") -> list[Path]:
    """Return the folders of this process's cgroup and its parents, of version 2 and of version 1."""
    found = []
    for line in _lines(root / "proc/self/cgroup"):
        controllers, _, inside = line.partition(":")[2].partition(":")
        if controllers == "" or wanted in controllers.split(","):
            top = root / "sys/fs/cgroup" / controllers
            own = top / inside.lstrip("/")
            # In a container its own folder is mounted at the top, under any outside name.
            found += [top, *(one for one in (own, *own.parents) if one.is_relative_to(top) and one != top)]
    return found


def _quota(folder: Path) -> float | None:
    words = " ".join(_lines(folder / "cpu.max")).split()
    if not words:
        words = [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
    if len(words) != 2 or not all(_NUMBER.fullmatch(word) for word in words):
        return None  # "max", and -1, are no limit
    return int(words[0]) / int(words[1])


def _memory_limit(folder: Path) -> int | None:
    """Return the limit in bytes; version 1 reports a huge number for no limit."""
    words = " ".join([*_lines(folder / "memory.max"), *_lines(folder / "memory.limit_in_bytes")]).split()
    limits = [int(word) for word in words if _NUMBER.fullmatch(word)]
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _total_memory(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        kilobytes = value.split()
        if name == "MemTotal" and kilobytes and _NUMBER.fullmatch(kilobytes[0]):
            return int(kilobytes[0]) << 10
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):  # missing, no permission, not text, or no valid name
        return []

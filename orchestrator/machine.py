"""What this machine offers, found out without loading anything heavy. Imports nothing of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")


def cores() -> int:
    """Cores this process may use: what a scheduler or `taskset` left of the machine's."""
    return len(os.sched_getaffinity(0))


def gpus() -> tuple[str, ...]:
    """Model names of the GPUs this process may use, in the driver's order."""
    models = _models()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return models
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    known = [models[int(name)] for name in wanted if name.isdigit() and int(name) < len(models)]
    by_uuid = [name for name in wanted if not name.lstrip("-").isdigit()]
    return (*known, *(models[:1] * len(by_uuid)))


def cpu_model() -> str:
    """The processor as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return "unknown"


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
    """For containers that hide the driver's folder."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        answer = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line for line in answer.stdout.splitlines() if line.startswith("GPU ")]
    return tuple(line.partition(":")[2].partition("(")[0].strip() for line in lines)

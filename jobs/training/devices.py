"""Check whether a run's device exists and this PyTorch can use it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jobs.training.config_errors import RefusedKeyError, unexpected
from orchestrator.core.machine import hardware


def require_device(key: str, device: str) -> None:
    """Refuse what is no device, or one that is not to be had here. Raises :class:`RefusedKeyError`."""
    try:
        asked = torch.device(device)
    except RuntimeError:
        asked = None
    if asked is None or asked.type not in ("cpu", "cuda"):
        raise unexpected(key, repr(device), "cpu, cuda or cuda:N")
    if (problem := Cuda.here().why_not(device)) is not None:
        why, hint = problem
        raise RefusedKeyError(key, f"{key}: {why}", hint=hint)


@dataclass(frozen=True)
class Cuda:
    """CUDA on this machine: the driver's GPUs, and how many of them this PyTorch can use.

    ``built_for`` is the version of CUDA that this PyTorch is built for, ``None`` for a CPU build.
    """

    gpus: tuple[str, ...]
    usable: int
    built_for: str | None

    @classmethod
    def here(cls) -> Cuda:
        """Look at this machine; loads the CUDA driver into this process."""
        usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return cls(hardware.gpus(), usable, torch.version.cuda)

    def why_not(self, device: str) -> tuple[str, str] | None:
        """Return why ``device`` cannot be used on a machine with a GPU, and the fix; ``None`` if it can.

        A run for a GPU on a machine without one has no fault: it is skipped with that reason.
        """
        asked = torch.device(device)
        if asked.type != "cuda" or not self.gpus:
            return None
        if self.built_for is None:
            return (
                f"found {device}, but this PyTorch ({torch.__version__}) is a CPU build: "
                f"it cannot use the {self.gpus[0]} here",
                "install a PyTorch that is built for CUDA into the environment that runs the workers",
            )
        if not self.usable:
            return (
                f"found {device}, but this PyTorch (built for CUDA {self.built_for}) "
                f"cannot use the {self.gpus[0]} here",
                'python -c "import torch; torch.zeros(1).cuda()" says why; an old driver is the usual reason',
            )
        if (asked.index or 0) >= self.usable:
            last = f"cuda:0 to cuda:{self.usable - 1}" if self.usable > 1 else "cuda:0"
            return f"found {device}, but the GPUs here are {last}", f"write {last.partition(' ')[0]}"
        return None

"""Whether a run's device is there: the word is right, and so are the machine and its PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from orchestrator.core import hardware


@dataclass(frozen=True)
class Cuda:
    """What there is of CUDA: the driver's GPUs, and how many of them this PyTorch can use.

    ``built_for`` is the version of CUDA that this PyTorch is built for, ``None`` for a CPU build.
    """

    gpus: tuple[str, ...]
    usable: int
    built_for: str | None

    @classmethod
    def here(cls) -> Cuda:
        """Of this machine; loads the CUDA driver into this process."""
        usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return cls(hardware.gpus(), usable, torch.version.cuda)

    def why_not(self, device: str) -> tuple[str, str] | None:
        """Why ``device`` cannot be used although the machine has a GPU, and what to do; ``None`` if it can.

        Runs that ask for a GPU where there is none are no fault: they are skipped with that as the reason.
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

"""Keep a trainer's modules loaded in the worker, so that a run starts in a fraction of a second."""

from __future__ import annotations

import gc
import importlib
import os
from pathlib import Path

from jobs.training.records import provenance
from orchestrator.config.code.identity import code_id
from orchestrator.config.trainers import get_trainer
from orchestrator.core.types import Run

# Set before a trainer's modules are imported: with more than one thread such an import starts threads, and a
# process forked beside threads can hang; and counting GPUs must not initialise them.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


def preload(trainer: str) -> None:
    """Import the modules that the trainer's runs share. The process stays single-threaded."""
    os.environ.update(_ENVIRONMENT)
    spec = get_trainer(trainer)
    code_id(spec)  # of the code as it is when it is loaded; remembered
    provenance.versions(spec)  # remembered too
    for module in spec.preload:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a forked run's collections do not copy the memory it shares


def remember_code(run: Run, results: Path) -> None:
    """Read the files of the run's program once, here and not in the process of every run."""
    provenance.code_of(get_trainer(run.trainer), run, results)

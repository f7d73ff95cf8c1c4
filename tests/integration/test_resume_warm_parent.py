"""What the warm parent loads before it forks: one thread, no W&B, no CUDA."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOAD = """
import os, sys
import jobs.trainers.benchmarl.engine.experiment
import torch
threads = len(os.listdir("/proc/self/task"))
print(threads, "wandb" in sys.modules, torch.cuda.is_initialized())
"""


@pytest.mark.nightly
def test_loading_the_trainer_starts_no_thread_no_wandb_no_cuda() -> None:
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD],
        env={**os.environ, **one, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert answer.stdout.split() == ["1", "False", "False"], answer.stderr

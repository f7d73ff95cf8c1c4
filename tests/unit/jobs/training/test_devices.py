"""What is said of a device that cannot be used."""

from __future__ import annotations

import pytest

from jobs.training.devices import Cuda

NONE_HERE = Cuda((), 0, None)
CPU_BUILD = Cuda(("NVIDIA L4",), 0, None)
OLD_DRIVER = Cuda(("NVIDIA L4",), 0, "12.8")
ONE = Cuda(("NVIDIA L4",), 1, "12.8")
TWO = Cuda(("NVIDIA L4", "NVIDIA L4"), 2, "12.8")


@pytest.mark.parametrize(
    ("cuda", "device"),
    [(NONE_HERE, "cuda"), (CPU_BUILD, "cpu"), (ONE, "cuda"), (ONE, "cuda:0"), (TWO, "cuda:1")],
)
def test_nothing_is_said_of_a_device_that_is_there_or_of_a_machine_without_gpus(
    cuda: Cuda, device: str
) -> None:
    assert cuda.why_not(device) is None


@pytest.mark.parametrize(
    ("cuda", "device", "said"),
    [
        (CPU_BUILD, "cuda", "is a CPU build: it cannot use the NVIDIA L4 here"),
        (OLD_DRIVER, "cuda:0", "built for CUDA 12.8) cannot use the NVIDIA L4 here"),
        (ONE, "cuda:1", "found cuda:1, but the GPUs here are cuda:0"),
        (TWO, "cuda:2", "found cuda:2, but the GPUs here are cuda:0 to cuda:1"),
    ],
)
def test_what_keeps_a_gpu_from_being_used_is_told(cuda: Cuda, device: str, said: str) -> None:
    problem = cuda.why_not(device)
    assert problem is not None
    assert said in problem[0]

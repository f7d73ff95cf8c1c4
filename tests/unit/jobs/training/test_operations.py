"""Floating-point operations: counted for a network, measured for a core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from jobs.training.records.operations import operations_of, peak_of_core, slowdown


def test_products_are_counted_and_no_gradient_is_left() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    rows = torch.zeros(4, 3)
    forward = 2 * 4 * (3 * 5 + 5 * 2)
    backward = forward + 2 * 4 * 5 * 2  # for both weights, and between the layers
    assert operations_of(network, lambda: [network(rows)]) == (forward, forward + backward)
    assert all(weight.grad is None for weight in network.parameters())


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_peak_is_measured_on_one_thread_and_changes_nothing(precision: torch.dtype) -> None:
    state = torch.get_rng_state()
    assert 1e8 < peak_of_core(precision) < 1e14
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_slowness_is_relative_to_single_precision() -> None:
    threads = torch.get_num_threads()
    assert slowdown(torch.bfloat16) > 0
    assert torch.get_num_threads() == threads

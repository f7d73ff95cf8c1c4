"""The state of a learner's parts, saved and restored through a file that loads as data only."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from jobs.training.parts import restore, state_of


def parts(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    kinds = (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)
    return {
        "learned": {"network": network, "optimizer": optimizer},
        "random": torch.Generator().manual_seed(seed),
        **{kind.__name__: np.random.Generator(kind(seed)) for kind in kinds},
    }


def draws(found: dict[str, Any]) -> list[Any]:
    learned = found["learned"]["optimizer"].state_dict()["state"][0]["exp_avg"].tolist()
    generators = [found[name].integers(1 << 30) for name in ("PCG64", "MT19937", "Philox", "SFC64")]
    return [learned, int(torch.randint(1 << 30, (), generator=found["random"])), *map(int, generators)]


def test_parts_go_on_as_those_that_were_saved() -> None:
    one, other, file = parts(0), parts(1), io.BytesIO()
    torch.save(state_of(one), file)
    file.seek(0)
    expected = draws(one)
    assert draws(other) != expected
    restore(other, torch.load(file, weights_only=True))
    assert draws(other) == expected


def test_pytorchs_own_generator_is_a_part() -> None:
    saved = state_of(torch.default_generator)
    drawn = torch.rand(3)
    restore(torch.default_generator, saved)
    assert torch.equal(torch.rand(3), drawn)


def test_what_has_no_state_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"a deque is no part of a state"):
        state_of({"returns": deque()})

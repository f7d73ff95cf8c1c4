"""`python -m jobs.check`, which the control plane starts for every trainer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobs import check
from orchestrator.config.trainers import TrainerSpec
from orchestrator.core.types import Run

asked: list[Run] = []


def remember(runs: Sequence[Run]) -> list[check.Problem]:
    asked.extend(runs)
    return []


def test_a_trainer_is_asked_about_each_configuration_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.asked", [])
    spec = TrainerSpec("mine", train="", check=f"{__name__}:remember")
    points = [({"lr": lr}, seed, threads) for seed in range(3) for lr in (1, 2) for threads in (1, 4)]
    runs = [spec.identify(overrides, seed, threads) for overrides, seed, threads in points]
    check._check_with(spec, runs)
    assert asked == runs[:4]

"""Which BenchMARL runs are called exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchRL, as it is imported
@pytest.mark.parametrize(
    ("saved", "with_grad", "sampling", "training", "word"),
    [
        (True, False, "cpu", "cpu", "exact"),
        (True, False, "cpu", "cuda:0", "no progress lost"),
        (True, False, "cuda", "cuda", "no progress lost"),
        (False, False, "cpu", "cpu", "reset"),
        (True, True, "cuda", "cuda", "reset"),
    ],
)
def test_only_what_is_equal_on_a_cpu_is_exact(
    saved: bool, with_grad: bool, sampling: str, training: str, word: str
) -> None:
    from jobs.trainers.benchmarl.engine.experiment import ResumableExperiment

    environments = SimpleNamespace(exact=saved)
    experiment: Any = SimpleNamespace(
        training_environments=environments,
        evaluation_environments=SimpleNamespace(exact=True),
        config=SimpleNamespace(collect_with_grad=with_grad, sampling_device=sampling, train_device=training),
    )
    assert ResumableExperiment.exactness.fget(experiment) == word  # type: ignore[attr-defined]

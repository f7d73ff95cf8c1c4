"""A trainer made of a configuration and a learner: how long it trains, what it refuses to evaluate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.evaluate import EvaluationRequest
from jobs.trainers import learner_trainer
from jobs.trainers.learner_trainer import LearnerTrainer
from jobs.trainers.ppo.training import TRAINER
from jobs.training.loop import Schedule
from jobs.training.processes.ranks import Ranks
from orchestrator.config.trainers.actor_critic import PPO
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import CheckpointFile

TASK = {"task": "bucket_brigade/hard"}


@pytest.mark.parametrize(
    ("more", "length"),
    [
        ({}, (10_000_000, None)),
        ({"steps": 64}, (64, None)),
        ({"minutes": 5}, (None, 5.0)),
        ({"minutes": 5, "steps": 64}, (64, 5.0)),
    ],
)
def test_it_trains_for_frames_minutes_or_whichever_comes_first(
    more: dict[str, Any], length: tuple[int | None, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Schedule] = []
    monkeypatch.setattr(learner_trainer, "train_on_schedule", lambda *given: found.append(given[2]))
    TRAINER.train(SimpleNamespace(run=PPO.identify({**TASK, **more}, 0, 1), ranks=Ranks()))
    assert [(schedule.frames, schedule.minutes) for schedule in found] == [length]


def test_a_logger_that_does_not_exist_is_found_before_the_queue() -> None:
    def schedule(_: object) -> Schedule:
        return replace(TRAINER.schedule(TRAINER.config.compose(TASK)), loggers=["tensorbord"])

    mistaken = replace(TRAINER, schedule=schedule)
    (problem,) = mistaken.check([PPO.identify(TASK, 0, 1)])
    assert "no logger named 'tensorbord'" in problem.message


@pytest.mark.parametrize(
    ("more", "option"), [({"film": Path("film.mp4")}, "--render"), ({"task": "other"}, "--on-task")]
)
def test_by_default_it_evaluates_on_the_task_of_training_without_film(
    more: dict[str, Any], option: str
) -> None:
    checkpoint = CheckpointFile(1, 1, "0" * 16, Path("none"))
    request = EvaluationRequest(PPO.identify(TASK, 0, 1), checkpoint, **more)
    plain = LearnerTrainer(TRAINER.config, TRAINER.learner, TRAINER.schedule)
    with pytest.raises(OrchestrateError, match="the trainer ppo") as error:
        plain.evaluate(request)
    assert error.value.hint == f"leave out {option}"

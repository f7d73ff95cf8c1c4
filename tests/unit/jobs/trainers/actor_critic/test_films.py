"""Films of policies: the first episode from its start to its end, and the returns of one without a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from jobs.trainers.actor_critic.environments.families import build
from jobs.trainers.actor_critic.learner import build_network, play_policy
from jobs.trainers.ppo.training import TRAINER
from jobs.training.loop import Played
from jobs.training.records.video import Film
from orchestrator.core.errors import OrchestrateError


def played(keys: dict[str, Any], film: Film | None) -> Played:
    config = TRAINER.config.compose(keys)
    torch.manual_seed(0)
    network = build_network(config, build(config.task, 1, 0, "cpu"))
    return play_policy(config, network, 3, seed=1, deterministic=False, film=film)


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ({"task": "gymnasium/CartPole-v1"}, (400, 600)),
        ({"task": "procgen/leaper", "task.test_num_levels": 200}, (448, 448)),
    ],
)
def test_the_first_episode_is_filmed_and_plays_as_without_a_film(
    keys: dict[str, Any], size: tuple[int, int], tmp_path: Path
) -> None:
    with Film(tmp_path / "film.mp4") as film:
        found = played(keys, film)
    assert found == played(keys, None)
    with av.open(str(film.path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == found.lengths[0] + 1
    assert frames[0].shape == (*size, 3)
    assert (np.abs(frames[0].astype(int) - frames[-1]) > 60).any(), "something moves"


@pytest.mark.parametrize("task", ["bucket_brigade/hard", "gymnasium/Picture-less-v0"])
def test_a_task_without_a_picture_says_so(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium
    from gymnasium.envs.classic_control import CartPoleEnv

    plain = type("Plain", (CartPoleEnv,), {"metadata": {"render_modes": []}})
    monkeypatch.setitem(
        gymnasium.registry, "Picture-less-v0", gymnasium.envs.registration.EnvSpec("Picture-less-v0", plain)
    )
    with (
        pytest.raises(OrchestrateError, match="has no picture") as error,
        Film(tmp_path / "film.gif") as film,
    ):
        played({"task": task}, film)
    assert error.value.hint == "leave out --render"
    assert not list(tmp_path.iterdir())

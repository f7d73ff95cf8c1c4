"""PPO of Stable-Baselines3 on CartPole, resumable by a callback with ``run``.

Usage: sb3_ppo.py ROLLOUTS [SEED]
"""

from __future__ import annotations

import sys

from orchestrate_run import run
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

ENVS, STEPS = 4, 64


class Resumable(BaseCallback):
    def _on_rollout_start(self):  # after an update, where all of the model is whole
        loss = self.logger.name_to_value.get("train/loss")
        if loss is not None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            run.log(self.num_timesteps, loss=loss, **{"return": sum(returns) / max(len(returns), 1)})
        run.save(self.num_timesteps)

    def _on_training_end(self):
        self._on_rollout_start()

    def _on_step(self):
        return True


def main():
    rollouts, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    envs = make_vec_env("CartPole-v1", ENVS, seed=seed)
    model = PPO("MlpPolicy", envs, n_steps=STEPS, n_epochs=4, seed=seed, device="cpu")
    frames = rollouts * ENVS * STEPS

    start = run.resume(model, total=frames, exactness="exact")  # with its environments and last observations
    model.learn(frames - start, callback=Resumable(), reset_num_timesteps=False)


if __name__ == "__main__":
    main()

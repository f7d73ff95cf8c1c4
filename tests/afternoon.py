"""Five training programs of a lab, of shapes that are public, none made for this project."""

from __future__ import annotations

from pathlib import Path

_PPO = """
import argparse, random, time
import numpy as np
from torch.utils.tensorboard import SummaryWriter

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exp-name", type=str, default="ppo", help="the name of this experiment")
    parser.add_argument("--seed", type=int, default=1, help="seed of the experiment")
    parser.add_argument("--learning-rate", type=float, default=2.5e-4, help="the optimizer's learning rate")
    parser.add_argument("--total-timesteps", type=int, default=2000)
    return parser.parse_args()

if __name__ == "__main__":
    args = parse_args()
    writer = SummaryWriter(f"runs/{args.exp_name}__{args.seed}__{int(time.time())}")
    random.seed(args.seed)
    np.random.seed(args.seed)
    for step in range(0, args.total_timesteps, 500):
        writer.add_scalar("charts/episodic_return", step * args.learning_rate + np.random.rand(), step)
        writer.add_scalar("losses/value_loss", 1 / (step + 1), step)
    writer.close()
"""

_MONITOR = """
import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--gamma", type=float, default=0.99, help="discount")
parser.add_argument("--total-timesteps", type=int, default=512)
parser.add_argument("--log-dir", default="logs")
args = parser.parse_args()
env = make_vec_env("CartPole-v1", n_envs=2, seed=args.seed, monitor_dir=args.log_dir)
model = PPO("MlpPolicy", env, n_steps=64, gamma=args.gamma, seed=args.seed, device="cpu")
model.learn(args.total_timesteps)
"""

_HYDRA = """
import random
import hydra

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    random.seed(cfg.seed)
    with open("metrics.csv", "w") as file:
        file.write("step,return\\n")
        for step in range(10):
            file.write(f"{step * 100},{step * cfg.optim.lr * 100 + random.random()}\\n")

if __name__ == "__main__":
    main()
"""

_JSON_LINES = """
import json
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_float("lr", 0.1, "step size")
flags.DEFINE_integer("seed", 0, "seed")

def main(_):
    rng = np.random.default_rng(FLAGS.seed)
    with open("log.jsonl", "w") as file:
        for step in range(10):
            row = {"step": step * 64, "episode_return": float(step * FLAGS.lr + rng.random())}
            file.write(json.dumps(row) + "\\n")

app.run(main)
"""

_JOB = """#!/bin/bash
#SBATCH --job-name=sim
#SBATCH --array=0-5
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --mem=1G
SEEDS=(0 1 2)
GAINS=(0.5 1.5)
SEED=${SEEDS[$((SLURM_ARRAY_TASK_ID % 3))]}
GAIN=${GAINS[$((SLURM_ARRAY_TASK_ID / 3))]}
./simulate.sh --gain $GAIN --seed $SEED
"""

_SIMULATOR = """#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    --gain) gain=${2/./} ;;
    --seed) seed=$2 ;;
  esac
  shift 2
done
echo "step,reward" > progress.csv
for i in 1 2 3 4 5; do echo "$((i * 10)),$((i * gain + seed))" >> progress.csv; done
"""

FILES = {
    "ppo.py": _PPO,
    "monitored.py": _MONITOR,
    "configured.py": _HYDRA,
    "conf/config.yaml": "seed: 0\noptim:\n  lr: 0.01\n  momentum: 0.9\n",
    "steps.py": _JSON_LINES,
    "sim.sh": _JOB,
    "simulate.sh": _SIMULATOR,
    ".gitignore": "results\n",
}
# The programs to start from with the number of runs that a drafted grid has.
PROGRAMS = {"ppo.py": 3, "monitored.py": 3, "configured.py": 3, "steps.py": 3, "sim.sh": 6}


def write_programs(folder: Path) -> None:
    """Write the programs into a folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    (folder / "simulate.sh").chmod(0o755)

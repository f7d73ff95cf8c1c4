#!/bin/bash
# IPPO against MAPPO on PettingZoo's multiwalker, each walker for its own reward or all for a shared one, three seeds:
# the 12 runs of sweeps/multiwalker.yaml, by plain Slurm. Submit from the project's folder.
#
#   sbatch launch/bench_multiwalker.sh                all in one job, as many runs at once as it has cores
#   sbatch --array=0-11 launch/bench_multiwalker.sh   a job array, one run in each element
#   launch/bench_multiwalker.sh chain 3               three jobs, each goes on from the checkpoints of the last
#
# Overrides come last:     sbatch launch/bench_multiwalker.sh experiment.max_n_frames=60_000 seed=0,1
# Options as with sbatch:  launch/bench_multiwalker.sh chain 3 --time=2:00:00 seed=0
# A job that had too little time saved everything: the same command again goes on.

#SBATCH --job-name=bench_multiwalker
#SBATCH --output=results/slurm/%x-%j.out
#SBATCH --open-mode=append
# That folder must exist: Slurm does not make it, and a job without its log ends at once.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=20:00:00
#SBATCH --signal=B:USR1@120
##SBATCH --mem=16G
##SBATCH --account=abc@v100
##SBATCH --constraint=v100-16g
##SBATCH --gpus=1
##SBATCH --qos=qos_gpu-t3
##SBATCH --hint=nomultithread
##SBATCH --mail-type=FAIL

set -eo pipefail

# Several values mean a run for every combination. experiment=gpu trains on a GPU.
benchmark=(
  experiment.lr=0.00005
  experiment.max_n_frames=3_000_000
  experiment.evaluation_interval=120_000
  experiment.evaluation_episodes=10
  seed=0,1,2
  task=pettingzoo/multiwalker,multiwalker/shared
  algorithm=ippo,mappo
)
options=(--results results --sweep multiwalker)
source launch/by_hand.sh benchmarl "$@"

#!/bin/bash
# PPO on nine scenarios of the game Bucket Brigade, five seeds each: the 45 runs of 10,000,000 steps of
# sweeps/bucket_brigade.yaml, by plain Slurm. Submit from the project's folder.
#
#   sbatch launch/bucket_brigade.sh                all in one job, as many runs at once as it has cores
#   sbatch --array=0-44 launch/bucket_brigade.sh   a job array, one run in each element
#   launch/bucket_brigade.sh chain 3               three jobs, each goes on from the checkpoints of the last
#
# Overrides come last:     sbatch launch/bucket_brigade.sh steps=1_000_000 seed=0,1
# Options as with sbatch:  launch/bucket_brigade.sh chain 3 --time=2:00:00 seed=0
# A job that had too little time saved everything: the same command again goes on.

#SBATCH --job-name=bucket_brigade
#SBATCH --output=results/slurm/%x-%j.out
#SBATCH --open-mode=append
# That folder must exist: Slurm does not make it, and a job without its log ends at once.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=4:00:00
#SBATCH --signal=B:USR1@120
##SBATCH --mem=16G
##SBATCH --account=abc@cpu
##SBATCH --hint=nomultithread
##SBATCH --mail-type=FAIL

set -eo pipefail

# Several values mean a run for every combination. device=cuda trains on a GPU.
benchmark=(
  steps=10_000_000
  task.opponents=3
  seed=0,1,2,3,4
  task=bucket_brigade/trivial_cooperation,bucket_brigade/early_containment,bucket_brigade/greedy_neighbor,bucket_brigade/sparse_heroics,bucket_brigade/rest_trap,bucket_brigade/chain_reaction,bucket_brigade/deceptive_calm,bucket_brigade/overcrowding,bucket_brigade/mixed_motivation
)
options=(--results results --sweep bucket_brigade)
source launch/by_hand.sh ppo "$@"

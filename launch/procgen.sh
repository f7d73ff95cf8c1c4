#!/bin/bash
# Four games of Procgen, three seeds each: the twelve runs of sweeps/procgen.yaml, by plain Slurm; with TRAINER=impala
# before the command, those of sweeps/procgen_impala.yaml. Submit from the project's folder, after `make procgen`.
#
#   sbatch launch/procgen.sh                all in one job, as many runs at once as it has cores
#   sbatch --array=0-11 launch/procgen.sh   a job array, one run in each element
#   launch/procgen.sh chain 3               three jobs, each goes on from the checkpoints of the last
#
# Overrides come last:     sbatch launch/procgen.sh steps=1_000_000 seed=0,1 task=procgen/maze,procgen/heist
# Options as with sbatch:  launch/procgen.sh chain 3 --time=2:00:00 seed=0
# A job that had too little time saved everything: the same command again goes on.

#SBATCH --job-name=procgen
#SBATCH --output=results/slurm/%x-%j.out
#SBATCH --open-mode=append
# That folder must exist: Slurm does not make it, and a job without its log ends at once.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=12
#SBATCH --time=8:00:00
#SBATCH --signal=B:USR1@120
##SBATCH --mem=36G
##SBATCH --account=abc@cpu
##SBATCH --hint=nomultithread
##SBATCH --mail-type=FAIL

set -eo pipefail

# Several values mean a run for every combination. Several processes for each: mode=parallel actors=4.
benchmark=(
  task=procgen/coinrun,procgen/starpilot,procgen/bigfish,procgen/fruitbot
  task.mode=easy
  task.num_levels=200
  steps=5_000_000
  evaluation_interval=500_000
  seed=0,1,2
)
TRAINER=${TRAINER:-ppo}
sweep=procgen
[[ $TRAINER == ppo ]] || sweep+=_$TRAINER
options=(--results results --sweep "$sweep")
source launch/by_hand.sh "$TRAINER" "$@"

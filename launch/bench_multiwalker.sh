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

submit_chain() {
  local sbatch_options=() links=$1 after="" form
  shift
  while [[ ${1:-} == --* ]]; do sbatch_options+=("$1"); shift; done
  mkdir -p results/slurm
  for ((link = 1; link <= links; link++)); do
    form=(link)
    ((link < links)) || form=()
    after=$(sbatch --parsable ${after:+--dependency=afterok:"$after" --kill-on-invalid-dep=yes} \
      "${sbatch_options[@]}" "$0" "${form[@]}" "$@")
    after=${after%%;*}
    echo "Submitted batch job $after"
  done
}

case ${1:-} in
  chain)
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 chain JOBS [--option=of-sbatch …] [key=value …]" >&2; exit 2; }
    shift
    submit_chain "$@"
    exit
    ;;
  link) # of a chain, and not its last: work that is left is no failure
    shift
    options+=(--chained)
    ;;
esac
if [[ -z ${SLURM_JOB_ID:-} ]]; then
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi

# The job's environment: that of the shell that submitted is active here too.
if command -v module >/dev/null; then module purge; fi
if [[ -f .venv/bin/activate ]]; then source .venv/bin/activate; fi
python=(python) # or: python=(uv run --no-sync python)

set -u
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then options+=(--only "$SLURM_ARRAY_TASK_ID"); fi
exec "${python[@]}" -P -m jobs.train "${options[@]}" benchmarl "${benchmark[@]}" "$@"

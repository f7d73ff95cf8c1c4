# Trains ${benchmark[@]}: what the scripts of this folder have in common. They `source launch/by_hand.sh TRAINER "$@"`
# in the project's folder.

trainer=$1
shift

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
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then # sbatch --nodes=2: each run on all of them
  python=(srun --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" "${python[@]}")
fi
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then options+=(--only "$SLURM_ARRAY_TASK_ID"); fi
exec "${python[@]}" -P -m jobs.train "${options[@]}" "$trainer" "${benchmark[@]}" "$@"

"""What `orchestrate init --from job.sh` writes: runs with the arguments that bash itself passes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.drafts.read import draft_of
from orchestrator.ui.drafts.text import rendered

SCRIPTS = {
    "product": (
        range(6),
        "#SBATCH --array=0-5%4\n#SBATCH -c 2\n#SBATCH --mem=4G --x\n#SBATCH --time=1:00:00 # an hour\n"
        "#SBATCH --gres=gpu:a100:1\n#SBATCH -p gpu\nmodule load cuda; echo $HOME\n"
        "SEEDS=(1 2 3)\nLRS=(1e-3 1e-4)\n"
        "SEED=${SEEDS[$SLURM_ARRAY_TASK_ID % 3]}\nLR=${LRS[$((SLURM_ARRAY_TASK_ID / ${#SEEDS[@]}))]}\n"
        'srun python train.py \\\n  --lr "$LR" --seed=$SEED > log.txt 2>&1\n',
    ),
    "zip": (
        range(1, 4),
        "#SBATCH --array=1-3\ntasks=(a b-c 'd')\nlrs=(0.1 0.2 0.30)\ni=$(( $SLURM_ARRAY_TASK_ID - 1 ))\n"
        "python -u train.py ${tasks[$i]} --lr ${lrs[i]}  # the run\n",
    ),
    "loops": (
        [0],
        "cd $SLURM_SUBMIT_DIR\nfor seed in 1 2 3; do\n  for lr in 1e-3 0.5\n"
        "  do python train.py --seed $seed --lr ${lr} &\n"
        "  done\ndone; wait\n",
    ),
    "seq": (
        [0],
        "for i in $(seq 1 3); do for j in {0..1}; do python3 train.py --i $i --name run_${i}_$j; done; done",
    ),
    "id": ([0, 2, 4], "#SBATCH --array=0-4:2\npython train.py --seed ${SLURM_ARRAY_TASK_ID}\n"),
    "simulator": (
        range(4),
        "#SBATCH --array=0-3\nGAINS=(0.5 1.5)\ngain=${GAINS[$((SLURM_ARRAY_TASK_ID / 2))]}\n"
        "bash ./simulate.sh --gain $gain --seed $((SLURM_ARRAY_TASK_ID % 2))\n",
    ),
    "one": ([0], 'NAME="a b"\npython train.py --name "$NAME" --fast\n'),
}


def drafted(folder: Path, text: str) -> str:
    (folder / "job.sh").write_text(text)
    return rendered(draft_of(folder / "job.sh", "job.sh"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_have_the_arguments_that_bash_passes(name: str, tmp_path: Path) -> None:
    tasks, text = SCRIPTS[name]
    runs = runs_of(parse_grid(drafted(tmp_path, text), "grid.yaml")).runs
    given = sorted(arguments(run.point["command"], run.point)[1:] for run in runs)
    show = 'show() { local IFS=$\'\\t\'; echo "$*" >> shown; }; python() { show "$@"; }; '
    show += 'python3() { show "$@"; }; bash() { show "$@"; }; '
    show += 'srun() { "$@"; }; module() { :; }\n'
    for task in tasks:
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_SUBMIT_DIR": "."}
        program = (show + text).replace("> log.txt 2>&1", "").replace(" &\n", "\n")
        subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert given == sorted(line.split("\t") for line in (tmp_path / "shown").read_text().splitlines())


def test_options_of_the_job_are_resources(tmp_path: Path) -> None:
    text = drafted(tmp_path, SCRIPTS["product"][1])
    assert "matrix:\n" in text
    disabled = drafted(tmp_path, "##SBATCH --array=0-5\n##SBATCH --mem=4G\npython train.py\n")
    assert "mem:" not in disabled
    assert "# 1 start of a program" in disabled
    assert "zip:\n" in drafted(tmp_path, SCRIPTS["zip"][1])
    asked = parse_grid(text, "grid.yaml").resources.stated
    assert asked["cpus_per_task"] == 2
    assert asked["gpus"] == 1
    assert "# partition: gpu  # belongs in a profile" in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=1\npython train.py --x $(cat f)", 2),
        ("if [ $A = 1 ]; then\npython train.py\nfi", 1),
        ("X=$(date)\n\npython train.py $X", 3),
        ("for a in 1 2; do python train.py $a", 1),
        ("python train.py $1", 1),
        ("A=1 python train.py", 1),
        ("source env && python train.py", 1),
    ],
)
def test_what_is_not_read_is_named_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match=rf"job\.sh:{line}: found .* not read"):
        drafted(tmp_path, text)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("body", ["python train.py $i $j", "X=1", ""])
def test_endless_loops_are_refused_at_once(body: str, tmp_path: Path) -> None:
    text = f"for i in $(seq 1 100000); do\nfor j in $(seq 1 100000); do\n{body}\ndone\ndone\n"
    with pytest.raises(
        OrchestrateError, match=r"job\.sh:\d: found (more than 10,000 runs|loops of more than)"
    ):
        drafted(tmp_path, text)

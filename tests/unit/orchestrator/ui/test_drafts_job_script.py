"""What `orchestrate init --from job.sh` writes: runs with the arguments that bash itself passes."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from pathlib import Path

import pytest

from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.drafts import bash_starts
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
    "if": (
        range(4),
        "#SBATCH --array=0-3\nset -euo pipefail\nT=$SLURM_ARRAY_TASK_ID\n# don't\n"
        "if [ $T -eq 0 ]; then LR=1e-3; elif (( T > 2 )); then LR=0.5; else LR=1e-4; fi\n"
        'case $T in 0|3) ALG="a b";; *) ALG=sac ;; esac\n'
        'train() { python train.py --lr $LR "$@"; }\ntrain --alg "$ALG" --note "x > y & z" > log.txt 2>&1\n',
    ),
    "lines": (
        range(1, 4),
        '#SBATCH --array=1-3\nread -r A B < <(sed -n "${SLURM_ARRAY_TASK_ID}p" args.txt)\n'
        "C=$(awk -v id=$SLURM_ARRAY_TASK_ID 'NR==id {print $2}' args.txt)\n"
        "mapfile -t ROWS < args.txt\n"
        "D=$(head -n $SLURM_ARRAY_TASK_ID args.txt | tail -n 1 | cut -d ' ' -f 1)\n"
        "python train.py $A $B --c=$C --d $D --all ${ROWS[SLURM_ARRAY_TASK_ID - 1]} ${A##*/} ${B:-x}\n",
    ),
    "numbers": (
        range(3),
        "#SBATCH --array=0-2\ncase $SLURM_ARRAY_TASK_ID in 0) ARGS=;;\n"
        "1) ARGS='--tau 0.1';; 2) ARGS='-x y z';;\n"
        "esac\neval python train.py --name n $ARGS --seed 1\n",
    ),
    "spellings": (
        [0],
        "for x in .90 -.5 -05 1_000 .inf - ~x no 0x1F 1e5 +1 '' 'a: b'; do python t.py \"$x\"; done\n",
    ),
    "one": ([0], 'NAME="a b"\npython train.py --name "$NAME" --fast\n'),
}


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "args.txt").write_text("ppo 1e-3\nx/sac 2\na2c 0.5\n")


def drafted(folder: Path, text: str) -> str:
    (folder / "job.sh").write_text(text)
    return rendered(draft_of(folder / "job.sh", "job.sh"))


def argument_lists(grid: str) -> list[list[str]]:
    runs = runs_of(parse_grid(grid, "grid.yaml")).runs
    return [arguments(run.point["command"], run.point) for run in runs]


@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_have_the_arguments_that_bash_passes(name: str, tmp_path: Path) -> None:
    tasks, text = SCRIPTS[name]
    given = sorted(argv[1:] for argv in argument_lists(drafted(tmp_path, text)))
    show = 'show() { local IFS=$\'\\t\'; echo "$*" >> shown; }; python() { show "$@"; }; '
    show += 'python3() { show "$@"; }; bash() { show "$@"; }; '
    show += 'srun() { "$@"; }; module() { :; }\n'
    for task in tasks:
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_SUBMIT_DIR": "."}
        program = (show + text).replace("> log.txt 2>&1", "").replace(" &\n", "\n")
        subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, check=True, timeout=300)
    shown = {*(tmp_path / "shown").read_text().splitlines()}
    assert given == sorted(line.split("\t") for line in shown)


def test_options_of_the_job_are_resources(tmp_path: Path) -> None:
    text = drafted(tmp_path, SCRIPTS["product"][1])
    assert "matrix:\n" in text
    disabled = drafted(tmp_path, "##SBATCH --array=0-5\n##SBATCH --mem=4G\npython train.py\n")
    assert "mem:" not in disabled
    assert "# 1 start of a program" in disabled
    exported = drafted(tmp_path, "#SBATCH --array=0-1\nexport SEED=$SLURM_ARRAY_TASK_ID\nbash train.sh\n")
    assert 'command: [env, "SEED={seed}", bash, train.sh]\nmatrix:\n  seed: [0, 1]\n' in exported
    unused = drafted(tmp_path, "#SBATCH --array=0-1\n# SLURM_ARRAY_TASK_ID\npython train.py\n")
    assert "  SLURM_ARRAY_TASK_ID: [0, 1]\n" in unused
    launcher = drafted(
        tmp_path, "for i in 1 2; do sbatch -J x$i --export=ALL,LR=0.$i run.sh $i $MODE; done\n"
    )
    assert 'command: [env, "LR={LR}", bash, run.sh, "{run_sh}", "{MODE}"]\n' in launcher
    chosen = drafted(tmp_path, "if [ $MODE = x ]; then A=1; else A=2; fi; module load x; python train.py $A")
    assert "# Left out: module, $MODE.\n" in chosen
    assert "zip:\n" in drafted(tmp_path, SCRIPTS["zip"][1])
    asked = parse_grid(text, "grid.yaml").resources.stated
    assert asked["cpus_per_task"] == 2
    assert asked["gpus"] == 1
    assert "# partition: gpu  # belongs in a profile" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\npython train.py --x $(cat f)", r": found an error of bash, 'f: No such file"),
        ("if [ $A = 1 ]; then\npython train.py\nfi", ": found no line that starts a program"),
        (
            "for i in 1 2; do python a.py --out x-$(date)-$i; done",
            r": found x-\$\(date\)-1, which depends on",
        ),
        ("for a in 1 2; do python train.py $a", r":\d: found an error of bash, 'syntax error"),
        ("python - <<EOF\ntrain()\nEOF", ": found no line that starts a program; found python"),
        (
            "A=(4 5)\npython a.py ${A[$SLURM_ARRAY_TASK_ID]}",
            ":2: found SLURM_ARRAY_TASK_ID without #SBATCH --array",
        ),
        ("python a.py --x $((N - 1))", r": found computations with \$N, expected"),
        ("f() { f; }\npython a.py\nf", r":1: found an error of bash, 'f: maximum function nesting"),
        ("sed -i s/a/b/ args.txt\ngmx run", ": found no line that starts a program; found sed, gmx"),
        ("python a.py\npython b.py --x", r": found 'python a\.py' \(line 1\) and .*b\.py --x' \(line 2\)"),
    ],
)
def test_arguments_that_are_not_known_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match=rf"job\.sh{message}"):
        drafted(tmp_path, text)


def test_damaged_scripts_are_drafted_or_refused(tmp_path: Path) -> None:
    draw = random.Random(0)
    for _, text in SCRIPTS.values():
        for piece in (b"'", b"$(", b"\xef -\xef", b"\2>|"):
            at = draw.randrange(len(text))
            (tmp_path / "job.sh").write_bytes(text.encode()[:at] + piece + text.encode()[at:])
            with contextlib.suppress(OrchestrateError):
                parse_grid(rendered(draft_of(tmp_path / "job.sh", "job.sh")), "grid.yaml")
    (tmp_path / "job.sh").write_bytes(b"set -\xef\npython train.py")
    with pytest.raises(OrchestrateError, match=r"job\.sh:1: found an error of bash"):
        draft_of(tmp_path / "job.sh", "job.sh")


def test_what_only_the_job_has_is_a_key_to_fill_in(tmp_path: Path) -> None:
    text = (
        'eval "$(conda shell.bash hook)"\nfor i in 1 2; do CUDA_VISIBLE_DEVICES=$i python train.py '
        "--data $HOME/data --out=$SCRATCH/out_$i --name run_$(date +%s); done\n"
    )
    grid = drafted(tmp_path, text)
    for name in ("HOME", "SCRATCH", "date"):
        assert f"  # {name}: …  # required: $" in grid
        with pytest.raises(OrchestrateError, match="asks for"):
            argument_lists(grid)
        grid = grid.replace(f"# {name}: …", f"{name}: /{name}")
    shown = ["--data", "/HOME/data", "--out=/SCRATCH/out_2", "--name", "run_/date"]
    assert argument_lists(grid)[1][2:] == shown


def test_idioms_of_job_scripts_are_read(tmp_path: Path) -> None:
    text = (
        "exec > >(tee -a log) 2>&1\npushd src\nexport SIZE=$((NODES * 4)) PORT=$(expr 1 + $SLURM_JOBID)\n"
        "if [ $NODES -gt 1 ]; then echo many; fi\n"
        "for i in 1 2; do python train.py $1 --tmp x.$$ --seed $i > $(date +%F)_$i.log & PIDS+=($!); done\n"
        "wait ${PIDS[@]}; while kill -0 $PIDS; do sleep 9; done\n"
    )
    grid = drafted(tmp_path, text)
    assert 'command: [python, train.py, "{argument_1}", --tmp, "x.{pid}", --seed, "{seed}"]' in grid
    assert "# Left out: pushd, expr, kill, $SLURM_JOBID, export PORT, export SIZE." in grid
    grid = drafted(tmp_path, "for i in 1 2; do python train.py --seed $i --name run-$(date)-$i; done")
    assert '--seed, "{seed}", --name, "run-{date}-{seed}"]\n  # date: …  # required' in grid
    text = "# sbatch x.sh $SLURM_ARRAY_TASK_ID\npython train.py --seed ${SLURM_ARRAY_TASK_ID:-3}\n"
    assert 'command: [python, train.py, --seed, "3"]' in drafted(tmp_path, text)
    wrapped = "for i in 1 2; do sbatch -J x --wrap {} ; done\n"
    for spelled in ('"python train.py --seed $i"', '="python train.py --seed $i"'):
        grid = drafted(tmp_path, wrapped.format(spelled).replace(" =", "="))
        assert "command: [python, train.py, --seed" in grid
        assert "seed: [1, 2]" in grid
    grid = drafted(tmp_path, wrapped.format('"source env; python train.py $i"'))
    assert "command: [bash, -c, " in grid
    with pytest.raises(OrchestrateError, match="found no line"):
        drafted(tmp_path, wrapped.format("''"))


def test_a_script_writes_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text(f"#!/bin/sh\necho started > {tmp_path}/started\n")
    (tmp_path / "tool").chmod(0o755)
    text = (
        f"cd {tmp_path.parent}; rm args.txt; /bin/rm args.txt; command rm args.txt; mkdir logs\n"
        f"awk 'BEGIN {{system(\"rm args.txt\")}}'; sed -i d args.txt; sed 'w made' args.txt; kill $$\n"
        "command -- sed 'w made' args.txt; builtin command sed -i d args.txt\n"
        "(unset -f sed; sed 'w made' args.txt)\n"
        f"exec 3>made; ./tool; {tmp_path}/tool; tool; echo x > made; echo y >> args.txt; . ./tool\n"
        "export A=1\npython train.py | tee made\n$HOME/bin/python train.py\n"
    )
    with pytest.raises(OrchestrateError, match="expected one program"):
        drafted(tmp_path, text)
    grid = drafted(tmp_path, text.replace("./tool;", "").replace(f"{tmp_path}/tool;", ""))
    assert "command: [python, train.py]\n" in grid
    assert "# Left out: cd, rm, /bin/rm, mkdir, awk, sed, kill, tool, source, tee, $HOME, export A." in grid
    assert sorted(path.name for path in tmp_path.iterdir()) == ["args.txt", "job.sh", "tool"]
    assert (tmp_path / "args.txt").read_text().startswith("ppo 1e-3\n")
    with pytest.raises(OrchestrateError, match="restricted: cannot redirect output"):
        drafted(tmp_path, "python train.py\necho 1 >& made\n")
    grid = drafted(tmp_path, "PATH=/bin:/usr/bin\nrm args.txt\npython train.py\n")
    assert "# Left out: rm." in grid
    assert (tmp_path / "args.txt").exists()
    assert not (tmp_path / "made").exists()


def test_names_that_bash_keeps_for_itself_are_variables_of_the_script(tmp_path: Path) -> None:
    text = (
        "export PATH=$HOME/bin:$PATH\nENVS=(a/b ENV)\nfor ENV in ${ENVS[@]}; do export SHELL=$ENV\n"
        'python train.py --ENV "$ENV" --x PATH=${ENV}\ndone\n'
    )
    grid = drafted(tmp_path, text)
    assert 'command: [env, "SHELL={SHELL}", python, train.py, --ENV, "{SHELL}", --x, "PATH={SHELL}"]' in grid
    assert "SHELL: [a/b, ENV]" in grid


def test_what_is_composed_of_other_arguments_is_no_key(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -J ppo-sweep -c 4 --mem 8G  # small\n#SBATCH --gres=gpu:1\nset -euo pipefail\n"
        "echo begins | tee log\nfor lr in 0.1 1e-3; do for seed in 1 2; do\n"
        "python train.py --lr $lr --seed $seed --env Pole-v1 --dir out/v1_${lr}_$seed --again $seed\n"
        "done; done\n"
    )
    grid = drafted(tmp_path, text)
    assert '--dir, "out/v1_{lr}_{seed}", --again, "{seed}"]' in grid
    assert 'matrix:\n  lr: [0.1, "1e-3"]\n  seed: [1, 2]\n' in grid
    assert "name: ppo-sweep\n" in grid
    assert 'resources: {cpus_per_task: 4, gpus: 1, mem: "8G"}' in grid


@pytest.mark.parametrize("body", ["python train.py $i $j", "X=1"])
def test_endless_loops_are_refused(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bash_starts, "_LONGEST", 0.5)
    text = f"for i in $(seq 1 100000); do\nfor j in $(seq 1 100000); do\n{body}\ndone\ndone\n"
    with pytest.raises(OrchestrateError, match=r"job\.sh: found loops that take more than 0\.5 s"):
        drafted(tmp_path, text)

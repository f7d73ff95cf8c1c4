"""What `orchestrate init --from sweep.yaml` writes: the runs that W&B, SEML and Hydra would start."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.drafts.read import draft_of
from orchestrator.ui.drafts.text import rendered

WANDB = """
program: train.py
method: grid
metric: {name: charts/episodic_return, goal: maximize}
parameters:
  lr: {values: [0.1, 0.01]}
  seed: {values: [1, 2, 3]}
  env-id: {value: CartPole-v1}
  optimizer: {parameters: {name: {values: [adam, sgd]}}}
"""
SEML = """
seml: {executable: main.py, project_root_dir: .}
slurm:
  - experiments_per_job: 1
    sbatch_options: {gres: "gpu:1", mem: 16G, cpus-per-task: 2, time: 0-08:00}
fixed: {dataset: {name: cora}, epochs: 10}
grid:
  lr: {type: choice, options: [0.1, 0.01]}
  depth: {type: range, min: 1, max: 4, step: 1}
  decay: {type: loguniform, min: 0.0001, max: 0.01, num: 3}
"""


def drafted(folder: Path, text: str, name: str = "sweep.yaml") -> str:
    (folder / name).write_text(text)
    return rendered(draft_of(folder / name, name))


def argument_lists(text: str) -> list[list[str]]:
    runs = runs_of(parse_grid(text, "grid.yaml")).runs
    return sorted(arguments(run.point["command"], run.point) for run in runs)


def test_a_sweep_of_wandb(tmp_path: Path) -> None:
    text = drafted(tmp_path, WANDB)
    assert "metrics: {from: wandb, return: charts/episodic_return}" in text
    expected = [
        [
            "python",
            "train.py",
            f"--lr={lr}",
            f"--seed={seed}",
            "--env-id=CartPole-v1",
            f"--optimizer.name={name}",
        ]
        for lr, seed, name in product((0.1, 0.01), (1, 2, 3), ("adam", "sgd"))
    ]
    assert sorted(map(sorted, argument_lists(text))) == sorted(map(sorted, expected))


def test_the_command_of_a_sweep_and_its_distributions(tmp_path: Path) -> None:
    command = "command: ['${env}', python3, '${program}', run, '${args_no_hyphens}']\n"
    space = "parameters: {lr: {distribution: log_uniform_values, min: 0.0001, max: 0.01}}\nmethod: bayes\n"
    text = drafted(tmp_path, f"program: t.py\n{command}{space}metric: {{name: loss, goal: minimize}}\n")
    assert argument_lists(text) == [
        ["python3", "t.py", "run", f"lr={lr}"] for lr in ("0.0001", "0.001", "0.01")
    ]
    assert "lr is a distribution there" in text
    assert "--metric loss:min" in text


def test_an_experiment_of_seml(tmp_path: Path) -> None:
    text = drafted(tmp_path, SEML)
    fixed = ["epochs=10", "dataset.name=cora"]
    expected = [
        ["python", "main.py", "with", f"lr={lr}", f"depth={depth}", f"decay={decay}", *fixed]
        for lr, depth, decay in product((0.1, 0.01), (1, 2, 3), (0.0001, 0.001, 0.01))
    ]
    assert sorted(map(sorted, argument_lists(text))) == sorted(map(sorted, expected))
    asked = parse_grid(text, "grid.yaml").resources.stated
    assert (asked["cpus_per_task"], asked["gpus"]) == (2, 1)


def test_keys_of_seml_that_advance_together(tmp_path: Path) -> None:
    grid = "{a: {type: choice, options: [1, 2], zip_id: x}, b: {type: choice, options: [3, 4], zip_id: x}}"
    text = drafted(tmp_path, f"seml: {{executable: main.py}}\ngrid: {grid}\n")
    assert [one[3:] for one in argument_lists(text)] == [["a=1", "b=3"], ["a=2", "b=4"]]


@pytest.mark.parametrize(
    ("sweep_file", "seeds"),
    [
        ("seml: {executable: main.py}\nfixed: {seed: 7}\nrandom: {samples: 3, seed: 1}\n", [7]),
        ("seml: {executable: main.py}\ngrid: {seed: {type: choice, options: [4, 5]}}\n", [4, 5]),
        ("parameters: {seed: {value: 7}}\n", [7]),
    ],
)
def test_seeds_of_a_sweep_file_are_those_of_the_grid(
    tmp_path: Path, sweep_file: str, seeds: list[int]
) -> None:
    grid = parse_grid(drafted(tmp_path, sweep_file), "grid.yaml")
    assert sorted(run.seed for run in runs_of(grid).runs) == seeds


def test_the_sweep_in_a_config_of_hydra(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(
        "seed: 0\nlr: 0.1\nhydra: {mode: MULTIRUN, sweeper: {params: {lr: '0.1,0.01', seed: 'range(2)'}}}\n"
    )
    program = "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg): pass\n"
    expected = [["python", "train.py", f"seed={seed}", f"lr={lr}"] for seed in (0, 1) for lr in (0.01, 0.1)]
    assert argument_lists(drafted(tmp_path, program, "train.py")) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "neither `parameters`"),
        ("parameters: {lr: {min: a, max: 2}}", "lr: found"),
        ("seml: {}\nsmall: {fixed: {a: 1}}", "the section small"),
        ("parameters: {a: {value: 1}}\ncommand: ['${args_json}']", "found \\${args_json}"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match=said):
        drafted(tmp_path, text)


def test_no_change_of_a_file_ends_in_a_traceback(tmp_path: Path) -> None:
    chance = random.Random(0)
    for _ in range(150):
        text = list(chance.choice((WANDB, SEML)))
        for _ in range(chance.randrange(1, 6)):
            text[chance.randrange(len(text))] = chance.choice("{}[]:, \n-a1'\"")
        try:
            drafted(tmp_path, "".join(text))
        except OrchestrateError:
            pass

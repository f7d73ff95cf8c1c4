"""What `orchestrate init --from train.py` writes: a grid whose runs get the program's own defaults."""

from __future__ import annotations

import argparse
import contextlib
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.config.command_line.placeholders import arguments
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli import app
from orchestrator.ui.drafts.read import draft_of
from orchestrator.ui.drafts.text import rendered
from orchestrator.ui.scaffold import begin_from

ARGPARSE = """
import argparse
RATE = 1e-5
parser = argparse.ArgumentParser()
parser.add_argument("env", help="the task", default="x", nargs="?")
parser.add_argument("--lr", type=float, default=RATE, help="rate: {a}, # and 'quotes'")
parser.add_argument("--random-seed", type=int, default=0)
parser.add_argument("--hidden", nargs="+", type=int, default=[64, 64])
parser.add_argument("--cuda", action="store_true")
parser.add_argument("--norm", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--steps", type=int, default=1e6)
parser.add_argument("--frames", type=int, default=10 * 2**10)
parser.add_argument("--log-dir", default="runs")
parser.add_argument("--note", default="a, b: null #")
parser.add_argument("--no", default="no")
parser.add_argument("--api-key", default="abc")
parser.add_argument("-v", action="count", default=0)
parser.add_argument("--clip", type=float)
"""
TYRO = '''
import os, tyro, dataclasses
from dataclasses import dataclass
from torch.utils.tensorboard import SummaryWriter
@dataclass
class Optimizer:
    lr: float = 2.5e-4
    """the rate"""
@dataclass
class Base:
    seed: int = 1
@dataclass
class Args(Base):
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    env_id: str = "CartPole-v1"
    """the environment"""
    norm: bool = True
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
    hidden: tuple[int, ...] = (64, 32)
    target_kl: float | None = None
args = tyro.cli(Args)
'''
CLICK = """
import click
@click.command()
@click.option("--lr", default=1e-3, help="rate")
@click.option("--shout/--no-shout", default=True)
@click.option("--fast", is_flag=True)
@click.argument("seed", type=int)
def main(lr, shout, fast, seed): ...
"""
TYPER = """
import typer
from typing import Annotated
app = typer.Typer()
@app.command()
def main(seed: int, learning_rate: float = 1e-3, wide: bool = False,
         k: int = typer.Option(3, "--kk", help="n")): ...
"""
ABSL = """
from absl import flags
flags.DEFINE_float("lr", 1e-3, "The rate")
flags.DEFINE_bool("norm", True, "")
flags.DEFINE_integer("seed", 3, "")
"""
ARGV = "import sys\nlr = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5\nseed = int(sys.argv[2])\n"
FIRST_ARGUMENTS = {
    TYRO: "--seed 0 --env_id CartPole-v1 --norm --optimizer.lr 0.00025 --hidden 64 32",
    CLICK: "--lr 0.001 --shout 0",
    TYPER: "0 --learning-rate 0.001 --no-wide --kk 3",
    ABSL: "--lr=0.001 --norm=true --seed=0",
    ARGV: "0.5 0",
}


def drafted(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return rendered(draft_of(folder / name, name))


def argument_lists(grid: str) -> list[list[str]]:
    """The arguments of each run of a grid, without the program."""
    runs = runs_of(parse_grid(grid, "grid.yaml")).runs
    points: list[Mapping[str, Any]] = [run.point for run in runs]
    return [arguments(point["command"], point)[2:] for point in points]


def test_arguments_of_a_draft_are_the_defaults_of_argparse(tmp_path: Path) -> None:
    text = drafted(tmp_path, ARGPARSE)
    names: dict[str, Any] = {}
    exec(ARGPARSE, names)
    parser: argparse.ArgumentParser = names["parser"]
    lists = argument_lists(text)
    assert len(lists) == 3
    for seed, given in enumerate(lists):
        assert vars(parser.parse_args(given)) == {**vars(parser.parse_args([])), "random_seed": seed}
    turned = argument_lists(text.replace("norm: true", "norm: false").replace("cuda: false", "cuda: true"))[0]
    assert (parser.parse_args(turned).norm, parser.parse_args(turned).cuda) == (False, True)
    assert "  lr: 1e-05  # float; rate: {a}, # and 'quotes'\n" in text
    assert "# api-key: left out of command: it looks like a secret" in text
    assert "log-dir: runs  # output folder" in text


@pytest.mark.parametrize("program", FIRST_ARGUMENTS, ids=["tyro", "click", "typer", "absl", "argv"])
def test_options_of_other_libraries_are_passed_in_their_way(program: str, tmp_path: Path) -> None:
    text = drafted(tmp_path, program)
    lists = argument_lists(text)
    assert " ".join(lists[0]) == FIRST_ARGUMENTS[program]
    assert len(lists) == 3
    assert ("# metrics: {from: tensorboard}  # found by itself" in text) == (program == TYRO)


@pytest.mark.parametrize(
    ("line", "found"),
    [("csv.writer(file)", True), ("frame.to_csv('a.csv')", True), ("print(csv)", False)],
)
def test_a_csv_file_is_found_as_source_of_metrics(line: str, found: bool, tmp_path: Path) -> None:
    assert ("# metrics: {from: csv}  # found by itself" in drafted(tmp_path, line)) is found


def test_keys_of_a_config_of_hydra_are_passed(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/main.yaml").write_text(
        "defaults: [_self_, {model: mlp}]\nseed: 0\noptimizer: {lr: 0.1, betas: [0.9, 0.99]}\nclip: null\n"
        "out: ${hydra:runtime.cwd}\nhydra: {run: {dir: x}}\n"
    )
    main = '@hydra.main(version_base=None, config_path="conf", config_name="main")\ndef main(config): ...\n'
    text = drafted(tmp_path, f"import hydra\n{main}")
    first = ["model=mlp", "seed=0", "optimizer.lr=0.1", "optimizer.betas=[0.9, 0.99]", "clip=null"]
    assert argument_lists(text)[0] == first
    (tmp_path / "conf/main.yaml").write_text("a: [")
    with pytest.raises(OrchestrateError, match=r"main\.yaml:\d+:\d+: "):
        drafted(tmp_path, f"import hydra\n{main}")


def test_a_required_option_is_refused_until_it_has_a_value(tmp_path: Path) -> None:
    text = drafted(
        tmp_path, "from argparse import *\np = ArgumentParser()\np.add_argument('--data', required=True)"
    )
    with pytest.raises(OrchestrateError, match="asks for 'data'"):
        argument_lists(text)
    assert argument_lists(text.replace("# data: …", "data: x")) == [["--data", "x"]]
    begun = begin_from(tmp_path, tmp_path / "train.py")
    assert begun.commands[-4] == "# fill in data in sweeps/train.yaml"


def test_a_grid_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ABSL)
    begun = begin_from(tmp_path, tmp_path / "train.py")
    assert begun.written == (tmp_path / "sweeps/train.yaml",)
    assert "orchestrate check sweeps/train.yaml" in begun.commands[-3]
    assert not any("fill in" in command for command in begun.commands)
    assert begin_from(tmp_path, tmp_path / "train.py").kept == begun.written


def test_bad_input_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match=r"train\.py:2:\d+: is not Python"):
        drafted(tmp_path, "import sys\ndef (:\n")
    with pytest.raises(OrchestrateError, match="found no file"):
        draft_of(tmp_path / "none.py", "none.py")
    with pytest.raises(OrchestrateError) as of_folder:
        draft_of(tmp_path, "runs")
    assert "collect SWEEP --with runs" in str(of_folder.value.hint)
    draw = random.Random(0)
    for text in (ARGPARSE, TYRO, CLICK, TYPER, ABSL, ARGV):
        for _ in range(15):
            content = bytearray(text.encode()[: draw.randrange(len(text))])
            content += draw.randbytes(draw.choice((0, 3)))
            (tmp_path / "cut.py").write_bytes(bytes(content))
            with contextlib.suppress(OrchestrateError):
                parse_grid(rendered(draft_of(tmp_path / "cut.py", "cut.py")), "grid.yaml")


def test_relative_imports_of_names_are_followed(tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text("from . import train\nfrom .. import y\nRATE = 0.5\n")
    text = "import argparse\nfrom . import rates\np = argparse.ArgumentParser()\n"
    grid = drafted(tmp_path, text + "p.add_argument('--lr', type=float, default=RATE)\n")
    assert "lr: 0.5" in grid


def test_a_parser_of_another_module_is_read_and_what_is_not_found_is_said(tmp_path: Path) -> None:
    (tmp_path / "lab/args").mkdir(parents=True)
    (tmp_path / "lab/args/__init__.py").write_text(
        "def get_parser(p):\n    p.add_argument('--lr', type=float, default=0.5)\n"
        "    p.add_argument('--steps', type=int, default=5)\n"
        "    for name in ('a', 'b'):\n        p.add_argument(f'--{name}', default=1)\n"
    )
    grid = drafted(
        tmp_path, "from lab.args import get_parser\nget_parser(p)\np.add_argument('--steps', type=float)\n"
    )
    assert argument_lists(grid) == [["--lr", "0.5"]]
    assert "# f'--{name}': left out of command: its name is not constant" in grid
    assert "# steps: left out of command: it is declared in two ways" in grid
    grid = drafted(tmp_path, "import fire\nfire.Fire(main)\n", "other.py")
    assert "# No options found in its sources" in grid
    assert 'into command, as in "--lr", "{lr}"' in grid


def test_defaults_that_are_no_constants_are_left_out(tmp_path: Path) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\n"
    text += "p.add_argument('--root', default=(-1) ** 0.5)\np.add_argument('--lr', default=0.5)\n"
    text += f"p.add_argument('--sum', default={'+'.join(['1'] * 600)})\n"
    grid = drafted(tmp_path, text)
    assert "lr: 0.5" in grid
    assert "its default is (-1) ** 0.5" in grid
    assert "its default is a long expression" in grid


@pytest.mark.parametrize("more", [["--on", "slurm"], ["--resume"]])
def test_from_with_options_of_other_files_is_refused(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    answer = CliRunner().invoke(app, ["init", str(tmp_path), "--from", str(tmp_path / "train.py"), *more])
    assert isinstance(answer.exception, OrchestrateError)
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.parametrize(
    ("source", "start"),
    [
        ("from .net import gain", "[python, -m, agents.train]"),
        ("from agents.net import gain", "[python, -m, agents.train]"),
        ("import net", "[python, agents/train.py]"),
        ("import json", "[python, agents/train.py]"),
        ("__package__ = 'agents'\nfrom .net import gain", "[python, agents/train.py]"),
        ("try:\n    from .net import gain\nexcept ImportError:\n    pass", "[python, agents/train.py]"),
    ],
)
def test_a_program_that_imports_its_package_is_started_as_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, start: str
) -> None:
    (tmp_path / "agents").mkdir()
    for name in ("net.py", "train.py"):
        (tmp_path / "agents" / name).write_text(source)
    monkeypatch.chdir(tmp_path)
    assert f"command: {start}" in rendered(draft_of(Path("agents/train.py"), "agents/train.py"))

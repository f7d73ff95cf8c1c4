"""Amounts of money, time and size: what is none is refused in one line, wherever it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from orchestrator.config.profiles import parse_profile
from orchestrator.core.errors import OrchestrateError
from orchestrator.planning.plan import SubmitOptions
from orchestrator.ui.cli import app

# What else a command needs before it looks at the option.
_NEEDED = {
    "sweep": ["--grid", "tiny.yaml"],
    "estimate": ["tiny.yaml"],
    "sync": ["host:folder"],
    "report": ["tiny"],
    "verify": ["tiny"],
}


def float_options() -> Iterator[tuple[str, str]]:
    commands = typer.main.get_command(app)
    assert isinstance(commands, click.Group)
    for name, command in commands.commands.items():
        for param in command.params:
            if isinstance(param.type, click.types.FloatParamType):
                yield name, param.opts[0]


def test_there_are_such_options() -> None:
    assert {("sweep", "--budget"), ("estimate", "--budget"), ("sync", "--watch")} <= set(float_options())


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    text = {"name": "tiny", "trainer": "command", "base": {"command": ["true"]}, "matrix": {"seed": [0]}}
    Path("tiny.yaml").write_text(json.dumps(text))
    return tmp_path


VALUES = ["nan", "NaN", "-nan", "inf", "-inf", "1e999", "-1", "-0.5", "ten"]
# Documented: no limit any more. Returns may be negative.
ACCEPTED = [("sweep", "--budget", value) for value in ("inf", "1e999")]
ACCEPTED += [("report", "--threshold", value) for value in ("-1", "-0.5")]


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        (command, option, value)
        for command, option in float_options()
        for value in VALUES
        if (command, option, value) not in ACCEPTED
    ],
)
def test_no_option_takes_what_is_no_amount(grid: Path, command: str, option: str, value: str) -> None:
    said = CliRunner().invoke(app, [command, *_NEEDED[command], f"{option}={value}"])
    if isinstance(said.exception, OrchestrateError):
        assert str(said.exception).startswith(f"{option}: found ")
        assert option in (said.exception.hint or "")
    else:
        assert said.exit_code == 2, said.output
        assert option in said.output
    assert not (grid / "results").exists()


@pytest.mark.parametrize("budget", [float("nan"), -1.0, float("-inf")])
def test_from_python_neither(budget: float) -> None:
    with pytest.raises(OrchestrateError, match="expected US dollars"):
        SubmitOptions(budget=budget)


def test_an_estimate_of_no_limit_is_json_all_the_same(grid: Path) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    said = CliRunner().invoke(app, ["estimate", "tiny.yaml", "--json"])
    assert json.loads(said.output, parse_constant=no_constant)["sweep"] == "tiny"


NUMBERS = ["price_per_hour", "disk", "instances", "idle_minutes", "cpus_per_task", "pack"]


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1e400", "-1", "1e9", "1" + "0" * 30, "ten"])
@pytest.mark.parametrize("key", NUMBERS)
def test_no_number_of_a_profile_is_no_amount(key: str, value: str) -> None:
    with pytest.raises(OrchestrateError, match=r"^l4.yaml:2:\d+: .*found ") as caught:
        parse_profile(f"backend: skypilot\n{key}: {value}\n", "l4.yaml", "l4")
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("value", [".nan", ".inf", "-1", "1.5", "1" + "0" * 30, "1e400"])
@pytest.mark.parametrize("key", ["cpus_per_task", "gpus", "mem", "time"])
def test_no_resource_of_a_grid_is_no_amount(grid: Path, key: str, value: str) -> None:
    text = (grid / "tiny.yaml").read_text().removesuffix("}")
    (grid / "tiny.yaml").write_text(f'{text}, "resources": {{{key}: {value}}}}}')
    said = CliRunner().invoke(app, ["sweep", "--grid", "tiny.yaml", "--dry-run"])
    assert isinstance(said.exception, OrchestrateError), said.output
    assert "found " in str(said.exception)
    assert "tiny.yaml:1:" in str(said.exception)


def test_an_estimate_that_no_target_satisfies_ends_with_1(grid: Path) -> None:
    """Of runs of which nothing is known it is not known to satisfy anything."""
    for asked, code in (
        ([], 0),
        (["--deadline", "6h"], 1),
        (["--budget", "5"], 1),
        (["--budget", "5", "--deadline", "6h", "--json"], 1),
    ):
        said = CliRunner().invoke(app, ["estimate", "tiny.yaml", *asked])
        assert said.exit_code == code, said.output

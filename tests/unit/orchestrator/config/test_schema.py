"""The schemas that editors check YAML by take what the program takes, and refuse slips of the pen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from orchestrator.config.grid.parse import parse_grid
from orchestrator.config.schema import grid_schema, profile_schema
from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli import app
from tests.helpers import ROOT

GRIDS = sorted([*(ROOT / "sweeps").glob("*.yaml"), *(ROOT / "examples").glob("*/grid.yaml")])
PROFILES = sorted((ROOT / "templates" / "profiles").glob("*.yaml"))


def grids_of_pages() -> Iterator[str]:
    for page in ("cookbook.md", "grid.md", "tutorial.md"):
        text = (ROOT / "docs" / page).read_text()
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if re.search(r"^name:", block, re.MULTILINE) and re.search(
                r"^(matrix|base):", block, re.MULTILINE
            ):
                yield block


def is_taken(schema: dict[str, Any], text: str) -> bool:
    return bool(jsonschema.Draft7Validator(schema).is_valid(yaml.safe_load(text)))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_grids_that_come_with_the_program_are_taken(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), grid_schema())


def test_grids_of_the_pages_are_taken() -> None:
    grids = list(grids_of_pages())
    assert len(grids) > 10
    for text in grids:
        jsonschema.validate(yaml.safe_load(text), grid_schema())


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_profiles_that_come_with_the_program_are_taken(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), profile_schema())


GOOD = "name: a\ntrainer: command\nbase: {command: [python, t.py]}\nmatrix: {seed: range(2)}\n"


@pytest.mark.parametrize(
    "slip",
    [
        "matrx: {lr: [1]}",
        "resources: {cpus: 2}",
        "compare: 3",
        "exclude: {seed: 1}",
        "base: [a]",
        "for: [{algorithm: mappo}]",
        "notify: {mail: me}",
    ],
)
def test_a_slip_is_refused_by_the_schema_and_by_the_program(slip: str) -> None:
    assert is_taken(grid_schema(), GOOD)
    text = GOOD.replace("base: {command: [python, t.py]}\n", "") if slip.startswith("base") else GOOD
    assert not is_taken(grid_schema(), text + slip)
    with pytest.raises(OrchestrateError):
        parse_grid(text + slip, "grid.yaml")


@pytest.mark.parametrize("slip", ["partitions: gpu", "requeue: 3", "environment: [A]", "price_per_hour: [1]"])
def test_a_slip_in_a_profile_is_refused(slip: str) -> None:
    assert is_taken(profile_schema(), "partition: gpu\ntime: 10\n")
    assert not is_taken(profile_schema(), slip)


@pytest.mark.parametrize("kind", ["grid", "profile"])
def test_the_command_prints_a_schema(kind: str) -> None:
    said = CliRunner().invoke(app, ["schema", kind])
    assert said.exit_code == 0
    schema = json.loads(said.output)
    jsonschema.Draft7Validator.check_schema(schema)
    assert all(key["description"] for key in schema["properties"].values())

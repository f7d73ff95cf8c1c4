"""The grids of docs/grid.md are read, and each error of a grid has its message in a golden file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.config.grid import parse_grid
from orchestrator.config.grid.parse import SECTIONS
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import GridError

DOCS = Path(__file__).parents[4] / "docs" / "grid.md"
GOLDEN = Path(__file__).parents[3] / "golden" / "grid_errors.md"
EXAMPLE = re.compile(r"```yaml\n(?P<grid>(?:(?!```).)*)```\n\n```text\n(?P<message>.*?)```", re.DOTALL)


def message(grid: str) -> str:
    with pytest.raises(GridError) as caught:
        runs_of(parse_grid(grid, "grid.yaml"))
    hint = f"  {caught.value.hint}\n" if caught.value.hint else ""
    return f"{caught.value}\n{hint}"


def test_every_error_has_the_message_of_the_golden_file(update_golden: bool) -> None:
    text = GOLDEN.read_text()
    if update_golden:
        text = EXAMPLE.sub(
            lambda example: f"```yaml\n{example['grid']}```\n\n```text\n{message(example['grid'])}```", text
        )
        GOLDEN.write_text(text)
    examples = list(EXAMPLE.finditer(text))
    assert len(examples) > 60
    for example in examples:
        assert message(example["grid"]) == example["message"]


def test_every_section_is_on_the_page() -> None:
    table = DOCS.read_text().partition("## The sections")[2].partition("\n## ")[0]
    rows = "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(SECTIONS)


def test_every_grid_on_the_page_can_be_read(tmp_path: Path) -> None:
    grids = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for grid in grids:
        if grid.startswith("# "):
            (tmp_path / grid.splitlines()[0].removeprefix("# ")).write_text(grid)
    counts = [len(runs_of(parse_grid(grid, str(tmp_path / "grid.yaml"))).runs) for grid in grids]
    assert counts == [10, 9, 15, 15, 6, 6, 16, 2]


def test_the_first_example_in_the_docs_is_ten_runs() -> None:
    grid = re.search(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert grid is not None
    sweep = runs_of(parse_grid(grid[1], "grid.yaml"))
    assert len(sweep.runs) == 10
    assert [run.point["algorithm"] for run in sweep.runs] == ["mappo"] * 6 + ["iql"] * 3 + ["ippo"]

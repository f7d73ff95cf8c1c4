"""docs/grid.md holds a grid for every error; here each is parsed and its message compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.code_reference import grid_list
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.core.errors import GridError

DOCS = Path(__file__).parents[4] / "docs" / "grid.md"
EXAMPLE = re.compile(r"```yaml\n(?P<grid>(?:(?!```).)*)```\n\n```text\n(?P<message>.*?)```", re.DOTALL)


def message(grid: str) -> str:
    with pytest.raises(GridError) as caught:
        runs_of(parse_grid(grid, "grid.yaml"))
    hint = f"  {caught.value.hint}\n" if caught.value.hint else ""
    return f"{caught.value}\n{hint}"


def test_every_error_in_the_docs_is_what_the_program_says(update_golden: bool) -> None:
    text = DOCS.read_text()
    if update_golden:
        text = EXAMPLE.sub(
            lambda example: f"```yaml\n{example['grid']}```\n\n```text\n{message(example['grid'])}```", text
        )
        DOCS.write_text(text)
    examples = list(EXAMPLE.finditer(text))
    assert len(examples) > 60
    for example in examples:
        assert message(example["grid"]) == example["message"]


def test_the_sections_are_what_the_code_says(update_golden: bool) -> None:
    """The reference is made of the same; here they stand for those who read the file as it is."""
    begin, end = "## The sections\n\n", "\n\n"
    before, after = DOCS.read_text().split(begin)
    if update_golden:
        DOCS.write_text(before + begin + "\n".join(grid_list()) + after[after.index(end) :])
        after = DOCS.read_text().split(begin)[1]
    assert after.split(end)[0].splitlines() == grid_list()


def test_the_first_example_in_the_docs_is_ten_runs() -> None:
    grid = re.search(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert grid is not None
    sweep = runs_of(parse_grid(grid[1], "grid.yaml"))
    assert len(sweep.runs) == 10
    assert [run.point["algorithm"] for run in sweep.runs] == ["mappo"] * 6 + ["iql"] * 3 + ["ippo"]

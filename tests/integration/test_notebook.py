"""The notebook in docs/: committed without outputs, and true from its first cell to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
import pytest

from tests import warm
from tests.notebooks import (
    PATH,
    console_blocks,
    execute,
    install_kernel,
    our_notebook,
    shown,
    text_of,
)

PNG = b"\x89PNG\r\n\x1a\n"


def code_cells(notebook: Any) -> dict[str, Any]:
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def test_it_is_committed_without_outputs() -> None:
    notebook = our_notebook()
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert cells
    left = [name for name, cell in cells.items() if cell.outputs or cell.execution_count or cell.metadata]
    assert left == [], "clear all outputs before committing"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}, "an editor wrote its own version there"


def test_it_opens_on_a_kernel_that_every_jupyter_has() -> None:
    spec = our_notebook().metadata.kernelspec
    assert (spec.name, spec.language) == ("python3", "python")


def test_its_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text_of(our_notebook()))
    assert targets
    assert [target for target in targets if not (PATH.parent / target).exists()] == []


@pytest.mark.nightly
def test_it_launches_follows_collects_and_plots(
    own_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in warm.WORKERS.items():
        monkeypatch.setenv(name, value)
    install_kernel()
    notebook = our_notebook()
    execute(notebook, tmp_path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells.values()] == list(range(1, len(cells) + 1))

    (followed,) = shown(cells["follow"])
    assert followed.startswith("quick  4/4 done\n")
    (drawn,) = shown(cells["follow"], "text/html")
    assert drawn.count(">done") == 4
    assert "background" not in drawn
    (status,) = shown(cells["status"])
    assert len(re.findall(r" done ", status)) == 4
    for name, axis in (("returns", "interquartile mean"), ("speed", "end-to-end throughput")):
        (picture,) = shown(cells[name], "image/png")
        assert picture.startswith(PNG)
        assert axis in shown(cells[name])[-1]
    (means,) = shown(cells["metrics"])
    assert "mappo" in means
    assert "iql" in means

    results = own_world / "first-sweep" / "results" / "quick"
    runs = pl.read_parquet(results / "results.parquet")
    assert runs["state"].to_list() == ["done"] * 4
    assert runs["frames"].to_list() == [1000] * 4
    the_same_in_a_terminal(notebook)
    assert (results / "report" / "index.html").is_file()


def the_same_in_a_terminal(notebook: Any) -> None:
    script = "set -ex\n" + console_blocks(notebook)[-1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    assert "quick: nothing new to submit" in typed.stdout

"""Notebooks in tests: read, executed from the first cell to the last, and what their cells showed."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.helpers import ROOT

PATH = ROOT / "docs" / "notebook.ipynb"
KERNEL = "orchestrate"
_CELL_LIMIT_S = 240


def our_notebook() -> Any:
    return nbformat.read(PATH, as_version=4)


def notebook_of(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def text_of(notebook: Any) -> str:
    """All that is written in it for people."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def console_blocks(notebook: Any) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```$", text_of(notebook), re.DOTALL | re.MULTILINE)


def install_kernel() -> None:
    """As the notebook says, for this test's HOME."""
    (line,) = console_blocks(our_notebook())[0].splitlines()
    program, *arguments = line.split()
    assert program == ".venv/bin/python"
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def execute(notebook: Any, folder: Path, *, stop_at_errors: bool = True) -> None:
    """Execute it with the project's kernel, begun in ``folder``; outputs are then in it."""
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL,
        timeout=_CELL_LIMIT_S,
        allow_errors=not stop_at_errors,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def shown(cell: Any, kind: str = "text/plain") -> list[Any]:
    """What a cell's outputs show of that kind; pictures as bytes."""
    found = [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]
    return [base64.b64decode(data) for data in found] if kind == "image/png" else found

"""Write the report: one page that needs no network, and its pictures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import SweepDir
from orchestrator.rundir.atomic import storage_errors, write_atomic

if TYPE_CHECKING:
    from orchestrator.analysis.collect import Collected
    from orchestrator.analysis.evaluation_matrix import Matrix

__all__ = ["write_matrices", "write_report"]

_PICTURE = re.compile(
    r"(learning|final|profile|improvement|speed|losses|scaling|crossover|targets|matrix|gap)-[0-9]+\.png"
)


def write_report(sweep_dirs: Sequence[SweepDir], collected: Collected, out: Path, *, generated: str) -> Path:
    """Write ``index.html`` and the pictures into the folder ``out``; return the page's path.

    ``generated`` is printed as the time of writing: all else is a function of the tables, the sweeps' grids
    and the installed versions. Raises :class:`~orchestrator.core.errors.StorageError` if ``out`` cannot be
    written.
    """
    from orchestrator.analysis.report.page import build

    page = build(sweep_dirs, collected, generated)
    make_folder(out, _PICTURE)
    for picture in page.pictures:
        write_atomic(out / f"{picture.name}.png", picture.light)
    write_atomic(out / "index.html", page.html.encode())
    return out / "index.html"


def write_matrices(found: Sequence[Matrix], out: Path) -> list[Path]:
    """Write matrices of evaluations into the folder ``out``, as CSV and as heatmaps; return the paths."""
    from orchestrator.analysis.evaluation_matrix import as_csv
    from orchestrator.analysis.report.matrix_figures import matrix_pictures

    make_folder(out, _PICTURE)
    files = {"matrix.csv": as_csv(found).encode()}
    files |= {f"{one.name}.png": one.light for one in matrix_pictures(found)}
    for name, content in files.items():
        write_atomic(out / name, content)
    return [out / name for name in files]


def make_folder(out: Path, pictures: re.Pattern[str]) -> None:
    """Make the folder ``out``, and remove former ``pictures`` from it."""
    with storage_errors(out):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise OrchestrateError(f"{out} cannot be a folder: a file is in the way") from error
        for path in out.glob("*.png"):
            if pictures.fullmatch(path.name):
                path.unlink(missing_ok=True)

"""Write the report: one page that needs no network, and its pictures and tables as files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import SweepDir
from orchestrator.rundir.files.atomic import storage_errors, write_atomic

if TYPE_CHECKING:
    from orchestrator.analysis.collect import Collected
    from orchestrator.analysis.evaluations.matrix import Matrix

__all__ = ["write_figures", "write_matrices", "write_report"]

_FORMER = re.compile(
    r"(learning|final|generalization|profile|improvement|cost|threshold|effects|speed|losses|scaling|crossover|targets"
    r"|matrix|gap)-[0-9]+\.(png|svg|pdf)|table-[a-z0-9-]+\.(csv|tex)"
)

_FORMER_FIGURES = re.compile(r"(curves|aggregate)\.(pdf|svg)|table\.tex")


def write_report(sweep_dirs: Sequence[SweepDir], collected: Collected, out: Path, *, generated: str) -> Path:
    """Write ``index.html``, pictures and tables into the folder ``out``; return the page's path.

    ``generated`` is printed as the time of writing: all else is a function of the tables, the sweeps' grids
    and the installed versions. Raises :class:`~orchestrator.core.errors.StorageError` if ``out`` cannot be
    written.
    """
    from orchestrator.analysis.report.page import build

    page = build(sweep_dirs, collected, generated)
    return write_files(out, _FORMER, (*page.files(), ("index.html", page.html.encode())))[-1]


def write_figures(collected: Collected, settings: Path | None, out: Path) -> tuple[list[Path], str]:
    """Write a paper's figures and table into the folder ``out``; return their paths, and what scores mean.

    ``settings``: the file with their panels, labels and style. Raises :class:`GridError` where it is wrong.
    """
    from orchestrator.analysis.groups.variants import over_tasks
    from orchestrator.analysis.report.data import report_data
    from orchestrator.analysis.report.paper.figures import Paper, explained, figures
    from orchestrator.analysis.report.paper.latex import table
    from orchestrator.analysis.report.paper.settings import FigureSettings, read_settings

    data = report_data((), collected)
    if not data.returning:
        raise OrchestrateError("no finished run has a return to draw", hint="orchestrate status")
    tasks = dict.fromkeys(final.group.task for final in data.returning)
    labels = [variant.label for variant in over_tasks(data.returning)]
    paper = Paper(data, FigureSettings() if settings is None else read_settings(settings, tasks, labels))
    drawn = dict(figures(paper))
    files = [(f"{name}.pdf", one.pdf) for name, one in drawn.items()]
    files += [(f"{name}.svg", one.svg.encode()) for name, one in drawn.items()]
    written = write_files(out, _FORMER_FIGURES, (*files, ("table.tex", table(paper).encode())))
    return written, explained(paper)


def write_matrices(matrices: Sequence[Matrix], out: Path) -> list[Path]:
    """Write matrices of evaluations into the folder ``out``, as CSV and as heatmaps; return the paths."""
    from orchestrator.analysis.evaluations.matrix import as_csv
    from orchestrator.analysis.report.sections.runs.evaluations import matrix_pictures

    pictures = ((f"{picture.name}.png", picture.light) for picture in matrix_pictures(matrices))
    return write_files(out, _FORMER, (("matrix.csv", as_csv(matrices).encode()), *pictures))


def write_files(out: Path, former: re.Pattern[str], files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write files into the folder ``out`` in place of all ``former`` ones; return their paths."""
    with storage_errors(out):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise OrchestrateError(f"{out} cannot be a folder: a file is in the way") from error
        for path in out.iterdir():
            if former.fullmatch(path.name):
                path.unlink(missing_ok=True)
    paths = []
    for name, content in files:
        write_atomic(out / name, content)
        paths.append(out / name)
    return paths

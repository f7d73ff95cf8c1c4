"""Sweeps from Python, in a notebook or a script: the commands as functions.

::

    from orchestrator.api import launch

    sweep = launch("sweeps/speed.yaml")  # orchestrate sweep --grid sweeps/speed.yaml --detach
    sweep.follow()                       # to its end, with a live table
    sweep.collect().runs                 # orchestrate collect speed
    sweep.plot("learning")               # a part of: orchestrate report speed

    import orchestrator

    sweep = orchestrator.open("speed")   # an existing sweep, without its grid
    sweep.runs, sweep.metrics            # tables
    sweep.figures("learning")            # figures of matplotlib

In a notebook a sweep, and what it plots, show themselves.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from orchestrator.analysis import marl_eval_export
from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.analysis.collect import Collected, collect, write
from orchestrator.analysis.verdict.final_measure import FinalMeasure, measured_by
from orchestrator.config.sweep import load_sweep
from orchestrator.control import fleet
from orchestrator.control.flow import Flow, flow_of
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.core.labels import labeller
from orchestrator.core.types import Sweep
from orchestrator.planning.plan import SubmitOptions
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import Survey
from orchestrator.ui.cli.watch import sweep_table
from orchestrator.ui.terminal.screen import console

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from orchestrator.analysis.report.drawing.plotting import Picture

__all__ = ["Launched", "Opened", "Pictures", "launch", "open"]

# Variables of a notebook's kernel that jobs must not inherit: they select a plotting backend of the notebook,
# by a package that a job's environment may lack, and colour logs.
_OF_THE_KERNEL = ("MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")
_COLUMNS = 110
_WIDTH_PX = 800
_FINAL = FinalMeasure().spec
_PLOTS = ("learning", "losses", "final", "speed")


def launch(
    grid: str | Path,
    on: str | None = None,
    *,
    results: str | Path = "results",
    slots: int | None = None,
    options: Sequence[str] = (),
    budget: float | None = None,
    set: Mapping[str, object] | None = None,
) -> Launched:
    """Submit everything in a grid that is not done yet, and return at once.

    Several targets, in the grid or in ``on`` ("local,gpu"), share the sweep.
    The same call again submits only what is missing; use it to open a sweep of an earlier day.
    ``on``, ``results``, ``slots`` and ``budget`` are those of `orchestrate sweep`, ``options`` what follows
    its `--`, and ``set`` its changes of the grid: keys and JSON values. Raises :class:`OrchestrateError` if
    the grid, or a run of it, cannot work, or it would cost more than the budget; then nothing is submitted.
    """
    tree, submit_options = Path(results).expanduser().absolute(), SubmitOptions(slots, budget=budget)
    changes = [f"{key}={json.dumps(value)}" for key, value in (set or {}).items()]
    sweep = load_sweep(Path(grid).expanduser(), tree, changes)
    flow, notes = flow_of(sweep, SweepDir(tree, sweep.name), submit_options, on, options), list[str]()
    with _without_the_kernel():
        started = flow.start(notes.append, notes.append, detach=True)
    if not started.to_do:
        notes.append("nothing new to submit")
    notes += [f"{run_id[:8]} stays where it is: {why}" for run_id, why in started.kept.items()]
    notes += [f"{run_id}: {problem}" for run_id, problem in started.problems.items()]
    notes += [*([started.waiting] if started.waiting else []), *started.notes]
    return Launched(flow.sweep_dir, tuple(notes), flow=flow)


def open(sweep: str, *, results: str | Path = "results") -> Opened:  # read as orchestrator.open
    """Open a sweep of a results tree by its name; needs no grid file and starts nothing.

    Raises :class:`OrchestrateError` if there is no such sweep.
    """
    return Opened(SweepDir.existing(Path(results).expanduser().absolute(), sweep))


@dataclass(frozen=True, eq=False, repr=False)
class Opened:
    """A sweep of a results tree. ``folder``: its folder in the tree; ``notes``: remarks shown below it."""

    folder: SweepDir
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> pl.DataFrame:
        """One row per run with its keys and results so far, as `orchestrate collect` writes; read anew."""
        return self._collected(_FINAL, None).runs

    @property
    def metrics(self) -> pl.DataFrame:
        """Every metric of every run in long form; read anew."""
        return self._collected(_FINAL, None).metrics

    def status(self) -> pl.DataFrame:
        """The state of every run, a row each, from journals alone; ``eta`` is in seconds."""
        import polars as pl

        seen = fleet.present(self.folder)
        rows = [row for row in seen.rows if row.in_grid]
        label, statuses = labeller([row.point for row in rows]), [seen.statuses[row.run_id] for row in rows]
        columns = {
            "run_id": pl.Series([status.run_id for status in statuses], dtype=pl.String),
            "run": pl.Series([label(row.point) for row in rows], dtype=pl.String),
            "state": pl.Series([status.state.value for status in statuses], dtype=pl.String),
            "frames": pl.Series([status.frames for status in statuses], dtype=pl.Int64),
            "total": pl.Series([status.total for status in statuses], dtype=pl.Int64),
            "end_to_end_fps": pl.Series([status.end_to_end_fps for status in statuses], dtype=pl.Float64),
            "return": pl.Series([status.value for status in statuses], dtype=pl.Float64),
            "eta": pl.Series([status.eta for status in statuses], dtype=pl.Float64),
            "attempt": pl.Series([status.attempt for status in statuses], dtype=pl.Int64),
            "why": pl.Series([status.why for status in statuses], dtype=pl.String),
        }
        return pl.DataFrame(columns)

    def exchange(self) -> list[str]:
        """Fetch results from cloud instances and clusters, end instances that are done; what was done.

        :func:`launch`, :meth:`follow` and :meth:`stop` do so too; no other method does.
        """
        lines: list[str] = []
        fleet.exchange(self.folder, lines.append)
        return lines

    def collect(self, final: str = _FINAL, metric: str | None = None) -> Collected:
        """Merge what the runs have so far into tables, in memory and in the sweep's folder.

        ``final`` and ``metric`` are those of `orchestrate collect`.
        """
        collected = self._collected(final, metric)
        write(collected, self.folder)
        marl_eval_export.write(collected, self.folder)
        return collected

    def plot(self, kind: str = "learning", final: str = _FINAL, metric: str | None = None) -> Pictures:
        """The report's pictures of one kind: ``learning`` curves, ``losses``, ``final`` returns or ``speed``.

        ``final`` and ``metric`` are those of `orchestrate report`.
        Raises :class:`NotFoundError` while there is nothing to draw.
        """
        from orchestrator.analysis.report.page import pictures_of

        if kind not in _PLOTS:
            raise OrchestrateError(f"found the plot {kind!r}", hint=f"there are: {', '.join(_PLOTS)}")
        collected = self._collected(final, metric)
        pictures = Pictures(pictures_of(collected, kind))
        if not pictures:
            raise NotFoundError(
                f"no run of {self.folder.name} has anything to plot as {kind!r} yet",
                hint="follow() waits for the end, status() says how far it is",
            )
        return pictures

    def figures(self, kind: str = "learning", final: str = _FINAL, metric: str | None = None) -> list[Figure]:
        """Return the pictures of :meth:`plot` as figures of matplotlib, to change or to save."""
        return [picture.figure() for picture in self.plot(kind, final, metric)]

    def stop(self) -> bool:
        """Stop its runs after a checkpoint, and wait for that; ``False`` if some do not end in time.

        They go on from there when the sweep is launched again.
        """
        return fleet.stop(self.folder)

    def _collected(self, final: str, metric: str | None) -> Collected:
        measure, chosen = FinalMeasure.parse(final), ChosenMetric.parse(metric)
        return measured_by(collect([self.folder], fleet.present, chosen=chosen), measure)

    def _drawn(self, seen: Survey) -> Group:
        notes = [Text(note, style="dim") for note in self.notes]
        return Group(sweep_table.sweep_view(self.folder.name, seen, sweep_table.ROWS), *notes)

    def __repr__(self) -> str:
        return _Drawing(self._drawn(fleet.present(self.folder))).text()

    def _repr_mimebundle_(self, **_: object) -> Mapping[str, str]:
        return _Drawing(self._drawn(fleet.present(self.folder)))._repr_mimebundle_()


@dataclass(frozen=True, eq=False, repr=False)
class Launched(Opened):
    """A launched sweep, with all of :class:`Opened`. ``notes``: remarks about its submission."""

    flow: Flow = field(kw_only=True)

    @property
    def sweep(self) -> Sweep:
        """The grid, expanded."""
        return self.flow.sweep

    def follow(self) -> None:
        """Show progress until no run is active; replace lost workers.

        An interrupt ends only this call: the runs go on.
        """
        with _without_the_kernel():
            screen = sweep_table.SweepScreen(self.folder.name)
            surveys = self.flow.follow(screen.note)
            if console().is_jupyter:
                self._show_in_one_place(surveys)
            else:
                with screen:
                    for seen in surveys:
                        screen.show(seen)

    def _show_in_one_place(self, surveys: Iterator[Survey]) -> None:
        from IPython.display import display

        place = display(self, display_id=True)
        for seen in surveys:
            place.update(_Drawing(self._drawn(seen)))
        place.update(self)


class Pictures(tuple["Picture", ...]):
    """Pictures of the report, each with a ``title``, a ``caption`` and, as ``light``, a PNG file's bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} pictures: {', '.join(picture.name for picture in self)}>"

    def _ipython_display_(self) -> None:
        from IPython.display import Image, display

        for picture in self:
            display(Image(picture.light, width=_WIDTH_PX, alt=f"{picture.title}. {picture.caption}"))
            caption = {
                "text/plain": picture.caption,
                "text/html": f"<small>{escape(picture.caption)}</small>",
            }
            display(caption, raw=True)


@dataclass(frozen=True)
class _Drawing:
    """Terminal output as text and HTML for a notebook."""

    drawn: RenderableType

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._recorded().export_text().rstrip().splitlines())

    def html(self) -> str:
        # No background, to suit light and dark notebooks.
        layout = '<pre style="font-family: monospace; line-height: normal; white-space: pre">{code}</pre>'
        return self._recorded().export_html(inline_styles=True, code_format=layout)

    def _recorded(self) -> Console:
        nowhere = io.StringIO()
        console = Console(file=nowhere, record=True, width=_COLUMNS, force_jupyter=False, highlight=False)
        console.print(self.drawn)
        return console

    def _repr_mimebundle_(self, **_: object) -> Mapping[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}


@contextmanager
def _without_the_kernel() -> Iterator[None]:
    """Remove the variables of a notebook's kernel from the environment during a submission."""
    if not console().is_jupyter:
        yield
        return
    own: dict[str, Any] = {name: os.environ.pop(name) for name in _OF_THE_KERNEL if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(own)

"""Build the report's page: tables and groups in, one HTML file out."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from orchestrator.analysis.collect import Collected
from orchestrator.analysis.report.answer import styles as answer_styles
from orchestrator.analysis.report.blocks import Section
from orchestrator.analysis.report.data import ReportData, report_data
from orchestrator.analysis.report.export import table_files, table_stems
from orchestrator.analysis.report.plotting import Picture
from orchestrator.analysis.report.room import fitted
from orchestrator.analysis.report.sections import pictures, sections
from orchestrator.analysis.report.tables import Row, shared_settings
from orchestrator.analysis.report.vector import Vector
from orchestrator.core.progress import counted
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir


@dataclass(frozen=True)
class Page:
    """The finished page, and its sections and pictures for the folder."""

    html: str
    sections: tuple[Section, ...]
    vectors: tuple[tuple[str, Vector], ...]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the files beside it: pictures as SVG and PDF, tables as CSV and LaTeX."""
        for name, one in self.vectors:
            yield f"{name}.svg", one.svg.encode()
            yield f"{name}.pdf", one.pdf
        yield from table_files(self.sections)


def build(sweep_dirs: Sequence[SweepDir], collected: Collected, generated: str) -> Page:
    """Build the page of these sweeps; ``generated`` is the time of writing, as text."""
    data = report_data(sweep_dirs, collected)
    whole = sections(data)
    drawn = [picture for section in whole for picture in section.pictures]
    vectors = [(one.name, one.vector) for one in counted(drawn, "drawing pictures", len(drawn))]
    found = fitted(whole)
    style = _part("page.css") + answer_styles() + _part("chart/chart.css")
    names = (
        "page.js",
        "dom.js",
        "download.js",
        "run_details.js",
        "answer/evidence.js",
        "chart/svg_pen.js",
        "chart/chart.js",
    )
    scripts = [_part(name) for name in names]
    html = _template().render(
        title=", ".join(sweep.name for sweep in sweep_dirs),
        generated=generated,
        trained=_period(data.rows),
        shared=shared_settings(data.rows, collected.keys),
        counts=_counts(data),
        outside=sum(not row["in_grid"] for row in data.rows),
        sections=found,
        stems=table_stems(found),
        style=Markup(style),  # noqa: S704  our own files
        scripts=[Markup(script) for script in scripts],  # noqa: S704
        policy=_policy(style, scripts),
    )
    return Page(html, found, tuple(vectors))


def pictures_of(collected: Collected, kind: str) -> list[Picture]:
    """Return the page's pictures of one kind: ``learning``, ``losses``, ``final`` or ``speed``."""
    return pictures(report_data((), collected), kind)


def _template() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["id"] = id
    return environment.from_string(_part("page.html.j2"))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, scripts: Iterable[str]) -> str:
    """Return the page's content security policy: nothing over a network, no script or style but ours."""
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _counts(data: ReportData) -> list[tuple[str, int]]:
    counted = Counter(row["state"] for row in data.rows if row["in_grid"])
    return [(state.value, counted[state.value]) for state in RunState if counted[state.value]]


def _period(rows: Sequence[Row]) -> str:
    started = [row["started"] for row in rows if row["started"] is not None]
    ended = [row["ended"] for row in rows if row["ended"] is not None]
    if not started or not ended:
        return ""
    first, last = (datetime.fromtimestamp(time, UTC) for time in (min(started), max(ended)))
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    return f"{first:%Y-%m-%d %H:%M} to {end} UTC"

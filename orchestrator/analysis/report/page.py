"""Build the report's page: tables and groups in, one HTML file out."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from orchestrator.analysis.cells import text
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.report import web
from orchestrator.analysis.report.blocks import Section
from orchestrator.analysis.report.data import ReportData, report_data
from orchestrator.analysis.report.drawing.plotting import DARK, LIGHT, Picture
from orchestrator.analysis.report.drawing.vector import Vector
from orchestrator.analysis.report.export import table_files, table_stems
from orchestrator.analysis.report.room import fitted
from orchestrator.analysis.report.sections import pictures, sections
from orchestrator.analysis.run_table import RunRow, places
from orchestrator.core.labels import shared_keys, short_keys
from orchestrator.core.progress import counted
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir

_SCRIPTS = ("page.js", "dom.js", "download.js", "run_details.js", "evidence.js", "svg_pen.js", "chart.js")


@dataclass(frozen=True)
class ReportPage:
    """The finished page, and its sections and pictures for the folder."""

    html: str
    sections: tuple[Section, ...]
    vectors: tuple[tuple[str, Vector], ...]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the files beside it: pictures as SVG and PDF, tables as CSV and LaTeX."""
        for name, vector in self.vectors:
            yield f"{name}.svg", vector.svg.encode()
            yield f"{name}.pdf", vector.pdf
        yield from table_files(self.sections)


def build(sweep_dirs: Sequence[SweepDir], collected: Collected, generated: str) -> ReportPage:
    """Build the page of these sweeps; ``generated`` is the time of writing, as text."""
    data = report_data(sweep_dirs, collected)
    whole = sections(data)
    drawn = [picture for section in whole for picture in section.pictures]
    vectors = [(picture.name, picture.vector) for picture in counted(drawn, "drawing pictures", len(drawn))]
    fitting = fitted(whole)
    style = web.text("page.css") + _styles()
    scripts = list(map(web.text, _SCRIPTS))
    html = web.template("page.html.j2").render(
        title=", ".join(sweep.name for sweep in sweep_dirs),
        generated=generated,
        trained=_period(data.rows),
        shared=_shared_settings([row for row in data.rows if row["in_grid"]], collected.keys),
        counts=_counts(data),
        outside=Counter(places(data.rows).values()),
        sections=fitting,
        stems=table_stems(fitting),
        style=Markup(style),  # noqa: S704  our own files
        scripts=[Markup(script) for script in scripts],  # noqa: S704
        policy=_policy(style, scripts),
    )
    return ReportPage(html, fitting, tuple(vectors))


def pictures_of(collected: Collected, kind: str) -> list[Picture]:
    """Return the page's pictures of one kind: ``learning``, ``losses``, ``final`` or ``speed``."""
    return pictures(report_data((), collected), kind)


def _shared_settings(rows: Sequence[RunRow], keys: Sequence[str]) -> list[str]:
    """Return the grid keys with one value for all rows, in short: ``lr=0.001``."""
    shared = shared_keys([{key: row[key] for key in keys if row[key] is not None} for row in rows])
    names = short_keys(keys)
    return [f"{names[key]}={text(value)}" for key, value in shared.items()]


def _styles() -> str:
    """Return the style sheet of the cards, with the pictures' colours of variants."""
    light, dark = (
        "".join(f"--c{number}: {colour}; " for number, colour in enumerate(theme.lines))
        for theme in (LIGHT, DARK)
    )
    colours = "".join(f".c{number} {{ --c: var(--c{number}); }}\n" for number in range(len(LIGHT.lines)))
    return (
        f":root {{ {light}}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark}}} }}\n"
        f"@media screen {{ :root[data-theme=dark] {{ {dark}}} }}\n"
        f"{colours}{web.text('widgets.css')}"
    )


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


def _period(rows: Sequence[RunRow]) -> str:
    started = [row["started"] for row in rows if row["started"] is not None]
    ended = [row["ended"] for row in rows if row["ended"] is not None]
    if not started or not ended:
        return ""
    first, last = (datetime.fromtimestamp(time, UTC) for time in (min(started), max(ended)))
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    return f"{first:%Y-%m-%d %H:%M} to {end} UTC"

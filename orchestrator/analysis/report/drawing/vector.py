"""Figures as SVG and PDF, and as SVG inside a page, where the page's theme decides the colours.

A page's policy allows no styles inside it, so those of a figure become attributes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from orchestrator.analysis.report.drawing.small_font import families, in_full

# As many equal marks in a row are written as one path.
_MANY_MARKS = 4
_STYLE = re.compile(r' style="([^"]*)"')
_USE = re.compile(r'<use xlink:href="#([^"]+)" x="([^"]+)" y="([^"]+)"( style="[^"]*")?/>\s*')
_COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")


class Vector(NamedTuple):
    """A figure as the text of an SVG file and the bytes of a PDF file."""

    svg: str
    pdf: bytes


def vector(figure: Callable[[], Figure], style: Mapping[str, Any]) -> Vector:
    """Draw a figure once as SVG and once as PDF, with letters that can be selected."""
    svg, pdf = io.StringIO(), io.BytesIO()
    fixed: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "report", "pdf.fonttype": 42}
    if "font.family" not in style:
        fixed["font.family"] = families()
    with matplotlib.rc_context({**fixed, **style}), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph")
        drawn = figure()
        if (layout := drawn.get_layout_engine()) is not None:
            layout.execute(drawn)  # once for both files
            drawn.set_layout_engine("none")
        drawn.savefig(svg, format="svg", metadata={"Date": None})
        drawn.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    return Vector(in_full(svg.getvalue()), pdf.getvalue())


def inline(svg: str, name: str, alt: str, colours: Mapping[str, str]) -> Markup:
    """Return a figure for a page. ``name`` begins its ids; ``colours``: the page's names of them."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    size = re.search(r'viewBox="([^"]+)"', body)
    assert size is not None
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r"(?:<use [^>]*/>\s*)+", _marks, body)
    body = _STYLE.sub(lambda match: _attributes(match[1], colours), body)
    body = re.sub(r' d="([^"]*)"', lambda match: f' d="{_path(match[1])}"', body)
    body = re.sub(r"<[^>]+>", lambda tag: _LONG_NUMBER.sub(_rounded, tag[0]), body)
    body = body.replace("xlink:href", "href").replace(' transform="rotate(-0 ', ' data-r="(')
    body = re.sub(r' data-r="[^"]*"', "", body)
    body = re.sub(r'( id="| href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r">\s+<", "><", body)
    head = f'<svg viewBox="{size[1]}" role="img" stroke-linejoin="round" stroke-linecap="butt"'
    return Markup(f'{head} aria-label="{escape(alt)}">{body}</svg>')  # noqa: S704  matplotlib escapes its text


def _marks(match: re.Match[str]) -> str:
    """Return equal marks as the corners of one path: a fifth of the bytes."""
    uses = [match.groups() for match in _USE.finditer(match[0])]
    told = []
    for (mark, style), several in groupby(uses, key=lambda use: (use[0], use[3] or "")):
        places = [(x, y) for _, x, y, _ in several]
        if len(places) < _MANY_MARKS:
            told += [f'<use xlink:href="#{mark}" x="{x}" y="{y}"{style}/>' for x, y in places]
            continue
        key = f"{mark}-{match.start()}-{len(told)}"
        told.append(
            f'<marker id="{key}" overflow="visible" markerUnits="userSpaceOnUse">'
            f'<use xlink:href="#{mark}"{style}/></marker>'
        )
        ends = " ".join(f'marker-{end}="url(#{key})"' for end in ("start", "mid", "end"))
        told.append(f'<path fill="none" {ends} d="M {" L ".join(" ".join(place) for place in places)}"/>')
    return "".join(told)


def _attributes(style: str, colours: Mapping[str, str]) -> str:
    pairs = (declaration.partition(":") for declaration in style.split(";") if declaration.strip())
    told = ((name.strip(), value.strip()) for name, _, value in pairs)
    return "".join(f' {name}="{_value(name, value, colours)}"' for name, value in told)


def _value(name: str, value: str, colours: Mapping[str, str]) -> str:
    if name == "font-family":
        return "DejaVu Sans, Verdana, sans-serif"
    return colours.get(value, value)


def _path(text: str) -> str:
    """Return a path in tenths of a pixel, lines relative to the point before: half of the bytes."""
    told: list[str] = []
    at: tuple[int, int] | None = None
    for command, numbers in _COMMAND.findall(text):
        values = [round(10 * float(number)) for number in numbers.split()]
        if command == "L" and at is not None:
            step = (values[0] - at[0], values[1] - at[1])
            told.append(_line(*step))
        else:
            told.append(command + " ".join(map(_tenths, values)))
        at = (values[-2], values[-1]) if values else None
    return "".join(told)


def _line(right: int, down: int) -> str:
    if not down:
        return f"h{_tenths(right)}" if right else ""
    return f"l{_tenths(right)} {_tenths(down)}" if right else f"v{_tenths(down)}"


def _tenths(value: int) -> str:
    whole, rest = divmod(abs(value), 10)
    text = f"{whole or ''}.{rest}" if rest else str(whole)
    return f"-{text}" if value < 0 else text


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

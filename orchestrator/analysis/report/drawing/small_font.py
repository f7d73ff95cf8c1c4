"""A font with the usual letters alone: a PDF file takes what it needs from it in a tenth of the time.

matplotlib cuts a font down for each PDF file, and reads all 6,000 letters of DejaVu Sans to do so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from fontTools import subset  # type: ignore[import-untyped]
from matplotlib import font_manager

FULL = "DejaVu Sans"
_SMALL = "Report Sans"
# Latin, Greek and Cyrillic letters, punctuation, arrows and signs of mathematics.
_LETTERS = (*range(0x20, 0x530), *range(0x2000, 0x2300))
# Layout of other scripts, formulas and names of glyphs.
_UNUSED_TABLES = ("GSUB", "GPOS", "GDEF", "MATH", "FFTM")
_NAMES = (1, 3, 4, 6, 16)  # family, identity, full name, PostScript name, typographic family


@cache
def families() -> tuple[str, str]:
    """Return the font families to draw with: the small one, and the full one for letters that it lacks."""
    folder = _folder()
    for weight in ("normal", "bold"):
        full = font_manager.findfont(font_manager.FontProperties(family=FULL, weight=weight))
        small = Path(folder.name, f"{weight}.ttf")
        _cut(full, small)
        font_manager.fontManager.addfont(small)
    return _SMALL, FULL


def in_full(svg: str) -> str:
    """Return the text of an SVG file with the font's usual name."""
    return svg.replace(f"'{_SMALL}', '{FULL}'", f"'{FULL}'").replace(f"'{_SMALL}'", f"'{FULL}'")


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return the folder of the font's files, which is removed at exit."""
    return TemporaryDirectory(prefix="orchestrate-font-")


def _cut(full: str, small: Path) -> None:
    options = subset.Options(name_IDs=["*"], notdef_outline=True, glyph_names=False)
    options.drop_tables += _UNUSED_TABLES
    with subset.load_font(full, options) as font:
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=_LETTERS)
        cutter.subset(font)
        for record in font["name"].names:
            if record.nameID in _NAMES:
                named = str(record).replace(FULL, _SMALL)
                record.string = named.replace(FULL.replace(" ", ""), _SMALL.replace(" ", ""))
        font.save(small)

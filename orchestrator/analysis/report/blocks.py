"""Building blocks of a page; the template has a macro for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from markupsafe import Markup

from orchestrator.analysis.cells import Table
from orchestrator.analysis.report.drawing.plotting import MOST_PICTURES, Picture

MANY = "Only the first pictures are drawn; the tables beside the report hold everything."


@dataclass(frozen=True)
class Text:
    """A paragraph. ``note``: in small print; ``title``: a heading."""

    text: str
    note: bool = False
    title: bool = False
    kind = "text"


@dataclass(frozen=True)
class Points:
    """A list of sentences, each with an optional word before it in bold."""

    items: tuple[tuple[str, str], ...]
    kind = "points"


@dataclass(frozen=True)
class FoldedText:
    """A file's text, folded until the reader opens it."""

    title: str
    text: str
    kind = "source"


@dataclass(frozen=True)
class Gallery:
    """Pictures one below the other, or side by side where they are small. ``most``: pictures on the page."""

    pictures: tuple[Picture, ...]
    most: int = sys.maxsize
    kind = "gallery"

    @property
    def shown(self) -> tuple[Picture, ...]:
        """The pictures on the page; the others lie beside it."""
        return self.pictures[: self.most]

    @property
    def caption(self) -> str:
        """The caption that several pictures share, to be written once; empty if they differ."""
        captions = {picture.caption for picture in self.pictures}
        return captions.pop() if len(self.pictures) > 1 and len(captions) == 1 else ""


@dataclass(frozen=True)
class Chart:
    """A chart for the reader to explore. ``data``: JSON that is safe inside a script element."""

    data: str
    kind = "chart"


@dataclass(frozen=True)
class Details:
    """Details of the rows of the table before it. ``data``: JSON that is safe inside a script element."""

    data: str
    kind = "details"


@dataclass(frozen=True)
class PairDetails:
    """Pairs of variants of the table before it. ``data``: JSON that is safe inside a script element."""

    data: str
    kind = "pair_details"


@dataclass(frozen=True)
class Folded:
    """Blocks that are folded where the page's script runs: something better stands above, or all is well."""

    title: str
    blocks: tuple[Block, ...]
    kind = "folded"


@dataclass(frozen=True)
class Html:
    """A part of the page that is drawn elsewhere, escaped."""

    markup: Markup
    kind = "html"


Block = Text | Points | FoldedText | Gallery | Table | Html | Chart | Details | PairDetails | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page: ``id`` is its address in it."""

    id: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures of the section."""
        found = (block.pictures for block in unfolded(self.blocks) if isinstance(block, Gallery))
        return tuple(chain.from_iterable(found))

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables of the section."""
        return tuple(block for block in unfolded(self.blocks) if isinstance(block, Table))


def drawn_section(
    id_: str, title: str, pictures: Sequence[Picture], nothing: str = "", *, many: bool = False
) -> Section:
    """Return a section of pictures; ``nothing``: its text where there are none. ``many``: more than drawn."""
    if not pictures:
        return Section(id_, title, (Text(nothing),))
    more = (Text(MANY, note=True),) if many or len(pictures) == MOST_PICTURES else ()
    return Section(id_, title, (Gallery(tuple(pictures)), *more))


def unfolded(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in order, those inside of a folded one in its place."""
    for block in blocks:
        if isinstance(block, Folded):
            yield from unfolded(block.blocks)
        else:
            yield block


def reworded(part: Any, words: Callable[[str], str]) -> Any:
    """Rewrite the sentences, headings and heads of tables of a section or block; cells and data stay."""
    match part:
        case Section() | Folded():
            blocks = tuple(reworded(block, words) for block in part.blocks)
            return replace(part, title=words(part.title), blocks=blocks)
        case Text():
            return replace(part, text=words(part.text))
        case Points():
            return replace(part, items=tuple((words(first), words(text)) for first, text in part.items))
        case Gallery():
            return replace(part, pictures=tuple(picture.reworded(words) for picture in part.pictures))
        case Html():
            return replace(part, markup=Markup(words(part.markup)))  # noqa: S704  words escapes in markup
        case Table():
            return replace(part, columns=tuple(replace(one, name=words(one.name)) for one in part.columns))
    return part

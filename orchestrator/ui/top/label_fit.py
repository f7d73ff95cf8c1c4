"""Fit labels of runs into a column: shared parts in the title, and rows that stay different."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from orchestrator.ui.terminal.table import shortened

_KEY = re.compile(r"(?:(?<=^)|(?<= ))[^ =]+=")
# Ends that a cut may leave, as shares of the width.
_ENDS = (0.5, 0.75, 0.25, 0.9)
# A quarter of the labels are few.
_FEW = 4


def fitted(labels: Sequence[str], width: int) -> tuple[str, dict[str, str]]:
    """Return a title, and for each label its text in as many cells.

    The title has what all labels have in common, and the names of the keys that were taken from them.

    Labels that fit are not changed. Longer ones lose shared parts, then the names of keys, then a piece, so
    that most of them stay different.
    """
    own = list(dict.fromkeys(labels))
    if all(cell_len(label) <= width for label in own):
        return "", dict(zip(own, own, strict=True))
    shared = _shared(own)
    rest = [" ".join(part for part in label.split(" ") if part not in shared) for label in own]
    long = [text for text in rest if cell_len(text) > width]
    # A few long ones, as of another sweep, leave the others as they are.
    cut = long if _FEW * len(long) <= len(rest) else rest
    texts, names = _shortened(cut, width)
    shorter = dict(zip(cut, texts, strict=True))
    told = ", ".join(names) if cut is rest else ""
    title = "  ".join(filter(None, (" ".join(shared), told)))
    return title, {label: shorter.get(text, text) for label, text in zip(own, rest, strict=True)}


def _shortened(labels: Sequence[str], width: int) -> tuple[list[str], list[str]]:
    """Return texts that fit, and the names of the keys that were taken from them."""
    if all(cell_len(text) <= width for text in labels):
        return list(labels), []
    values = [_KEY.sub("", label) for label in labels]
    named = list(dict.fromkeys(name[:-1] for label in labels for name in _KEY.findall(label)))
    tried = [(values, named)] if len({*values}) == len({*labels}) else []
    if tried and all(cell_len(text) <= width for text in values):
        return values, named
    candidates = [(cut, names) for texts, names in (*tried, (labels, [])) for cut in _cuts(texts, width)]
    return max(candidates, key=lambda one: len({*one[0]}))


def _shared(labels: Sequence[str]) -> list[str]:
    """Return the parts that all of several labels have."""
    if len(labels) < 2:
        return []
    first, *others = (label.split(" ") for label in labels)
    common = set(first).intersection(*others)
    return [part for part in dict.fromkeys(first) if part in common]


def _cuts(texts: Sequence[str], width: int) -> Iterator[list[str]]:
    yield [shortened(text, width) for text in texts]
    for share in _ENDS:
        end = min(width - 1, max(1, int(share * width)))
        cut = (f"{text[: width - 1 - end]}…{text[-end:]}" for text in texts)
        yield [text if cell_len(text) <= width else short for text, short in zip(texts, cut, strict=True)]

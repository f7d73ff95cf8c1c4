"""Fit labels of runs into a column: shared parts in the title, and rows that stay different."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from orchestrator.ui.terminal.table import shortened

_KEY = re.compile(r"(?:(?<=^)|(?<= ))[^ =]+=")
# Ends that a cut may leave, as shares of the width.
_ENDS = (0.5, 0.75, 0.25, 0.9)


def fitted(labels: Sequence[str], width: int) -> tuple[str, dict[str, str]]:
    """Return what all labels have in common, and for each label its text in as many cells.

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
    cut = long if 2 * len(long) <= len(rest) else rest
    shorter = dict(zip(cut, _shortened(cut, width), strict=True))
    return " ".join(shared), {label: shorter.get(text, text) for label, text in zip(own, rest, strict=True)}


def _shortened(labels: Sequence[str], width: int) -> list[str]:
    values = [_KEY.sub("", label) for label in labels]
    tried = [*([values] if len({*values}) == len({*labels}) else []), labels]
    whole = next((texts for texts in tried[::-1] if all(cell_len(text) <= width for text in texts)), None)
    return list(whole or max(_cuts(tried, width), key=lambda texts: len({*texts})))


def _shared(labels: Sequence[str]) -> list[str]:
    """Return the parts that all of several labels have."""
    if len(labels) < 2:
        return []
    first, *others = (label.split(" ") for label in labels)
    common = set(first).intersection(*others)
    return [part for part in dict.fromkeys(first) if part in common]


def _cuts(tried: Sequence[Sequence[str]], width: int) -> Iterator[list[str]]:
    for texts in tried:
        yield [shortened(text, width) for text in texts]
    for texts in tried:
        for share in _ENDS:
            end = min(width - 1, max(1, int(share * width)))
            yield [
                text if cell_len(text) <= width else f"{text[: width - 1 - end]}…{text[-end:]}"
                for text in texts
            ]

"""Fit labels of runs into a column: shared parts in the title, and rows that stay different."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.cells import cell_len

from orchestrator.ui.terminal.table import shortened

_KEY = re.compile(r"[^ =]+=")
_NEXT_KEY = re.compile(r" (?=[^ =]+=)")
_JSON = json.JSONDecoder()
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
    split = [_parts(label) for label in own]
    shared = _shared(split)
    rest = [" ".join(part for part in parts if part not in shared) for parts in split]
    if len({*rest}) < len(own):
        shared, rest = [], own
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
    split = [[_name_and_value(part) for part in _parts(label)] for label in labels]
    values = [" ".join(value for _, value in parts) for parts in split]
    named = list(dict.fromkeys(name for parts in split for name, _ in parts if name))
    tried = [(values, named)] if len({*values}) == len({*labels}) else []
    if tried and all(cell_len(text) <= width for text in values):
        return values, named
    candidates = [(cut, names) for texts, names in (*tried, (labels, [])) for cut in _cuts(texts, width)]
    return max(candidates, key=lambda candidate: len({*candidate[0]}))


def _shared(split: Sequence[Sequence[str]]) -> list[str]:
    """Return the parts that all of several labels have."""
    if len(split) < 2:
        return []
    first, *others = split
    common = set(first).intersection(*others)
    return [part for part in dict.fromkeys(first) if part in common]


# Lists are fitted anew whenever they are drawn.
@lru_cache(maxsize=2**15)
def _parts(label: str) -> tuple[str, ...]:
    """Split a label into names and whole ``key=value`` parts.

    A value is JSON or text; words after a text are taken as more of it, up to the next key.
    """
    parts, at = [], 0
    while at < len(label):
        end = _end(label, at)
        parts.append(label[at:end])
        at = end + 1
    return tuple(parts)


def _name_and_value(part: str) -> tuple[str, str]:
    key = _KEY.match(part)
    return (part[: key.end() - 1], part[key.end() :]) if key else ("", part)


def _end(label: str, at: int) -> int:
    """Return where the part that begins here ends."""
    key = _KEY.match(label, at)
    if key is None:
        space = label.find(" ", at)
        return space if space >= 0 else len(label)
    try:
        end = _JSON.raw_decode(label, key.end())[1]
    except (ValueError, RecursionError):
        pass
    else:
        if label[end : end + 1] in ("", " "):
            return end
    following = _NEXT_KEY.search(label, key.end())
    return following.start() if following else len(label)


def _cuts(texts: Sequence[str], width: int) -> Iterator[list[str]]:
    yield [shortened(text, width) for text in texts]
    for share in _ENDS:
        end = min(width - 1, max(1, int(share * width)))
        cut = (f"{text[: width - 1 - end]}…{text[-end:]}" for text in texts)
        yield [text if cell_len(text) <= width else short for text, short in zip(texts, cut, strict=True)]

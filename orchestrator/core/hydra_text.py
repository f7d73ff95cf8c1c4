"""Spell values as Hydra's command line reads them back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.types import Value

_WORD = re.compile(r"[A-Za-z_][\w-]*(?:[/.][A-Za-z0-9_][\w-]*)*", re.ASCII)
_RESERVED = frozenset({"null", "true", "false", "nan", "inf"})
_DICT_KEY = re.compile(r"[A-Za-z_][\w-]*(?:[./:][\w-]+)*", re.ASCII)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][\w.-]*\}", re.ASCII)


class NoSpellingError(OrchestrateError):
    """A value that Hydra's command line cannot give."""


def hydra_text(value: Value) -> str:
    """Spell a JSON value in Hydra's grammar. Raises :class:`NoSpellingError`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra_text, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_dict_key(key)}:{hydra_text(one)}" for key, one in value.items()) + "}"
    raise NoSpellingError(f"a value of type {type(value).__name__} has no spelling on Hydra's command line")


def _text(text: str) -> str:
    if text == "???":
        raise NoSpellingError("'???' means a missing value to Hydra", hint="give it a value")
    if "${" in text and (_REFERENCE.sub("", text).find("${") >= 0 or "\\" in text):
        # A resolver such as ${oc.env:HOME} would make the result depend on the machine, not on the grid.
        raise NoSpellingError(
            f"{text!r} asks Hydra to compute a value; only references to other keys are taken",
            hint="write the value itself, or a reference such as ${experiment.max_n_frames}",
        )
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    # Of Hydra, whose import takes longer than most commands that need no quotes.
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text=text, quote=Quote.single).with_quotes()


def _dict_key(name: Value) -> str:
    if not isinstance(name, str) or not _DICT_KEY.fullmatch(name) or name.lower() in _RESERVED:
        raise NoSpellingError(
            f"Hydra's command line cannot spell {name!r} as the key of a mapping",
            hint="use letters, digits, _ - . / and : in keys",
        )
    return name.replace(":", r"\:")

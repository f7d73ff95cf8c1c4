"""Spell overrides for Hydra's command line.

A grid's values are JSON values. Each becomes one ``key=value`` string that Hydra reads back as the same
value; a value without a spelling in Hydra's grammar is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hydra.core.override_parser.types import Quote, QuotedString

from jobs.training.config_errors import RefusedKeyError
from orchestrator.core.types import Value

_KEY = re.compile(r"(?:\+{1,2}|~)?[A-Za-z_][\w-]*(?:[./@:][A-Za-z0-9_][\w-]*)*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][\w-]*(?:[/.][A-Za-z0-9_][\w-]*)*", re.ASCII)
_RESERVED = frozenset({"null", "true", "false", "nan", "inf"})
_DICT_KEY = re.compile(r"[A-Za-z_][\w-]*(?:[./:][\w-]+)*", re.ASCII)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][\w.-]*\}", re.ASCII)


def override_text(key: str, value: Value) -> str:
    """Spell ``key=value`` for Hydra's grammar; ``~key`` where the value is null."""
    if not _KEY.fullmatch(key):
        raise RefusedKeyError(
            key,
            f"{key!r} is not a key Hydra can read",
            hint="write it as on Hydra's command line: experiment.lr, or +experiment.adam_extra_kwargs.x",
        )
    if key.startswith("~") and value is None:
        return key
    return f"{key}={_spelled(key, value)}"


def _spelled(key: str, value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(key, value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(_spelled(key, item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_dict_key(key, k)}:{_spelled(key, v)}" for k, v in value.items()) + "}"
    raise RefusedKeyError(
        key, f"{key}: a value of type {type(value).__name__} has no spelling on Hydra's command line"
    )


def _text(key: str, text: str) -> str:
    if text == "???":
        raise RefusedKeyError(key, f"{key}: '???' means a missing value to Hydra", hint=f"give {key} a value")
    if "${" in text and (_REFERENCE.sub("", text).find("${") >= 0 or "\\" in text):
        # A resolver such as ${oc.env:HOME} would make the result depend on the machine, not on the grid.
        raise RefusedKeyError(
            key,
            f"{key}: {text!r} asks Hydra to compute a value; only references to other keys are taken",
            hint="write the value itself, or a reference such as ${experiment.max_n_frames}",
        )
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return QuotedString(text=text, quote=Quote.single).with_quotes()


def _dict_key(key: str, name: Value) -> str:
    if not isinstance(name, str) or not _DICT_KEY.fullmatch(name) or name.lower() in _RESERVED:
        raise RefusedKeyError(
            key,
            f"{key}: Hydra's command line cannot spell {name!r} as the key of a mapping",
            hint="use letters, digits, _ - . / and : in keys",
        )
    return name.replace(":", r"\:")

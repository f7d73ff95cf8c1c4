"""Spell overrides for Hydra's command line.

A grid's values are JSON values. Each becomes one ``key=value`` string that Hydra reads back as the same
value; a value without a spelling in Hydra's grammar is refused.
"""

from __future__ import annotations

import re

from jobs.training.config_errors import RefusedKeyError
from orchestrator.core.hydra_text import NoSpellingError, hydra_text
from orchestrator.core.types import Value

_KEY = re.compile(r"(?:\+{1,2}|~)?[A-Za-z_][\w-]*(?:[./@:][A-Za-z0-9_][\w-]*)*", re.ASCII)


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
    try:
        return f"{key}={hydra_text(value)}"
    except NoSpellingError as error:
        raise RefusedKeyError(key, f"{key}: {error}", hint=error.hint) from None

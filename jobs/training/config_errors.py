"""Errors of a configuration that name the override at fault."""

from __future__ import annotations

from jobs.training.context import BadConfigError


class RefusedKeyError(BadConfigError):
    """A configuration refused because of one override."""

    def __init__(self, key: str | None, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key


class MissingHereError(RefusedKeyError):
    """This machine lacks what a task needs; another one may have it."""


def unexpected(
    key: str, found: object, expected: str, *, meant: str | None = None, hint: str | None = None
) -> RefusedKeyError:
    """Return the error for an override with a wrong value; ``meant``: the nearest right one."""
    hint = f"did you mean {meant}?" if meant else hint
    return RefusedKeyError(key, f"{bare_key(key)}: found {found}, expected {expected}", hint=hint)


def require_positive(config: object, *keys: str) -> None:
    """Refuse numbers that are not above 0. Raises :class:`RefusedKeyError`."""
    for key in keys:
        if not getattr(config, key) > 0:
            raise unexpected(key, getattr(config, key), "a number above 0")


def bare_key(key: str) -> str:
    """Return the key without Hydra's ``+``, ``++`` and ``~``."""
    return key.lstrip("+~")

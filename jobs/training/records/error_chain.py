"""Walk through an error and the errors behind it."""

from __future__ import annotations

from collections.abc import Iterator

_LONGEST = 300


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def reason(error: BaseException) -> str:
    """Return a library's error in one line."""
    kind, text = type(error).__name__, first_line(error)
    return (kind if text == kind else f"{kind}: {text}")[:_LONGEST]


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost cause. Under a debugger OmegaConf's errors cause themselves."""
    seen = set[int]()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

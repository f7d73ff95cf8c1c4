"""Walk through an error and the errors behind it."""

from __future__ import annotations

from collections.abc import Iterator


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__

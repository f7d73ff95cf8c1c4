"""Choose any recorded metric in the place of the return: to draw, compare and rank runs by it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import Row

_LOWER, _HIGHER = ":min", ":max"
# Metrics whose name ends with one of these words are better when lower, unless ``:max`` is given.
_LOWER_BY_NAME = re.compile(r"(?:.*[\W_])?(loss|error|mse|rmse|mae|nll|perplexity|regret)", re.IGNORECASE)
_MOST_NAMED = 12
# The word as a noun, and "returns more"; no part of a key, an option or a metric's name.
_RETURN = re.compile(r"(?<![\w/=.-])(?<!episode )([Rr])eturn(s?)(?![\w/=])( more)?")


@dataclass(frozen=True)
class ChosenMetric:
    """A metric by its ``name``; ``lower``: whether lower values are better."""

    name: str
    lower: bool = False

    @classmethod
    def parse(cls, text: str | None) -> ChosenMetric | None:
        """Read ``NAME``, ``NAME:min`` or ``NAME:max``. A bare name of a loss or error means ``:min``."""
        if text is None:
            return None
        name = text.removesuffix(_LOWER).removesuffix(_HIGHER)
        if not name:
            raise OrchestrateError(
                f"--metric: found {text!r}, expected NAME, NAME:min or NAME:max",
                hint="for example --metric loss:min, where lower is better",
            )
        by_name = name == text and _LOWER_BY_NAME.fullmatch(name) is not None
        return cls(name, by_name or text.endswith(_LOWER))

    def require(self, histories: Iterable[Iterable[Row]]) -> None:
        """Raise :class:`OrchestrateError` if runs recorded metrics, and none this one."""
        names = {name for history in histories for row in history for name in row.metrics}
        if not names or self.name in names:
            return
        near = get_close_matches(self.name, names, 1)
        shown = ", ".join(sorted(names)[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
        hint = f"did you mean {near[0]}?" if near else "write one of these names"
        raise OrchestrateError(f"--metric: no run recorded {self.name!r}; found {shown}", hint=hint)

    def in_words(self, text: str) -> str:
        """Put the metric in the place of the return in a sentence or a heading; escape it in markup."""
        name = escape(self.name) if hasattr(text, "__html__") else self.name

        def word(match: re.Match[str]) -> str:
            first, plural, more = match.groups()
            if more:
                return f"{'has' if plural else 'have'} a {'lower' if self.lower else 'higher'} {name}"
            return f"{'V' if first == 'R' else 'v'}alues of {name}" if plural else name

        return _RETURN.sub(word, text)

    def __str__(self) -> str:
        return f"{self.name} ({'lower' if self.lower else 'higher'} is better)"

"""Correct p-values of pairs for all comparisons of a page. Pure.

Variants that are compared with each other form a family, one for each answer of the page. Three steps keep
the chance of a false verdict on a page at the level, whichever variants are alike, as far as alike variants
have the same distribution of returns:

- Families share the level equally. The share of a family of two variants that differ goes to the others.
- Within a family all variants are tested together first. If they are not all alike, at most the pairs of all
  variants but one are alike, so that a pair's p-value is multiplied by the number of these.
- A variant that leads alone beats every other one. A false leader has to beat its equals all at once, so
  that the highest p-value of these pairs is multiplied by half the number of the others only. Together with
  the pairs among the others that is no more than the level, as Gutmann and Maymin (1987) have it for a
  leader alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from orchestrator.analysis.statistics.significance import least_alike


def any_pair(members: int, chance: float) -> float:
    """Return a p-value that so many variants are all alike, from the lowest one of their pairs."""
    return min(1.0, math.comb(members, 2) * chance)


@dataclass(frozen=True)
class FamilyTest:
    """The tests of a family of ``members`` variants, before they are corrected for other families.

    ``alike``: p-value that all variants are alike. ``chances``: p-values of the first variant against each
    other one. ``first``: whether the first one returns more more often than not against each of them.
    """

    members: int
    alike: float
    chances: tuple[float, ...]
    first: bool

    @property
    def times(self) -> int:
        """What p-values of pairs are multiplied by."""
        return max(1, math.comb(self.members - 1, 2))

    @property
    def times_of_lead(self) -> float:
        """What p-values of the leader's pairs are multiplied by."""
        return max(1.0, (self.members - 1) / 2)

    def pair(self, chance: float) -> float:
        """Correct the p-value of any pair."""
        return max(self.alike, self.times * chance)

    def against_first(self) -> list[float]:
        """Correct the p-values of the first variant against the others."""
        lead = max(self.alike, self.times_of_lead * max(self.chances)) if self.first else math.inf
        return [min(lead, self.pair(chance)) for chance in self.chances]

    def least(self, chance: float, *, of_first: bool) -> float:
        """Return the lowest p-value that a pair can have after correction, given the other pairs.

        ``chance``: the lowest p-value of the pair's own test. ``of_first``: whether the first variant is
        one of the two, which may lead.
        """
        times = min(self.times, self.times_of_lead) if of_first else self.times
        together = any_pair(self.members, min(chance, *self.chances))
        return max(least_alike(together) if self.members > 2 else 0.0, times * chance)


@dataclass(frozen=True)
class PageTest:
    """All families of a page."""

    families: tuple[FamilyTest, ...]

    @cached_property
    def _twos(self) -> list[tuple[int, float]]:
        """The families of two variants with their p-values, the lowest first."""
        twos = [(at, family.chances[0]) for at, family in enumerate(self.families) if family.members == 2]
        return sorted(twos, key=lambda pair: pair[1])

    def corrected(self, family: int, chance: float) -> float:
        """Correct a p-value of this family for the other ones.

        Families of two variants, which have one pair, are taken by Holm's method; as long as one is not told
        apart, what follows has no more than an equal share. The family's own p-value is not read, so that
        ``chance`` may be one that it could have had.
        """
        least, left = 0.0, len(self.families)
        raised = left * chance
        for at, other in self._twos:
            if at == family:
                continue
            least = max(least, left * other)
            if least >= raised:
                break
            left -= 1
            raised = min(raised, max(least, left * chance))
        return min(1.0, raised)

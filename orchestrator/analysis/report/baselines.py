"""The page's section on policies beside scripted baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice

from orchestrator.analysis.baselines import (
    EvaluatedSweep,
    Ranking,
    Verdict,
    evaluated_sweep,
    frames_to_best,
    frames_to_half,
    rankings,
)
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.report.baseline_figures import gap_pictures
from orchestrator.analysis.report.baseline_tables import (
    behaviour_table,
    frames_table,
    players_table,
    ranking_table,
)
from orchestrator.analysis.report.blocks import Block, Gallery, Section, Text
from orchestrator.analysis.report.plotting import MOST_PICTURES
from orchestrator.analysis.significance import FEW_SEEDS
from orchestrator.analysis.stats import Group
from orchestrator.analysis.variant_ranking import names
from orchestrator.core.formatting import count as counted
from orchestrator.rundir import SweepDir


def beside_baselines(
    sweep_dirs: Sequence[SweepDir], collected: Collected, groups: Sequence[Group]
) -> Section | None:
    """Return the section, with a part for each sweep that was evaluated beside scripted players."""
    several = [evaluated_sweep(one, collected, groups) for one in sweep_dirs]
    found = [one for one in several if one is not None and one.figures]
    numbers = count(1)
    blocks: list[Block] = []
    for one in found:
        blocks += _sweep(one, collected, numbers, named=len(found) > 1)
    return Section("baselines", "Policies and scripted players", tuple(blocks)) if blocks else None


def _sweep(
    found: EvaluatedSweep, collected: Collected, numbers: Iterator[int], *, named: bool
) -> Iterator[Block]:
    """Yield the blocks of one sweep."""
    setting = f"Evaluated in {found.setting}"
    if found.missing:
        missing = counted(found.missing, "finished run")
        setting += f"; without {missing} ({found.command})"
    sweep = f"{found.name}: " if named else ""
    yield Text(f"{sweep}{setting}.")
    for number, figure in enumerate(found.ranked):
        yield Text(f"{sweep}{figure}", title=True)
        yield from _figure(rankings(found, figure), collected, numbers, first=not number)
    if found.behaviour:
        yield Text(f"{sweep}behaviour", title=True)
        yield behaviour_table(found)
        yield Text(_BEHAVIOUR, note=True)


def _figure(
    found: Sequence[Ranking], collected: Collected, numbers: Iterator[int], *, first: bool
) -> Iterator[Block]:
    """Yield the blocks of a figure; all that there are of the ``first``."""
    yield from map(Text, verdicts(found))
    pictures = tuple(islice(gap_pictures(found, numbers), MOST_PICTURES)) if first else ()
    if pictures:
        yield Gallery(pictures)
    yield ranking_table(found)
    if not first:
        return
    yield Text(_RANKED, note=True)
    yield players_table(found)
    frames = frames_table(found, frames_to_best(found, collected), frames_to_half(found, collected))
    if frames is not None:
        yield frames
        yield Text(_FRAMES, note=True)


def verdicts(found: Sequence[Ranking]) -> Iterator[str]:
    """Yield for each variant in how many tasks it is at least the best baseline."""
    labels = names([one.of.group.point for one in found], ("task", "sweep"))
    by_variant: dict[str, list[Verdict]] = {}
    for one, label in zip(found, labels, strict=True):
        by_variant.setdefault(label, []).append(one.verdict)
    for label, own in by_variant.items():
        yield f"{label}: {_counted(own)}" if len(by_variant) > 1 else _counted(own).capitalize()


def _counted(own: Sequence[Verdict]) -> str:
    told = Counter(own)
    few = told.pop(Verdict.FEW, 0)
    if not told:
        return f"no verdict: fewer than {FEW_SEEDS} seeds."
    reached = told[Verdict.ABOVE] + told[Verdict.ALIKE]
    parts = ", ".join(f"{verdict} in {told[verdict]}" for verdict in Verdict if told[verdict])
    left = f"; {few} with fewer than {FEW_SEEDS} seeds" if few else ""
    return f"at least the best baseline in {reached} of {counted(len(own), 'task')} ({parts}{left})."


_RANKED = (
    "Policies on the task that they were trained on, one per seed; scripted players in as many episodes. "
    "Above and below: by Student's t test of the seeds against the best baseline, corrected by Holm's method "
    "for all rows and figures here; else these seeds do not tell the two apart. At least the best "
    "baseline: above or not told apart. The baseline is taken as it is, without an interval of its own; "
    f"the best of several is also a lucky one. No verdict below {FEW_SEEDS} seeds."
)
_FRAMES = (
    "Frames until the first evaluation in training that reaches the best baseline's figure of the table, or "
    "closes half of the gap: the median over seeds, with its 95 % interval by bootstrap over seeds. A seed "
    "that never does counts as later than all its frames (>). Nothing is known between two evaluations. "
    "These have other episodes than the evaluation above, and a later one may be lower again."
)
_BEHAVIOUR = (
    "Policies: interquartile mean over seeds, with its 95 % interval. Scripted players: from the lowest to "
    "the highest task."
)

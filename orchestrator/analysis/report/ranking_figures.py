"""Pictures of variants side by side: performance profiles, probability of improvement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from matplotlib.figure import Figure

from orchestrator.analysis.improvement import Improvement
from orchestrator.analysis.report.plotting import (
    LINES,
    Draw,
    Picture,
    Theme,
    about,
    axes,
    bundles,
    dash,
    diamond,
    heading,
    legend,
    legend_height,
    listed,
    picture,
    rows,
    short,
    wrapped,
)
from orchestrator.analysis.variant_ranking import PerformanceProfile, Profiles

# Most pairs in a picture that can still be read.
_MOST_PAIRS = 12
# A profile's line rises or falls at its thresholds; half way down it, half of the runs are left.
_HALF = 0.5


def profile_pictures(found: Sequence[Profiles], overall: Sequence[Profiles]) -> Iterator[Picture]:
    """Draw all tasks together first, then one picture per task, split where lines are too many."""
    numbers = count(1)
    for whole in overall:
        for part, title in _split(whole, f"All {len(whole.tasks)} tasks, scaled"):
            yield _profile_picture(f"profile-{next(numbers)}", part, title, whole, small=False)
    small = len(found) > 1
    for profiles in found:
        for part, title in _split(profiles, profiles.tasks[0]):
            yield _profile_picture(f"profile-{next(numbers)}", part, title, profiles, small=small)


def _split(profiles: Profiles, title: str) -> Iterator[tuple[list[PerformanceProfile], str]]:
    named = [(profile, "") for profile in profiles.profiles]
    for part, name in bundles(named, lambda one: (one.variant.number, one.variant.side), LINES, title):
        yield [profile for profile, _ in part], name


def _profile_picture(
    name: str, part: Sequence[PerformanceProfile], title: str, profiles: Profiles, *, small: bool
) -> Picture:
    caption = "The part of a variant's runs whose final return is above each value; band: 95 % interval."
    if profiles.spans:
        caption = (
            "The part of a variant's runs whose scaled final return is above each value, every task "
            "weighing the same; band: 95 % interval. In each task 0 is the worst and 1 the best final return "
            f"of the variants drawn: {_spans(profiles)}."
        )
    if profiles.left_out:
        caption += f" Left out, as they lack a task: {listed(profiles.left_out)}."
    halves = [f"{one.variant.label}: half of its runs above {_median_of(one):.4g}" for one in part]
    return picture(
        name,
        title,
        _profiles(part, title, scaled=bool(profiles.spans), small=small),
        caption=caption,
        alt=f"Performance profiles{about(title)}. {listed(halves)}.",
        small=small,
    )


def _spans(profiles: Profiles) -> str:
    return ", ".join(
        f"{task or 'the task'} {low:.4g} to {high:.4g}" for task, (low, high) in profiles.spans.items()
    )


def _median_of(profile: PerformanceProfile) -> float:
    """Return the first threshold that no more than half of the runs exceed."""
    return float(profile.thresholds[int((profile.value <= _HALF).argmax())])


def _profiles(part: Sequence[PerformanceProfile], title: str, *, scaled: bool, small: bool) -> Draw:
    labels = [f"{short(one.variant.label)} (n={one.variant.n})" for one in part]

    def draw(theme: Theme) -> Figure:
        figure, on = axes((3.2 if small else 4.0) + legend_height(labels, small=small), small=small)
        for one in part:
            colour = theme.line(one.variant.number)
            on.plot(
                one.thresholds,
                one.value,
                color=colour,
                linestyle=dash(one.variant.number, one.variant.side),
                drawstyle="steps-post",
            )
            if one.low is not None and one.high is not None:
                on.fill_between(
                    one.thresholds, one.low, one.high, step="post", color=colour, alpha=0.13, linewidth=0
                )
        heading(on, title, small=small)
        on.set_xlabel("final return, scaled within its task" if scaled else "final return")
        on.set_ylabel("part of runs above")
        on.set_xlim(part[0].thresholds[0], part[0].thresholds[-1])
        on.set_ylim(-0.02, 1.04)
        legend(figure, on.get_lines(), labels, small=small)
        return figure

    return draw


def improvement_pictures(found: Sequence[Improvement]) -> Iterator[Picture]:
    """Draw each reference variant against the others, one picture per reference."""
    by_first: dict[tuple[tuple[str, ...], int], list[Improvement]] = {}
    for one in found:
        by_first.setdefault((one.tasks, id(one.better)), []).append(one)
    small = len(by_first) > 1
    for number, ((tasks, _), pairs) in enumerate(by_first.items(), 1):
        title = tasks[0] if len(tasks) == 1 else f"All {len(tasks)} tasks"
        shown = pairs[:_MOST_PAIRS]
        first = pairs[0].better.label
        caption = (
            f"Chance that a run of {first} returns more than one of the variant at the left, and the 95 % "
            f"interval of each by itself. {_verdict_text(pairs)}"
        )
        if len(pairs) > len(shown):
            caption += f" The {len(shown)} that come nearest to it; the table has more."
        said = [f"than {one.other.label}: {one}" for one in shown]
        yield picture(
            f"improvement-{number}",
            title,
            _improvements(shown, title, small=small),
            caption=caption,
            alt=f"Probability that a run of {first} returns more{about(title)}. {listed(said)}.",
            small=small,
        )


def _verdict_text(pairs: Sequence[Improvement]) -> str:
    """Name the variants that differ by more than luck."""
    apart = [one.other.label for one in pairs if one.beyond_chance]
    return f"More than luck: {listed(apart)}." if apart else "None of these differences is more than luck."


def _improvements(pairs: Sequence[Improvement], title: str, *, small: bool) -> Draw:
    first = short(pairs[0].better.label)

    def draw(theme: Theme) -> Figure:
        lines = wrapped(f"P({first} > …)", 40).count("\n")
        figure, on = axes(1.3 + 0.36 * len(pairs) + 0.2 * lines, small=small)
        on.axvline(_HALF, color=theme.ink, linewidth=1, linestyle=":")
        for row, one in enumerate(pairs):
            colour = theme.line(one.other.number)
            diamond(on, row, one, colour, theme)
        heading(on, title, small=small)
        rows(on, [short(one.other.label) for one in pairs], 22 if small else 30)
        on.set_xlim(-0.02, 1.02)
        on.set_xlabel(wrapped(f"P({first} > …)", 40))
        return figure

    return draw

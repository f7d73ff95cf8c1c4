"""Performance profiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from matplotlib.figure import Figure

from orchestrator.analysis.groups.limits import unranked
from orchestrator.analysis.groups.variants import (
    PerformanceProfile,
    Profiles,
    over_tasks,
    overall_profiles,
    task_profiles,
)
from orchestrator.analysis.report.blocks import MANY, Block, Gallery, Points, Section, Text
from orchestrator.analysis.report.data import MOST_DRAWN, ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.drawing.plotting import Draw, Picture, Theme
from orchestrator.analysis.statistics.significance import FEW_SEEDS, INTERVAL_SEEDS


def section(data: ReportData) -> Section | None:
    """Return the section; ``None`` if there is nothing to show."""
    shown = data.returning[:MOST_DRAWN]
    # Over all tasks only if it covers all variants.
    overall = overall_profiles(over_tasks(shown)) if len(shown) == len(data.returning) else []
    pictures = plotting.first(profile_pictures(task_profiles(shown), overall))
    if not pictures:
        return None
    large = tuple(picture for picture in pictures if not picture.small)
    small = tuple(picture for picture in pictures if picture.small)
    drawn: list[Block] = [Gallery(some) for some in (large, small) if some]
    if flags := unranked(data.finals):
        drawn.insert(0, Points(tuple(("", text) for text in flags)))
    notes = [Text(_PROFILES, note=True)]
    if len(shown) < len(data.returning) or len(pictures) == plotting.MOST_PICTURES:
        notes.append(Text(MANY, note=True))
    return Section("profiles", "Performance profiles", (*drawn, *notes))


_PROFILES = (
    "The higher a line, the more of the variant's runs are above that value. Lines of few runs "
    "differ by luck: which variants differ by more is shown under probability of improvement, for variants "
    f"with {FEW_SEEDS} seeds or more. Intervals by bootstrap over the seeds of each task; "
    f"where a task has fewer than {INTERVAL_SEEDS} there are none. Returns of one task are raw. All tasks "
    "together need one scale, and the one above depends on which runs are on this page."
)


def profile_pictures(by_task: Sequence[Profiles], overall: Sequence[Profiles]) -> Iterator[Picture]:
    """Draw all tasks together first, then one picture per task, split where lines are too many."""
    numbers = count(1)
    for whole in overall:
        for part, title in _split(whole, f"All {len(whole.tasks)} tasks, scaled"):
            yield _profile_picture(f"profile-{next(numbers)}", part, title, whole, small=False)
    small = len(by_task) > 1
    for profiles in by_task:
        for part, title in _split(profiles, profiles.tasks[0]):
            yield _profile_picture(f"profile-{next(numbers)}", part, title, profiles, small=small)


def _split(profiles: Profiles, title: str) -> Iterator[tuple[list[PerformanceProfile], str]]:
    named = [(profile, "") for profile in profiles.profiles]
    for part, name in plotting.bundles(
        named, lambda profile: (profile.variant.number, profile.variant.side), plotting.LINES, title
    ):
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
        caption += f" Left out, as they lack a task: {plotting.listed(profiles.left_out)}."
    halves = [f"{one.variant.label}: half of its runs above {_median_of(one):.4g}" for one in part]
    return plotting.picture(
        name,
        title,
        _profiles(part, title, scaled=bool(profiles.spans), small=small),
        caption=caption,
        alt=f"Performance profiles{plotting.about(title)}. {plotting.listed(halves)}.",
        small=small,
    )


def _spans(profiles: Profiles) -> str:
    return ", ".join(
        f"{task or 'the task'} {low:.4g} to {high:.4g}" for task, (low, high) in profiles.spans.items()
    )


# A profile's line rises or falls at its thresholds; half way down it, half of the runs are left.
_HALF = 0.5


def _median_of(profile: PerformanceProfile) -> float:
    """Return the first threshold that no more than half of the runs exceed."""
    return float(profile.thresholds[int((profile.value <= _HALF).argmax())])


def _profiles(part: Sequence[PerformanceProfile], title: str, *, scaled: bool, small: bool) -> Draw:
    labels = [f"{plotting.short(profile.variant.label)} (n={profile.variant.n})" for profile in part]

    def draw(theme: Theme) -> Figure:
        figure, on = plotting.axes(
            (3.2 if small else 4.0) + plotting.legend_height(labels, small=small), small=small
        )
        for profile in part:
            colour = theme.line(profile.variant.number)
            on.plot(
                profile.thresholds,
                profile.value,
                color=colour,
                linestyle=plotting.dash(profile.variant.number, profile.variant.side),
                drawstyle="steps-post",
            )
            if profile.low is not None and profile.high is not None:
                on.fill_between(
                    profile.thresholds,
                    profile.low,
                    profile.high,
                    step="post",
                    color=colour,
                    alpha=0.13,
                    linewidth=0,
                )
        plotting.heading(on, title, small=small)
        on.set_xlabel("final return, scaled within its task" if scaled else "final return")
        on.set_ylabel("part of runs above")
        on.set_xlim(part[0].thresholds[0], part[0].thresholds[-1])
        on.set_ylim(-0.02, 1.04)
        plotting.legend(figure, on.get_lines(), labels, small=small)
        return figure

    return draw

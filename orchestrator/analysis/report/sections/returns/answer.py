"""Answers as cards: leaders with their seeds on one axis, speed, dollars, failures, what would settle it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

from markupsafe import Markup

from orchestrator.analysis import cells
from orchestrator.analysis.cells import Cell, Table
from orchestrator.analysis.groups.comparability import differences
from orchestrator.analysis.groups.grouping import Final, SeedGroup
from orchestrator.analysis.groups.improvement import against
from orchestrator.analysis.groups.limits import single_values
from orchestrator.analysis.groups.variants import Variant, names
from orchestrator.analysis.report import web
from orchestrator.analysis.report.blocks import Block, Html, Points, Section, Text
from orchestrator.analysis.report.cards import Card, Mark, on_axis, seeds_command, sentence, time_and_money
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.drawing import plotting
from orchestrator.analysis.report.sections.costs.fastest import HOW_TO_READ_SPEED, fastest_cards
from orchestrator.analysis.run_table import known
from orchestrator.analysis.statistics.bootstrap import difference_of, finite, middle
from orchestrator.analysis.statistics.pairs import difference_within
from orchestrator.analysis.statistics.significance import FEW_SEEDS, INTERVAL_SEEDS, NOMINAL_SEEDS, ONE_LOOK
from orchestrator.analysis.verdict.fairness import red_flags
from orchestrator.analysis.verdict.leaders import TaskAnswer, no_overall
from orchestrator.analysis.verdict.missing_seeds import Bounds, lead_holds, missing_seeds
from orchestrator.analysis.verdict.run_cost import Prices
from orchestrator.analysis.verdict.seeds_needed import MOST
from orchestrator.core.formatting import count, listed
from orchestrator.core.types import RunState
from orchestrator.planning.throughput.measure import END_TO_END, TRAINING

_MOST_CARDS, _MOST_ROWS, _MOST_NAMED, _MOST_LINES = 12, 5, 4, 100


def section(data: ReportData) -> Section | None:
    """Return the answers of all tasks together and of each, as cards; ``None`` without runs."""
    groups, finals, answers, prices = data.groups, data.finals, data.answers, data.prices
    if not groups:
        return None
    if data.fastest:
        return _of_speed(data)
    cards = [_card(answer, groups, finals, prices) for answer in answers[:_MOST_CARDS]]
    cards += list(_without_answer(groups, answers))[: _MOST_CARDS - len(cards)]
    blocks = _flags_and_cards(data, cards)
    if why := no_overall(finals):
        blocks.append(Text(_capital(why), note=True))
    if rest := answers[_MOST_CARDS:]:
        blocks.append(Points(tuple(("", str(answer)) for answer in rest[:_MOST_LINES])))
    if bounds := missing_seeds(finals):
        blocks += [
            Text("Missing seeds", title=True),
            missing_table(bounds[:_MOST_LINES]),
            Text(_MISSING, note=True),
        ]
    blocks += [Text(_capital(limit), note=True) for limit in single_values(groups)]
    if answers:
        looks = f" {ONE_LOOK}" if any(answer.compared for answer in answers) else ""
        blocks.append(
            Text(f"Final return of a run: {data.collected.final}. {_HOW_TO_READ}{looks}", note=True)
        )
    return Section("answer", "The answer", tuple(blocks))


_HOW_TO_READ = (
    "A dot is the final return of one seed, the bar the 95 % interval of their interquartile mean: from "
    f"{INTERVAL_SEEDS} seeds on, and below {NOMINAL_SEEDS} it covers less than 95 %. Leaders do not "
    "differ significantly from the best, by tests of ranks corrected for all that is compared on this page; "
    f"below {FEW_SEEDS} seeds nothing leads. Needed seeds count for each variant in each task; with them "
    "four of five repeats reach a verdict if the first two differ as measured here. Speeds and dollars are "
    "medians over runs."
)

_MISSING = (
    "Seeds that failed or have no finite return, bounded: at worst each of them had the worst return of its "
    "task, initial ones included, at best the best final one. The place at worst is that with the "
    "missing seeds of all variants against this one, at best with all of them in its favour."
)


def missing_table(cases: Sequence[Bounds]) -> Table:
    """Return the table of variants with missing seeds: plain, and in the worst and the best case."""
    rows = (
        {
            "task": Cell(bounds.task or cells.MISSING),
            "group": Cell(bounds.label),
            "#missing": cells.part(bounds.missing, bounds.seeds),
            "#IQM": cells.number(bounds.plain),
            "#IQM, worst to best": Cell(
                f"{cells.shown(bounds.low)} to {cells.shown(bounds.high)}",
                bounds.low,
                ends=(bounds.low, bounds.high),
            ),
            "#place": Cell(cells.MISSING) if bounds.place is None else cells.part(bounds.place, bounds.of),
            "#place, best to worst": Cell(
                " to ".join(dict.fromkeys((str(bounds.best), str(bounds.worst)))),
                bounds.worst,
                more=(("best", bounds.best),),
            ),
        }
        for bounds in cases
    )
    return cells.table("missing seeds", rows)


def _card(answer: TaskAnswer, groups: Sequence[SeedGroup], finals: Sequence[Final], prices: Prices) -> Card:
    every = (*answer.leaders, *answer.behind)
    told, notes = every[:_MOST_ROWS], _notes(answer)
    title = answer.title if answer.tasks[0] and not answer.overall else _capital(answer.title)
    flags: tuple[str, ...] = ()
    if answer.overall:
        marks, axis = _overall_marks(answer, told, finals, prices), ("0", "1")
        failed = tuple(failures(groups))
    else:
        own = [final for final in finals if final.group.task == answer.tasks[0] and final.values]
        named = {(final.group.number, final.group.side): final for final in own}
        marks, axis = _marks(answer, told, named, prices)
        if answer.part[0] == 1:  # the flags name all variants of the task
            labels = names([final.group.point for final in own])
            flags = tuple(differences(list(zip(labels, [final.terms for final in own], strict=True))))
        failed = (
            *failures([group for group in groups if group.task == answer.tasks[0]]),
            *_worst_case(lead_holds(answer, finals)),
        )
    more = answer.more.more if answer.more is not None and answer.more.more <= MOST else 0
    command, price = seeds_command(groups, more, prices)
    verdict = sentence(answer.verdict, answer.leaders[0].label)
    return Card(
        *(title, flags, verdict, answer.remedy, marks, axis, notes, failed),
        difference=_difference(answer),
        command=command,
        price=price,
    )


def _difference(answer: TaskAnswer) -> str:
    """Return by how much the first returns more than the second; empty without a ranked second."""
    if not answer.compared:
        return ""
    first, second = (*answer.leaders, *answer.behind)[:2]
    if answer.overall:
        wins = against(first, second, answer.tasks)
        return f"P({first.label} > {second.label}) = {wins}"
    task = answer.tasks[0]
    scores, lucks = zip(*((one.scores[task], one.terms[task].luck) for one in (first, second)), strict=True)
    within = difference_within(scores, lucks)
    apart = within or difference_of(*scores)
    pairs = f" within {within.n} pairs" if within else ""
    return f"{first.label} − {second.label}: {'+' * (apart.value > 0)}{apart}{pairs}"


def _flags_and_cards(data: ReportData, cards: Sequence[Card]) -> list[Block]:
    blocks: list[Block] = []
    if flags := red_flags(data.audit):
        blocks.append(Points((("red flags:", f"{', '.join(flags)}; see the fairness audit below"),)))
    blocks.append(Html(Markup(web.template("cards.html.j2").render(cards=cards))))  # noqa: S704  it escapes
    return blocks


def _of_speed(data: ReportData) -> Section:
    """Return the answers of a grid that asks what is fastest; returns are below them, in a sentence."""
    blocks = _flags_and_cards(data, fastest_cards(data.fastest[:_MOST_CARDS], data.groups, data.prices))
    told = [*data.fastest[_MOST_CARDS:], *data.answers][:_MOST_LINES]
    if told:
        blocks.append(
            Points(tuple(("", f"{'Returns of ' * isinstance(one, TaskAnswer)}{one}") for one in told))
        )
    blocks += [Text(_capital(limit), note=True) for limit in single_values(data.groups)]
    return Section("answer", "What is fastest", (*blocks, Text(HOW_TO_READ_SPEED, note=True)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _worst_case(holds: bool | None) -> tuple[str, ...]:
    if holds is None:
        return ()
    return (
        "significant also if all missing seeds were against the leader"
        if holds
        else "not significant if all missing seeds were against the leader",
    )


def _without_answer(groups: Sequence[SeedGroup], answers: Sequence[TaskAnswer]) -> Iterator[Card]:
    """Yield the cards of tasks without any final return."""
    answered = {task for answer in answers for task in answer.tasks}
    for task in dict.fromkeys(group.task for group in groups):
        if task not in answered:
            own = [group for group in groups if group.task == task]
            metrics = [row["return_metric"] for group in own for row in group.counted()[0]]
            why = "No final return yet" if not metrics else "No finite final return"
            if metrics and not any(metrics):
                why = "No finished run logged a return"
            yield Card(task or "All runs", (), why, "", (), ("", ""), (), tuple(failures(own)))


def _notes(answer: TaskAnswer) -> tuple[str, ...]:
    notes = []
    if more := [leader.label for leader in answer.leaders[_MOST_ROWS:]]:
        notes.append(f"also not told apart: {listed(more, _MOST_NAMED)}")
    if answer.few and len(answer.few) < len(answer.leaders):
        few = [f"{variant.label} (n={variant.fewest})" for variant in answer.few]
        notes.append(f"too few seeds to be told apart from anything: {listed(few, _MOST_NAMED)}")
    if answer.behind:
        notes.append(
            f"significantly behind: {listed([variant.label for variant in answer.behind], _MOST_NAMED)}"
        )
    if answer.left_out:
        notes.append(answer.left_out)
    return tuple(notes)


def _overall_marks(
    answer: TaskAnswer, told: Sequence[Variant], finals: Sequence[Final], prices: Prices
) -> tuple[Mark, ...]:
    """Return marks at the mean chance of returning more than another variant."""
    every = (*answer.leaders, *answer.behind)
    marks = []
    for variant in told:
        others = [other for other in every if other is not variant]
        chances = [against(variant, other, answer.tasks, intervals=False).value for other in others]
        wins = fmean(chances) if chances else 0.5
        value = f"P(> another) {wins:.2f}" if chances else ""
        # Variants have the same label in all tasks, but not always the same number.
        own = [final for final in finals if variant.scores.get(final.group.task) is final.values]
        facts = _facts(own, prices)
        marks.append(
            Mark(
                variant.label,
                _colour(variant),
                value,
                facts,
                (),
                100 * wins,
                None,
                behind=variant in answer.behind,
            )
        )
    return tuple(marks)


def _marks(
    answer: TaskAnswer, told: Sequence[Variant], named: Mapping[tuple[int, int], Final], prices: Prices
) -> tuple[tuple[Mark, ...], tuple[str, str]]:
    values = [value for variant in told for value in variant.scores[answer.tasks[0]]]
    low, high = min(values), max(values)

    place = partial(on_axis, low=low, high=high)
    marks = []
    for variant in told:
        final = named[variant.number, variant.side]
        estimate = final.estimate
        assert estimate is not None
        known_ends = estimate.low is not None and estimate.high is not None
        ends = (place(estimate.low or 0.0), place(estimate.high or 0.0)) if known_ends else None
        dots = tuple(map(place, final.values))
        facts = _facts([final], prices)
        behind = variant in answer.behind
        text = str(estimate) if known_ends else cells.shown(estimate.value)
        marks.append(
            Mark(variant.label, _colour(variant), text, facts, dots, place(estimate.value), ends, behind)
        )
    return tuple(marks), (cells.shown(low), cells.shown(high))


def _colour(variant: Variant) -> int:
    return variant.number % len(plotting.LIGHT.lines)


def _facts(finals: Sequence[Final], prices: Prices) -> str:
    rows = [row for final in finals for row in final.group.counted()[0]]
    seeds = sum(len(final.values) for final in finals)
    speed = middle(known(rows, TRAINING) or known(rows, END_TO_END))
    return " · ".join(
        [
            count(seeds, "seed" if len(finals) == 1 else "run"),
            *([] if speed is None else [f"{speed:,.0f} frames/s"]),
            *time_and_money(rows, prices),
        ]
    )


_MOST_REASONS = 12

_LOST = {RunState.FAILED, RunState.UNKNOWN, RunState.CANCELLED, RunState.SKIPPED}


def failures(groups: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield a line per reason for missing results: the number of runs, and the variants concerned."""
    by_reason: dict[str, Counter[str]] = {}
    for group, label in zip(groups, names([group.point for group in groups]), strict=True):
        for row in group.rows:
            state = RunState(row["state"])
            if state is RunState.DONE and not finite(row["final_return"]):
                why = "without a finite return"
            elif state in _LOST:
                why = state.value + (f", {row['reason'].partition(':')[0]}" if row["reason"] else "")
            elif state in (RunState.DONE, RunState.STALE):
                continue
            else:
                why = "not finished"
            by_reason.setdefault(why, Counter())[label] += 1
    for why, labels in list(by_reason.items())[:_MOST_REASONS]:
        who = [label if number == 1 else f"{number} of {label}" for label, number in labels.items()]
        yield f"{count(labels.total(), 'run')} {why}: {listed(who, _MOST_NAMED)}"
    if rest := list(by_reason.values())[_MOST_REASONS:]:
        runs = sum(labels.total() for labels in rest)
        yield f"{count(runs, 'run')} for {count(len(rest), 'other reason')}: see the table of runs"

"""Describe a comparison: one sentence, and notes on its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.analysis.cells import text
from orchestrator.analysis.compare.model import Combination, ComparedValue, KeyComparison, ValueRatios
from orchestrator.analysis.compare.pairing import PER_CORE, PER_DOLLAR, PER_THREAD
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.comparability import UNRANKED, classes, differences, mixed_code
from orchestrator.analysis.groups.grouping import Final, SeedGroup
from orchestrator.analysis.groups.improvement import Improvement, against
from orchestrator.analysis.groups.keys import HARDWARE, SWEEP, TARGET
from orchestrator.analysis.groups.limits import about, single_value
from orchestrator.analysis.groups.speeds import is_provisional
from orchestrator.analysis.groups.variants import panels_of_pairs
from orchestrator.analysis.statistics.pairs import in_words
from orchestrator.analysis.statistics.ratios import Ratio
from orchestrator.analysis.statistics.significance import FEW_SEEDS, LEVEL, holm
from orchestrator.analysis.verdict.fastest import is_of_speed
from orchestrator.analysis.verdict.leaders import TaskAnswer, answers
from orchestrator.core.formatting import count, duration, listed
from orchestrator.planning.throughput.measure import END_TO_END, PROVISIONAL, TRAINING

_SPEEDS = {
    TRAINING: "speed-up: by training throughput, that is collecting and learning; end-to-end: by wall time, "
    "with evaluations and checkpoints",
    END_TO_END: "speed-up: by end-to-end throughput, that is wall time with evaluations and checkpoints, as "
    "not every run reports how long collecting and learning took",
}
_DOLLARS = (
    "$ per million frames: the price of a job and hour, by what all its slots train at their end-to-end "
    "throughput; waiting, starting and empty slots cost extra"
)
_MOST_NAMED = 4
# Beside keys of speed: these are compared by speed first.
_OF_SPEED = (HARDWARE, SWEEP)


def asks_speed(compared: KeyComparison) -> bool:
    """Return whether speed is told first; a key that changes what is learned is answered by returns."""
    return compared.key in _OF_SPEED or is_of_speed(compared.key) or compared.across_tasks


def verdict(compared: KeyComparison) -> str:
    """Compare the fastest value with the baseline in one sentence, and all values' returns in another."""
    leading = _leading_text(compared)
    return f"{_against_baseline(compared)} {leading}." if leading else _against_baseline(compared)


def _against_baseline(compared: KeyComparison) -> str:
    """Compare the fastest value with the baseline in one sentence: speed, noise, and returns.

    A value with too few seeds is the fastest only if there are no others.
    """
    every = [one for one in compared.overall if one.speed is not None and one.value != compared.baseline]
    if not every:
        return f"{_nothing_to_compare(compared)}."
    able = [ratios for ratios in every if ratios.speed and ratios.speed.beyond_noise is not None]
    rated = able or every
    best = max(rated, key=lambda ratios: ratios.speed.value if ratios.speed else 0.0)
    assert best.speed is not None
    said = _speed_text(compared, best.speed, len(rated))
    if best.efficiency is not None and compared.per in (PER_THREAD, PER_CORE) and best.speed.value >= 1:
        said += f", at {best.efficiency.value:.0%} efficiency per {compared.per}"
    said += _disagreement(compared, best.value) + _end_to_end_text(compared, best)
    if best.efficiency is not None and compared.per == PER_DOLLAR:
        said += f"; {_money_text(compared, best.efficiency)}"
    few = [compared.named(ratios.value) for ratios in every if ratios not in rated]
    left_out = f"; left out for too few seeds: {listed(few, _MOST_NAMED)}" if few else ""
    returns = _returns_text(compared, best.value)
    if asks_speed(compared) or not _pairs(compared, best.value):
        return f"{said}; {returns}{left_out}{_confounders_text(compared)}."
    told = f"{returns[:1].upper()}{returns[1:]}. {said}"
    return f"{told}{left_out}{_confounders_text(compared)}."


def _nothing_to_compare(compared: KeyComparison) -> str:
    trained = [
        value
        for value in compared.values
        if any(cell.n for combination in compared.combinations if (cell := combination.cell(value)))
    ]
    if not trained:
        return "No run has finished yet, so nothing can be compared"
    if compared.baseline not in trained:
        base = compared.named(compared.baseline)
        return f"No run with {base}, the baseline, has finished, so nothing can be compared"
    if len(trained) == 1:
        others = ", ".join(compared.named(value) for value in compared.values if value not in trained)
        return f"Only {compared.named(trained[0])} has finished runs, and no run has finished with {others}"
    returning = [value for value in trained if value != compared.baseline and _pairs(compared, value)]
    if returning:
        several = len(returning) > 1
        texts = ((value, _returns_text(compared, value, len(returning))) for value in returning)
        told = (several * f"{compared.named(value)}: " + text for value, text in texts)
        return f"Too few speeds are known to compare them; {'; '.join(told)}"
    if any(len(one.cells) > 1 for one in compared.combinations):
        return "The finished runs have no speeds and no returns to compare"
    said = f"No two finished runs differ in nothing but {compared.short}, so nothing can be compared"
    deciding = next(_deciding_keys(compared), None)
    return (
        f"{said}: each value of {deciding} has one {compared.short}, so compare by {deciding}"
        if deciding
        else said
    )


def _deciding_keys(compared: KeyComparison) -> Iterator[str]:
    """Yield the keys of which every value has one value of the compared key."""
    told = [(one.point, cell.value) for one in compared.combinations for cell in one.cells]
    for key in dict.fromkeys(key for point, _ in told for key in point):
        values = gathered((text(point.get(key)), value) for point, value in told)
        if len(values) > 1 and all(len(set(own)) == 1 for own in values.values()):
            yield key


def _speed_text(compared: KeyComparison, speed: Ratio, rated: int) -> str:
    best, base = compared.named(speed.better), compared.named(speed.other)
    others = ", the next best," if rated > 1 else ""
    if speed.beyond_noise is False or speed.even:
        times = f"{speed.value:.2f} times as fast ({speed})"
        return f"No clear difference in speed between {best} and {base}: {times}"
    if speed.beyond_noise is None:
        return f"{best} trained {speed.value:.2f} times as fast as {base} ({speed})"
    if speed.value < 1:
        return f"{base} trains fastest: {best}{others} trains {speed.value:.2f} times as fast ({speed})"
    return f"{best} trains {speed.value:.2f} times as fast as {base} ({speed})"


def _money_text(compared: KeyComparison, gain: Ratio) -> str:
    """Compare the cost of frames, by the ratio of frames per dollar."""
    cheap = gain if gain.value >= 1 else gain.inverse
    where = "on" if compared.key == TARGET else "with"
    dear, times = f"{where} {compared.named(cheap.other)}", f"{cheap.value:.2f} times as much"
    if cheap.beyond_noise is False or cheap.even:
        both = f"{dear} and {where} {compared.named(cheap.better)}"
        return f"no clear difference in what a million frames cost {both}: {times} ({cheap})"
    return f"a million frames cost {times} {dear} as {where} {compared.named(cheap.better)} ({cheap})"


def _end_to_end_text(compared: KeyComparison, best: ValueRatios) -> str:
    """Add the end-to-end speed-up, or that the speed-up is end-to-end already."""
    if compared.figure == END_TO_END:
        return ", by end-to-end throughput"
    return f"; end-to-end {best.end_to_end.value:.2f} times" if best.end_to_end is not None else ""


def _disagreement(compared: KeyComparison, value: str) -> str:
    """Give the range of speed-ups where combinations disagree on the faster value."""
    cells = [cell for combination in compared.combinations if (cell := combination.cell(value)) is not None]
    times = sorted(cell.speed.value for cell in cells if cell.speed is not None)
    if not times or times[0] >= 1 or times[-1] <= 1:
        return ""
    return f", from {times[0]:.2f} to {times[-1]:.2f} times in single combinations"


def _returns_text(compared: KeyComparison, value: str, values: int = 1) -> str:
    """Compare final returns, combination by combination, each tested and corrected for their number.

    And for the number of ``values`` that are compared with the baseline in one sentence.
    """
    pairs = _pairs(compared, value)
    if not pairs:
        return "no returns to compare"
    if compared.across_tasks:
        return "returns of different tasks are not ranked"
    fair = [pair for pair in pairs if len(classes((cell, cell.terms) for cell in pair)) == 1]
    if not fair:
        return "final returns are not comparable, so they are not ranked"
    enough = [pair for pair in fair if least_seeds(pair) >= FEW_SEEDS]
    tests = [against(mine.variant, base.variant, ("",), intervals=False) for mine, base in enough]
    told = Counter(_higher(tests, values))
    few, apart = len(fair) - told.total() + told["few"], told["higher"] + told["lower"]
    if few == len(pairs):
        seeds = min(map(least_seeds, fair))
        if seeds < FEW_SEEDS:
            able = f" ({seeds} per side, {FEW_SEEDS} needed)"
        elif len(pairs) > 1:
            able = f" in each of {len(pairs)} combinations"
        else:
            able = f" (for {values} values)"
        return f"too few seeds to tell final returns apart{able}{_paired_text(tests)}"
    if not apart and not few and len(fair) == len(pairs):
        return f"final returns cannot be told apart{_paired_text(tests)}"
    parts = (
        (told["higher"], "higher"),
        (told["lower"], "lower"),
        (told["alike"], "not told apart"),
        (few, "of too few seeds"),
        (len(pairs) - len(fair), "not ranked"),
    )
    listed = ", ".join(f"{what} in {count}" for count, what in parts if count)
    named = compared.named(value)
    return f"final returns with {named} are {listed} of {len(pairs)} combinations{_paired_text(tests)}"


_Pair = tuple[ComparedValue, ComparedValue]


def _pairs(compared: KeyComparison, value: str) -> list[_Pair]:
    """Return the parts with returns of this value and of the baseline, by combination."""
    return [
        (mine, base)
        for combination in compared.combinations
        if (mine := combination.cell(value)) is not None
        and (base := combination.cell(compared.baseline)) is not None
        if mine.returns and base.returns
    ]


def least_seeds(pair: _Pair) -> int:
    """Return the number of final returns on the side that has fewer."""
    return min(len(cell.returns) for cell in pair)


def _higher(tests: Sequence[Improvement], values: int) -> Iterator[str]:
    """Yield for each test how its first side returns: "higher", "lower", "alike", or "few" seeds."""
    chances = holm([1.0 if test.chance is None else test.chance for test in tests], len(tests))
    for test, chance in zip(tests, chances, strict=True):
        if values * chance <= LEVEL:
            yield "higher" if (test.value > 1 / 2) != test.better.terms[""].lower else "lower"
        else:
            yield "few" if test.least_alone * len(tests) * values > LEVEL else "alike"


def _paired_text(tests: Sequence[Improvement]) -> str:
    """Say that returns were compared within pairs, and in how many combinations unless in all."""
    panels = [panels_of_pairs((test.better, test.other), test.tasks, fewest=1) for test in tests]
    numbers = [panel.shape[1] for several in panels for panel in several or ()]
    part = f"{len(numbers)} of {len(tests)} " if len(numbers) < len(tests) else ""
    return f" ({part}{in_words(numbers)})" if numbers else ""


def _confounders_text(compared: KeyComparison) -> str:
    if not compared.together:
        return ""
    names = ", ".join(key.rpartition(".")[2] for key in compared.together)
    return f" ({names} change{'s' * (len(compared.together) == 1)} with {compared.short})"


def notes(compared: KeyComparison) -> list[str]:
    """Return the notes on the table, one line each."""
    cells = [
        (_name(compared, combination, cell), cell.terms)
        for combination in compared.combinations
        for cell in combination.cells
    ]
    lines = [*mixed_code(cells), *(f"{UNRANKED}, {text}" for text in _unranked(compared))]
    frames = [one.frames for one in compared.combinations if one.frames is not None and len(one.cells) > 1]
    seconds = [one.seconds for one in compared.combinations if one.seconds is not None and len(one.cells) > 1]
    if frames and seconds:
        most = _span([f"{value:,.0f}" for value in (min(frames), max(frames))])
        long = _span([duration(value) for value in (min(seconds), max(seconds))])
        lines.append(
            f"returns: at the end, at equal frames ({most}) and at equal wall time "
            f"({long}, evaluations and checkpoints included)"
        )
    lines.append(_SPEEDS[compared.figure])
    if compared.per:
        gain = "end-to-end speed-up" if compared.per == "dollar" else "speed-up"
        lines.append(
            f"efficiency: {gain} per {compared.per}, over that of {compared.named(compared.baseline)}"
        )
    if compared.priced:
        lines.append(_DOLLARS)
    if compared.together:
        lines.append(f"changes with {compared.short}: {', '.join(compared.together)}")
    if compared.moved:
        lines.append(f"left out: {count(compared.moved, 'run')} that moved from one target to another")
    lines += about(_paired_notes(compared), _MOST_NAMED)
    return [*lines, *about(_row_notes(compared), _MOST_NAMED)]


def _row_notes(compared: KeyComparison) -> Iterator[tuple[str, str]]:
    """Yield the notes on single combinations or values, with their names."""
    trained = [combination for combination in compared.combinations if combination.finished]
    for combination in trained:
        for cell in combination.cells:
            provisional = PROVISIONAL if is_provisional(cell.members.counted()[0]) else ""
            for note in filter(None, (cell.note, provisional, single_value(cell.members))):
                yield note, _name(compared, combination, cell)
        if len(combination.cells) == 1:
            only = compared.named(combination.cells[0].value)
            yield f"only {only}, nothing to compare it with", combination.label
    for combination in trained or compared.combinations:
        for cell in combination.cells:
            if cell.n < len(cell.members.rows):
                yield f"runs are {cell.members.states_text}", _name(compared, combination, cell)
    for combination in compared.combinations if trained else ():
        if not combination.finished:
            yield "no finished run", combination.label


def _paired_notes(compared: KeyComparison) -> Iterator[tuple[str, str]]:
    """Yield the differences of final returns within pairs, with the combination and the value."""
    base = compared.named(compared.baseline)
    for combination in compared.combinations:
        for cell in combination.cells:
            if (within := compared.within_pairs(combination, cell)) is not None:
                what = f"final return minus that with {base}, {in_words([within.n])}"
                yield what, f"{_name(compared, combination, cell)} {'+' * (within.value > 0)}{within}"


def _name(compared: KeyComparison, combination: Combination, cell: ComparedValue) -> str:
    return f"{combination.label} {compared.named(cell.value)}".strip()


def _unranked(compared: KeyComparison) -> list[str]:
    """Name the combinations with final returns that cannot be ranked, and why."""
    told = gathered(
        (what, combination.label)
        for combination in compared.combinations
        for what in differences(
            [(compared.named(cell.value), cell.terms) for cell in combination.cells if cell.returns]
        )
    )
    return [f"{listed(labels, _MOST_NAMED)}: {what}" for what, labels in told.items()]


def _span(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


# Of two values the comparison with the baseline says it all.
_FEWEST_VALUES = 3

_MOST_ANSWERS = 3


def _leading_text(compared: KeyComparison) -> str:
    """Return a sentence on the returns of all values; empty for fewer than three that can be ranked."""
    if compared.across_tasks:
        return ""
    finals = [
        _final(compared, cell, combination.label)
        for combination in compared.combinations
        for cell in combination.cells
        if cell.returns or cell.n
    ]
    if len({final.group.number for final in finals if final.values}) < _FEWEST_VALUES:
        return ""
    every = answers(finals)
    whole = [answer for answer in every if answer.overall] or every
    told = "; ".join(_said(answer, len(every) > 1) for answer in whole[:_MOST_ANSWERS])
    more = len(whole) - _MOST_ANSWERS
    return f"Returns of all values: {told}" + (f"; and {more} more combinations" if more > 0 else "")


def _final(compared: KeyComparison, cell: ComparedValue, combination: str) -> Final:
    """Return the final returns of a cell as those of a variant, with the combination in a task's place."""
    number, variant = compared.values.index(cell.value), {compared.short: cell.value}
    point = {"task": combination, **variant}
    group = SeedGroup(cell.members.rows, "", number, 0, compared.named(cell.value), point, variant)
    return Final(group, cell.returns, cell.final, cell.note, cell.terms)


def _said(answer: TaskAnswer, several: bool) -> str:
    where = f"over {len(answer.tasks)} combinations, " if answer.overall else ""
    where = where or (f"{answer.tasks[0]}: " if several else "")
    return where + ", ".join(filter(None, (answer.verdict, answer.remedy, answer.left_out)))

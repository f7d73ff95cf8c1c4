"""The page's sections, in order. A new section is a new function in ``SECTIONS``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from orchestrator.analysis.compare import KeyComparison, compare_by, target_comparisons
from orchestrator.analysis.compare.axis import SWEEP
from orchestrator.analysis.compare.wording import notes, verdict
from orchestrator.analysis.evaluation_matrix import latest_matrices
from orchestrator.analysis.generalization import generalizations
from orchestrator.analysis.improvement import standing
from orchestrator.analysis.report import tables
from orchestrator.analysis.report.answer import (
    answer_section,
    audit_section,
    evidence_section,
    threshold_section,
)
from orchestrator.analysis.report.baselines import beside_baselines
from orchestrator.analysis.report.blocks import (
    Block,
    Chart,
    Details,
    Folded,
    FoldedText,
    Gallery,
    Points,
    Section,
    Text,
)
from orchestrator.analysis.report.chart import chart_data, charted
from orchestrator.analysis.report.compare_figures import comparison_pictures
from orchestrator.analysis.report.cost_figures import cost_section
from orchestrator.analysis.report.crossover_figures import where_to_run
from orchestrator.analysis.report.data import ReportData
from orchestrator.analysis.report.effect_figures import effect_section
from orchestrator.analysis.report.generalization_figures import generalization_section
from orchestrator.analysis.report.matrix_figures import matrix_pictures
from orchestrator.analysis.report.money import money_section
from orchestrator.analysis.report.plotting import LINES, MOST_PICTURES, Picture
from orchestrator.analysis.report.ranking_figures import improvement_pictures, profile_pictures
from orchestrator.analysis.report.run_details import run_details
from orchestrator.analysis.report.scaling_figures import scaling
from orchestrator.analysis.report.training_figures import (
    final_pictures,
    learning_pictures,
    speed_pictures,
)
from orchestrator.analysis.significance import FEW_SEEDS, INTERVAL_SEEDS
from orchestrator.analysis.stats import Curve, loss_metrics, several_curves
from orchestrator.analysis.summary import returns_lacking, unranked, warnings
from orchestrator.analysis.variant_ranking import overall_profiles, task_profiles
from orchestrator.analysis.verdict.evidence import evidence
from orchestrator.analysis.verdict.fairness import red_flags
from orchestrator.analysis.verdict.leaders import countable
from orchestrator.core.labels import labeller
from orchestrator.core.progress import counted
from orchestrator.planning.throughput.measure import PROVISIONAL
from orchestrator.rundir import SweepDir

# Most runs that a browser sorts and filters without a pause; results.csv has all.
_MOST_ROWS = 1000
_MOST_MISSING = 200
# Most groups drawn; the tables hold everything.
_MOST_DRAWN = 120
_MOST_LOSSES = 6
_MOST_WARNINGS = 100
# Most characters of a sweep's grid, and of all grids of a page.
_MOST_GRID = 20_000
_ALL_GRIDS = 200_000


def sections(data: ReportData) -> list[Section]:
    """Build the sections that have content."""
    made = (make(data) for make in counted(SECTIONS, "working out sections", len(SECTIONS)))
    return [section for section in made if section is not None]


def pictures(data: ReportData, kind: str) -> list[Picture]:
    """Draw the pictures of ``learning`` curves, ``losses``, ``final`` returns or ``speed``."""
    found = data.groups[:_MOST_DRAWN]
    if kind == "learning":
        return _first(learning_pictures(data.curves[:_MOST_DRAWN]))
    if kind == "losses":
        names = loss_metrics(data.collected)[:_MOST_LOSSES]
        losses: list[Curve] = []
        for own in several_curves(data.collected, found, names):
            losses += own
            if len(losses) > _MOST_LOSSES * LINES:  # more would not be drawn
                break
        return list(islice(learning_pictures(losses, "losses"), _MOST_LOSSES))
    if kind == "final":
        return _first(final_pictures(data.returning[:_MOST_DRAWN]))
    assert kind == "speed"
    return _first(speed_pictures(data.speeds[:_MOST_DRAWN]))


def _first(found: Iterable[Picture]) -> list[Picture]:
    return list(islice(found, MOST_PICTURES))


# One function per section


def _answer(data: ReportData) -> Section | None:
    flags = red_flags(data.audit)
    return answer_section(data.groups, data.finals, data.answers, data.prices, data.collected.final, flags)


def _evidence(data: ReportData) -> Section | None:
    return evidence_section(evidence(data.returning), data.answers)


def _cost(data: ReportData) -> Section | None:
    return cost_section(data.returning, data.prices, data.times)


def _effects(data: ReportData) -> Section | None:
    return effect_section(data.returning)


def _audit(data: ReportData) -> Section | None:
    return audit_section(data.audit) if len(data.groups) > 1 else None


def _warnings(data: ReportData) -> Section | None:
    lacking = returns_lacking(data.collected, data.groups)
    found = [("", text) for text in (*lacking, *warnings(data.finals), *data.collected.warnings)]
    found += [("damaged:", text) for text in data.collected.problems]
    if not found:
        return None
    shown = found[:_MOST_WARNINGS]
    if len(found) > len(shown):
        shown.append(("", f"{len(found) - len(shown):,} more: orchestrate collect SWEEP prints them all"))
    return Section("warnings", "Before you read on", (Points(tuple(shown)),))


def _sweeps(data: ReportData) -> Section | None:
    if len(data.by_sweep) < 2:  # runs trained without this program are in the tables too, without a folder
        return None
    table, alike = tables.settings_table(data.by_sweep, data.collected.keys)
    blocks: list[Block] = [table]
    if alike:
        blocks.append(Text(f"The same in all: {alike}.", note=True))
    present = {row[SWEEP] for row in data.rows if row["in_grid"]}
    found = compare_by(data.collected, SWEEP, prices=data.prices) if len(present) > 1 else None
    if found is None or not any(one.comparable for one in found.combinations):
        blocks.append(Text("No variant of a task is finished in two of these sweeps."))
    else:
        blocks += [Text(verdict(found)), *_compared(found)]
    return Section("sweeps", "Sweeps side by side", tuple(blocks))


def _compared(found: KeyComparison) -> Iterator[Block]:
    """Yield the table of a comparison, and its notes."""
    yield tables.comparison_table(found)
    yield Text(_COMPARED, note=True)
    yield Points(tuple(("", note) for note in notes(found)))


_COMPARED = (
    "Compared are runs that differ in nothing but this key and their seed. Of frames/s, dollars and memory "
    "the medians over runs; of returns the interquartile means over seeds, with 95 % intervals by bootstrap. "
    "Speed-ups are geometric means over pairs of runs of the same seed, or where there are none over "
    "combinations, with 95 % intervals by Student's t. P(> A): the chance that a run returns more than one "
    "of A, a tie counting half; ½ means that neither does better. It is not given below "
    f"{FEW_SEEDS} seeds of either, nor where returns are not comparable."
)


def _groups(data: ReportData) -> Section:
    blocks: tuple[Block, ...] = (Text("The sweep has no runs."),)
    if data.groups:
        table = tables.group_table(data.finals)
        blocks = (table, Text(_GROUPS, note=True), *_provisional(data))
    return Section("groups", "Groups", blocks)


_GROUPS = (
    "A group is all runs that differ only in their seed; n counts the seeds with a finite final return. "
    "Returns are raw. IQM: interquartile mean over seeds (up to three seeds, their mean), with a 95 % "
    "interval by bootstrap over seeds, from four seeds on. frames/s: medians over runs; training: "
    "collecting and learning; end-to-end: wall time, with evaluations and checkpoints."
)


def _learning(data: ReportData) -> Section:
    many = len(data.groups) > _MOST_DRAWN
    found = pictures(data, "learning")
    recorded = any(row["return_metric"] is not None for row in data.rows)
    nothing = "No run has recorded a finite return." if recorded else "No run has recorded a return yet."
    drawn = _drawn("learning", "Learning", found, nothing, many=many)
    if not found:
        return drawn
    lines = charted(data.curves)
    blocks: list[Block] = [Chart(chart_data(lines, data.prices))]
    if left := len(data.curves) - len(lines):
        blocks.append(Text(f"{left:,} more lines are left out, those with the lowest returns.", note=True))
    return Section("learning", "Learning", (*blocks, Folded("As pictures, for paper", drawn.blocks)))


def _losses(data: ReportData) -> Section | None:
    found = pictures(data, "losses")
    many = len(data.groups) > _MOST_DRAWN or len(found) == _MOST_LOSSES
    return _drawn("losses", "Losses", found, "", many=many) if found else None


def _final(data: ReportData) -> Section:
    found = pictures(data, "final")
    return _drawn("final", "Final returns", found, "No finished run has a finite final return.")


def _generalization(data: ReportData) -> Section | None:
    return generalization_section(generalizations(data.groups)[:_MOST_DRAWN])


def _drawn(id_: str, title: str, found: list[Picture], nothing: str, *, many: bool = False) -> Section:
    if not found:
        return Section(id_, title, (Text(nothing),))
    blocks: tuple[Block, ...] = (Gallery(tuple(found)),)
    if many or len(found) == MOST_PICTURES:
        blocks = (*blocks, Text(_MANY, note=True))
    return Section(id_, title, blocks)


_MANY = "Only the first pictures are drawn; the tables beside the report hold everything."


def _profiles(data: ReportData) -> Section | None:
    shown = data.returning[:_MOST_DRAWN]
    # Over all tasks only if it covers all variants.
    overall = overall_profiles(shown) if len(shown) == len(data.returning) else []
    found = _first(profile_pictures(task_profiles(shown), overall))
    if not found:
        return None
    large = tuple(picture for picture in found if not picture.small)
    small = tuple(picture for picture in found if picture.small)
    drawn: list[Block] = [Gallery(some) for some in (large, small) if some]
    if flags := unranked(data.finals):
        drawn.insert(0, Points(tuple(("", text) for text in flags)))
    notes = [Text(_PROFILES, note=True)]
    if len(shown) < len(data.returning) or len(found) == MOST_PICTURES:
        notes.append(Text(_MANY, note=True))
    return Section("profiles", "Performance profiles", (*drawn, *notes))


_PROFILES = (
    "The higher a line, the more of the variant's runs return at least that much. Lines of few runs "
    "differ by luck: which variants differ by more is shown under probability of improvement, for variants "
    f"with {FEW_SEEDS} seeds or more. Intervals by bootstrap over the seeds of each task; "
    f"where a task has fewer than {INTERVAL_SEEDS} there are none. Returns of one task are raw. All tasks "
    "together need one scale, and the one above depends on which runs are on this page."
)


def _improvements(data: ReportData) -> Section | None:
    found = standing(data.returning, overall=countable(data.returning))
    if not found.pairs and not found.left_out:
        return None
    left_out = [("left out:", text) for text in found.left_out]
    flags = [("", text) for text in unranked(data.finals)]
    blocks: list[Block] = [Points((*flags, *left_out))] if flags or left_out else []
    if found.pairs:
        drawn = Gallery(tuple(_first(improvement_pictures(found.pairs))))
        blocks += [drawn, tables.improvement_table(found.pairs), Text(_PAIRS, note=True)]
    else:
        blocks.insert(0, Text(_NO_PAIR))
    return Section("improvement", "Probability of improvement", tuple(blocks))


_NO_PAIR = (
    f"No verdict: that takes two variants of a task with {FEW_SEEDS} seeds each, and final returns of the "
    "same metric, after as many frames, in as many evaluation episodes."
)


_PAIRS = (
    "P(X > Y) is the chance that a run of X returns more than a run of Y, a tie counting half, with its "
    "95 % interval by bootstrap over seeds, of that pair by itself; it says how often, not by how much. X "
    "has the highest interquartile mean of the variants with two thirds of the most seeds in its task or "
    "more, over all tasks it is the one that beats the others most often, and P the mean over tasks. Y are "
    "the next ones, up to 50 of a task. More than luck: p is the higher p-value of two tests, corrected "
    "for all that is compared, as X was picked from it. Where alike variants have the same "
    "distribution of returns, at most one page in twenty has a yes by luck. "
    f"Variants with fewer than {FEW_SEEDS} seeds are left out."
)


def _thresholds(data: ReportData) -> Section | None:
    return threshold_section(data.times, data.finals, data.collected.threshold)


def _baselines(data: ReportData) -> Section | None:
    return beside_baselines(data.sweep_dirs, data.collected, data.groups)


def _evaluations(data: ReportData) -> Section | None:
    several = [(sweep_dir.name, latest_matrices(sweep_dir)) for sweep_dir in data.sweep_dirs]
    several = [(name, found) for name, found in several if found]
    numbers = count(1)
    blocks: list[Block] = []
    for name, found in several:
        if len(several) > 1:
            blocks.append(Text(name, title=True))
        blocks.append(Gallery(tuple(_first(matrix_pictures(found, numbers)))))
    return Section("evaluations", "Evaluations on several tasks", tuple(blocks)) if blocks else None


def _speed(data: ReportData) -> Section:
    found = pictures(data, "speed")
    if not found:
        return Section("speed", "Speed", (Text("No finished run has a measured speed."),))
    table = tables.speed_table(data.speeds)
    peaks = any(speed.peak is not None for speed in data.speeds)
    notes = Text(f"{_SPEEDS} {tables.PEAK}" if peaks else _SPEEDS, note=True)
    drawn = (Gallery(tuple(found)), table, notes)
    return Section("speed", "Speed", (*drawn, *_provisional(data)))


def _provisional(data: ReportData) -> tuple[Block, ...]:
    """Return the footnote to throughputs with an asterisk, if there are any."""
    marked = any(speed.provisional for speed in data.speeds)
    return (Text(f"* {PROVISIONAL}.", note=True),) if marked else ()


_SPEEDS = (
    "Training throughput: frames per second of collecting and learning; it compares devices. End-to-end "
    "throughput: frames per second of wall time, with evaluations, logs and checkpoints; it predicts time "
    "and money. Both are sums over each run's steady window: without the first iteration of every "
    "attempt, and from one evaluation to another, so that they do not depend on where a run ended. A "
    "program that reports no timers has no training throughput; then min and max are of the other."
)


def _scaling(data: ReportData) -> Section | None:
    return scaling(data.collected)


def _where(data: ReportData) -> Section | None:
    return where_to_run(data.collected)


def _money(data: ReportData) -> Section | None:
    return money_section(data.sweep_dirs)


def _targets(data: ReportData) -> Section | None:
    blocks: list[Block] = []
    drawn = count(1)
    found = target_comparisons(data.sweep_dirs, data.collected)
    for sweep, one in found.items():
        blocks.append(Text((f"{sweep}: " if len(found) > 1 else "") + verdict(one)))
        blocks += [Gallery(tuple(_first(comparison_pictures(one, "targets", drawn)))), *_compared(one)]
    return Section("targets", "Targets", tuple(blocks)) if blocks else None


def _missing(data: ReportData) -> Section | None:
    missing = data.collected.missing
    if not missing:
        return None
    label = labeller(list(data.collected.points.values()))
    table = replace(tables.missing_table(missing, label), most=_MOST_MISSING)
    return Section("missing", "Failed, skipped and missing", (table,))


def _runs(data: ReportData) -> Section:
    shown = data.rows[:_MOST_ROWS]
    several = len({row["sweep"] for row in data.rows}) > 1
    table = tables.runs_table(shown, data.collected.keys, several=several)
    details = Details(run_details(data.sweep_dirs, shown, data.collected.points))
    blocks: tuple[Block, ...] = (table, details)
    if len(data.rows) > len(shown):
        blocks = (
            *blocks,
            Text(f"{len(data.rows) - len(shown):,} more runs are in results.csv.", note=True),
        )
    return Section("runs", "Runs", blocks)


def _provenance(data: ReportData) -> Section:
    told = tables.provenance_table(data.by_sweep)
    first = Text("No run is finished.") if told is None else told
    return Section("provenance", "Provenance", (first, *grids(data.sweep_dirs)))


def grids(sweep_dirs: Sequence[SweepDir]) -> Iterator[FoldedText]:
    """Yield the sweeps' grids: of long ones the beginning, with the path of the whole."""
    most = min(_MOST_GRID, _ALL_GRIDS // max(1, len(sweep_dirs)))
    for sweep_dir in sweep_dirs:
        if (grid := sweep_dir.latest_grid()) is not None:
            number, whole = grid
            if len(shown := whole[:most]) < len(whole):
                shown += f"\n… {sweep_dir.latest_grid_path()} has {len(whole) - most:,} characters more"
            yield FoldedText(f"Grid of {sweep_dir.name} (as submitted, number {number})", shown)


SECTIONS: tuple[Callable[[ReportData], Section | None], ...] = (
    _answer,
    _evidence,
    _audit,
    _warnings,
    _sweeps,
    _groups,
    _learning,
    _final,
    _generalization,
    _profiles,
    _improvements,
    _thresholds,
    _cost,
    _effects,
    _baselines,
    _evaluations,
    _losses,
    _speed,
    _scaling,
    _where,
    _money,
    _targets,
    _missing,
    _runs,
    _provenance,
)

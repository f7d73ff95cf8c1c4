"""Export evaluations as the JSON that marl-eval reads, with variants in place of algorithms.

Its levels: environment → task → variant → ``seed_N`` → ``step_K`` and ``absolute_metrics``. A variant is all
that the grid varies but task and seed, so two settings of one algorithm never share an entry. marl-eval
lowers the case of every name, raises it again for its pictures, refuses commas among algorithms, and keeps
notes of its own under ``extra``: names here are distinct after all of that.

Its absolute metric is the return of the best policy found in training, by the mean return of an evaluation,
evaluated anew for ten times the episodes. Without that evaluation the highest return in training replaces it,
and a note says so.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import polars as pl

from orchestrator.analysis.chosen_metric import ChosenMetric
from orchestrator.analysis.collect import Collected
from orchestrator.analysis.evaluations.evaluate import TIMES_FOR_BEST, usual_of
from orchestrator.analysis.gather import gathered
from orchestrator.analysis.groups.grouping import groups
from orchestrator.analysis.run_table import CHOSEN_METRIC, RunRow, return_names
from orchestrator.analysis.statistics.bootstrap import finite
from orchestrator.config.returns import may_lack_episodes
from orchestrator.config.trainers import can_evaluate
from orchestrator.core.formatting import count, listed
from orchestrator.core.labels import Point, labeller
from orchestrator.rundir import Evaluation, RunDir, SweepDir
from orchestrator.rundir.files.atomic import write_atomic

_RESERVED = frozenset({"EXTRA"})
# The key of a point that names its sweep; no grid can have it.
SWEEP = "@sweep"
_MOST_NAMED = 3

# A text that is the same for equal values. `json.dumps` would make an encoder for each of very many values.
_canonical = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True)
class ExportNames:
    """Keys under which a point's run is exported."""

    environment: str
    task: str
    variant: str
    seed: str


@dataclass(frozen=True)
class Export:
    """The file's content, and notes for its reader.

    ``measured`` of ``runs`` runs have their absolute metric as marl-eval defines it.
    """

    data: Mapping[str, Any]
    runs: int
    measured: int
    notes: tuple[str, ...]


def write(collected: Collected, sweep_dir: SweepDir) -> Export:
    """Replace the sweep's marl_eval.json by its collected runs; return the export."""
    again = f"orchestrate evaluate {sweep_dir.name} --best"
    absolute = absolute_metrics(sweep_dir) if collected.chosen is None else {}
    made = export(collected, absolute, again=again)
    # Unsorted: marl-eval reads steps in the file's order, and "step_10" sorts before "step_2".
    text = orjson.dumps(made.data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    write_atomic(sweep_dir.marl_eval, text)
    return made


def export(collected: Collected, absolute: Mapping[str, Evaluation], *, again: str) -> Export:
    """Export every run that counts and has evaluations in training, or the ``return`` of a program without.

    With a chosen metric these are its values, under its name.
    ``absolute``: by run_id, the evaluation that is its absolute metric. ``again``: the command that evaluates
    best policies anew.
    """
    named = _named(collected)
    rows = [row for group in groups(collected) for row in group.counted()[0]]
    series, chosen = _series(collected, rows), collected.chosen
    runs = []
    for row in rows:
        key = row["sweep"], row["run_id"]
        if key in series:
            evaluable = can_evaluate(row["trainer"]) and chosen is None
            here = row["sweep"] not in collected.others
            runs.append(_Run(named[key], series[key], absolute.get(row["run_id"]), evaluable, here, chosen))
    timed = all(finite(step.seconds) for run in runs for step in run.steps)
    data: dict[str, Any] = {}
    for run in runs:
        at = run.names
        seeds = data.setdefault(at.environment, {}).setdefault(at.task, {}).setdefault(at.variant, {})
        seeds.setdefault(at.seed, run.to_json(timed=timed))
    notes = [*_notes(runs, again, chosen), *_unevaluated(len(rows) - len(runs)), *_irregular(data)]
    return Export(data, len(runs), sum(run.absolute is not None for run in runs), tuple(notes))


# Names


def names_of(points: Sequence[Point]) -> list[ExportNames]:
    """Name each point; distinct points have distinct names, also as marl-eval reads them.

    Every point has a :data:`SWEEP`, which also is the task of a point without one. Keys that the task alone
    decides, such as a number of environments per task, are no part of a variant, as variants are compared
    over all tasks.
    """
    tasks = [point.get("task", point[SWEEP]) for point in points]
    places = [_environment_and_task(task) for task in tasks]
    environments = _distinct({environment: environment for environment, _ in places})
    inner: dict[str, dict[str, str]] = {}
    for task, (environment, name) in zip(tasks, places, strict=True):
        inner.setdefault(environment, {})[_canonical(task)] = name
    inner = {environment: _distinct(wished) for environment, wished in inner.items()}
    variants = _variants(points, tasks)
    return [
        ExportNames(
            environments[place], inner[place][_canonical(task)], variant, f"seed_{point.get('seed', 0)}"
        )
        for point, task, (place, _), variant in zip(points, tasks, places, variants, strict=True)
    ]


def _environment_and_task(task: Any) -> tuple[str, str]:
    text = task if isinstance(task, str) else _canonical(task)
    environment, slash, name = text.partition("/")
    return (environment, name) if slash and environment and name else (text, text)


def _variants(points: Sequence[Point], tasks: Sequence[Any]) -> list[str]:
    without = {"task", "seed", "algorithm", *_decided_by_task(points, tasks)}
    own = [{key: value for key, value in point.items() if key not in without} for point in points]
    identities = [
        _canonical([point.get("algorithm"), "algorithm" in point, rest])
        for point, rest in zip(points, own, strict=True)
    ]
    label = labeller(own)
    wished = {}
    for identity, point, rest in zip(identities, points, own, strict=True):
        parts = [_text(point["algorithm"])] if "algorithm" in point else []
        wished[identity] = " ".join([*parts, label(rest)]).strip() or str(point[SWEEP])
    names = _distinct(wished)
    return [names[identity] for identity in identities]


def _decided_by_task(points: Sequence[Point], tasks: Sequence[Any]) -> set[str]:
    """Return the keys with one value within each task, or missing from all of it."""
    keys = {key for point in points for key in point}
    of_tasks = zip(map(_canonical, tasks), points, strict=True)
    values = gathered(
        ((key, task), _canonical(point[key]) if key in point else "")
        for task, point in of_tasks
        for key in keys
    )
    return keys - {key for (key, _), found in values.items() if len(set(found)) > 1}


def _distinct(wished: Mapping[str, str]) -> dict[str, str]:
    """Name each identity: the wished name, with a part of the identity's hash where it is not unique."""
    names = {identity: name.replace(",", ";") for identity, name in wished.items()}
    often = Counter(map(_as_read, names.values()))
    distinct = {
        identity: name
        for identity, name in names.items()
        if often[_as_read(name)] == 1 and _as_read(name) not in _RESERVED
    }
    used = {_as_read(name) for name in distinct.values()}
    for identity in sorted(names.keys() - distinct.keys()):
        digest = hashlib.sha256(identity.encode()).hexdigest()
        longer = (f"{names[identity]} #{digest[:length]}" for length in range(6, len(digest)))
        distinct[identity] = next(name for name in longer if _as_read(name) not in used)
        used.add(_as_read(distinct[identity]))
    return distinct


def _as_read(name: str) -> str:
    return name.lower().upper()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _canonical(value)


def _named(collected: Collected) -> dict[tuple[str, str], ExportNames]:
    """Name every run of the grid, done or not, so that a name does not depend on progress."""
    own = collected.runs.select("sweep", "run_id", "in_grid").rows()
    keys = [(sweep, run_id) for sweep, run_id, in_grid in own if in_grid]
    points = [{SWEEP: key[0], **collected.points[key]} for key in keys]
    return dict(zip(keys, names_of(points), strict=True))


# Evaluations


class _Step(NamedTuple):
    """An evaluation in training, or what stands for one: frames and seconds so far, and the mean return."""

    frames: int
    seconds: float | None
    value: float


@dataclass(frozen=True)
class _Run:
    """A run to export. ``absolute``: its best policy evaluated anew, if it was.

    ``evaluable``: whether its trainer can do that. ``here``: whether this program trained it. ``chosen``: the
    metric of its steps in the place of the return.
    """

    names: ExportNames
    steps: Sequence[_Step]
    absolute: Evaluation | None
    evaluable: bool
    here: bool
    chosen: ChosenMetric | None

    def to_json(self, *, timed: bool) -> dict[str, Any]:
        data = {
            f"step_{number}": {"step_count": step.frames, **self._measured([step.value], step.seconds, timed)}
            for number, step in enumerate(self.steps)
        }
        lower = self.chosen is not None and self.chosen.lower
        best, anew = (min if lower else max)(self.steps, key=lambda step: step.value), self.absolute
        if anew is None:
            return {**data, "absolute_metrics": self._measured([best.value], best.seconds, timed)}
        frames = anew.frames
        trained = min(self.steps, key=lambda step: abs(step.frames - frames))
        return {**data, "absolute_metrics": self._measured(list(anew.returns), trained.seconds, timed)}

    def _measured(self, values: list[float], seconds: float | None, timed: bool) -> dict[str, Any]:
        # marl-eval needs the same metrics everywhere: times in every step of every run, or nowhere.
        name = "return" if self.chosen is None else self.chosen.name
        return {name: values, **({"elapsed_time": seconds} if timed else {})}


def _series(collected: Collected, rows: Iterable[RunRow]) -> dict[tuple[str, str], list[_Step]]:
    """Return each run's evaluations: the finite values of the first metric that means return."""
    wanted = {(row["sweep"], row["run_id"]): _evaluated(row) for row in rows}
    every = {name for names in wanted.values() for name in names}
    table = collected.metrics.filter(pl.col("name").is_in(list(every)) & pl.col("value").is_finite())
    read = table.select("sweep", "run_id", "name", "frames", "wall_time", "value").iter_rows()
    steps = gathered(((sweep, run_id, name), _Step(*step)) for sweep, run_id, name, *step in read)
    chosen = {
        key: next((own for name in names if (own := steps.get((*key, name)))), None)
        for key, names in wanted.items()
    }
    return {key: own for key, own in chosen.items() if own is not None}


def _evaluated(row: RunRow) -> list[str]:
    """Return the metrics that may stand for evaluations, best first.

    They are those of evaluated policies, and a program's ``return`` in training: many programs have no other,
    and would be left out. Returns that this program's trainers collect with exploration are none of them.
    """
    return [name for name in return_names(row) if CHOSEN_METRIC in row or not may_lack_episodes(name)]


def absolute_metrics(sweep_dir: SweepDir) -> dict[str, Evaluation]:
    """Return by run_id the evaluation on record that is the run's absolute metric, where there is one."""
    read = sweep_dir.evaluations.read()
    best = gathered(
        (evaluation.run_id, evaluation)
        for evaluation in read
        if evaluation.best and evaluation.returns and all(map(finite, evaluation.returns))
    )
    chosen = {
        run_id: _absolute(sweep_dir.run_to_read(run_id), evaluations) for run_id, evaluations in best.items()
    }
    return {run_id: evaluation for run_id, evaluation in chosen.items() if evaluation is not None}


def _absolute(run_dir: RunDir, evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """Choose the evaluation with the most episodes, then the newest, made as in training on the same task.

    Evaluations of another checkpoint than the final one are of an earlier training, or of the best policy so
    far.
    """
    usual = usual_of(run_dir)
    if usual is None:
        return None
    wanted = usual.checkpoint, usual.task, usual.deterministic
    fitting = [
        evaluation
        for evaluation in evaluations
        if (evaluation.checkpoint, evaluation.task, evaluation.deterministic) == wanted
        and evaluation.episodes >= TIMES_FOR_BEST * usual.episodes
    ]
    return max(fitting, key=lambda evaluation: (evaluation.episodes, evaluation.time), default=None)


# Notes


def _notes(runs: Sequence[_Run], again: str, chosen: ChosenMetric | None) -> list[str]:
    lacking = [run for run in runs if run.absolute is None]
    evaluable = [run for run in lacking if run.evaluable]
    hint = f": {again}" if any(run.here for run in evaluable) else ""
    episodes = (
        f"the best evaluation in training, not that policy over {TIMES_FOR_BEST} times the episodes{hint}"
    )
    highest = "the highest return in training, as their trainer cannot evaluate a trained policy"
    if chosen is not None:
        highest = f"the best value in training of {chosen}"
    counts = {episodes: len(evaluable), highest: len(lacking) - len(evaluable)}
    about = "marl_eval.json: absolute metric of"
    return [f"{about} {n} of {count(len(runs), 'run')} is {what}" for what, n in counts.items() if n]


def _unevaluated(number: int) -> list[str]:
    runs = "1 finished run was" if number == 1 else f"{number} finished runs were"
    return [f"marl_eval.json: {runs} never evaluated in training, and left out"] if number else []


def _irregular(data: Mapping[str, Any]) -> list[str]:
    """List gaps: marl-eval needs every variant on every task, with equal seeds and steps."""
    irregular = []
    for environment, tasks in data.items():
        shapes = {
            (task, variant, seed): len(steps)
            for task, variants in tasks.items()
            for variant, seeds in variants.items()
            for seed, steps in seeds.items()
        }
        variants, seeds = ({shape[place] for shape in shapes} for place in (1, 2))
        lacking = [
            f"{variant} on {task} {seed}"
            for task in tasks
            for variant in sorted(variants)
            for seed in sorted(seeds)
            if (task, variant, seed) not in shapes
        ]
        if lacking:
            irregular.append(f"missing in {environment}: {listed(lacking, _MOST_NAMED)}")
        if len(lengths := Counter(shapes.values())) > 1:
            usual = lengths.most_common(1)[0][0]
            other = [
                f"{variant} on {task} {seed}" for (task, variant, seed), n in shapes.items() if n != usual
            ]
            irregular.append(f"other numbers of evaluations in {environment}: {listed(other, _MOST_NAMED)}")
    needs = "marl-eval compares only environments with all variants, seeds and evaluations on all tasks"
    return [f"marl_eval.json: {needs}; {'; '.join(irregular)}"] if irregular else []

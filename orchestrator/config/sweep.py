"""The runs of a sweep: every point of its grid, and every point added to it, with an identity."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from orchestrator.config.former_runs import former_points
from orchestrator.config.grid import Axis, Exclusion, Grid, parse_grid
from orchestrator.config.grid.extends import written
from orchestrator.config.grid.model import Fork, Rule, bare_key, over, same_value
from orchestrator.config.grid.points import matching_steps
from orchestrator.config.grid.resources import largest, resources_of
from orchestrator.config.trainers import PRESET_KEY
from orchestrator.config.yaml_files.nodes import Entries, Items, Position, YamlFile, shown
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.errors import OrchestrateError, PlacedError
from orchestrator.core.types import KEPT, Run, Sweep, Value
from orchestrator.rundir import LedgerEntry, SweepDir
from orchestrator.rundir.records.ledger_entries import added_points


def load_sweep(path: Path, results: Path | None = None, changes: Sequence[str] = ()) -> Sweep:
    """Load the sweep of a grid file with ``changes``, and with what was added to it in a ``results`` tree.

    Points that are runs of earlier versions of the grid there keep their ids. Raises :class:`GridError`.
    """
    grid = parse_grid(read_text(path, YamlFile(str(path)), _grids_near), str(path), changes)
    if results is None:
        return runs_of(grid)
    sweep_dir = SweepDir(results, grid.name)
    return runs_of(grid, sweep_dir.read_ledger(), sweep_dir)


def runs_of(grid: Grid, ledger: Iterable[LedgerEntry] = (), former: SweepDir | None = None) -> Sweep:
    """Return the sweep: a run for every point of the grid, then for those that its ledger adds.

    Points of the grid come in the order written: the last key varies fastest, those of ``include`` are last.
    Before them come the runs that others fork from.
    ``former``: the sweep with the runs of earlier versions of the grid. Raises :class:`GridError` if two
    points are the same run.
    """
    runs: dict[str, Run] = {}
    places: dict[str, Mapping[str, Position]] = {}
    used: set[Rule] = set()
    for point, fixed, origin in _points(grid):
        rules = [rule for rule in grid.rules if rule.fits(point)]
        run = _identify(grid, _ruled(point, rules, fixed), origin)
        if run.run_id in runs:
            raise _duplicate(grid, runs[run.run_id], run, origin)
        runs[run.run_id] = run
        if rules:
            used.update(rules)
            places[run.run_id] = {key: at for rule in rules for key, at in rule.places.items()}
    source = YamlFile(grid.source)
    if not runs:
        raise source.error(
            grid.exclude[-1].at, "exclude leaves no point of the matrix", "remove entries from exclude"
        )
    for rule in grid.rules:
        if rule not in used and not rule.at.file:
            raise source.error(rule.at, "for: no run agrees with this entry, so nothing is set")
    if former is not None:
        runs = _with_former(grid, runs, former)
    added = (_identify(grid, point, None) for point in added_points(ledger))
    for run in added:
        runs.setdefault(run.run_id, run)
    forked = {} if grid.fork is None or grid.fork.run else _trunks(grid, grid.fork, runs.values())
    runs = {trunk.run_id: runs.get(trunk.run_id, trunk) for trunk in forked.values()} | runs
    needs = {run.run_id: resources_of(run, grid.resources, grid.trainer, source) for run in runs.values()}
    most = largest(set(needs.values()))
    return Sweep(
        name=grid.name,
        trainer=grid.trainer.name,
        runs=tuple(runs.values()),
        grid_text=_whole_text(grid, used),
        source=grid.source,
        changes=grid.changes,
        keys=grid.trainer.keys_of(grid.keys),
        targets=grid.targets,
        resources=most,
        plugins=grid.plugins,
        needs={run_id: own for run_id, own in needs.items() if own != most},
        positions=grid.positions,
        own_positions=places,
        notify=grid.notify,
        labels=grid.labels,
        length=grid.length,
        library=grid.library,
        trunks={run_id: trunk.run_id for run_id, trunk in forked.items()},
    )


def _with_former(grid: Grid, runs: Mapping[str, Run], former: SweepDir) -> dict[str, Run]:
    """Return the runs, those that earlier versions of the grid had under another id with that one."""
    points = former_points(runs, grid.labels, former)
    every = (
        _identify(grid, points[run_id], None) if run_id in points else run for run_id, run in runs.items()
    )
    return {run.run_id: run for run in every}


def _whole_text(grid: Grid, used: Collection[Rule]) -> str:
    """Return the grid as one text: as written, or with what it extends and without rules for no run."""
    if grid.merged is None:
        return grid.text
    kept = [rule in used for rule in grid.rules]
    entries = []
    for entry in grid.merged.entries:
        if entry.key == "for" and isinstance(entry.node, Items):
            items = tuple(itertools.compress(entry.node.items, kept))
            entry = replace(entry, node=Items(items, entry.node.at))
        entries.append(entry)
    heads = {"With what it extends": grid.extends, "Changed by --set": map(shown, grid.changes)}
    head = "; ".join(f"{title}: {', '.join(told)}" for title, told in heads.items() if told)
    return written(Entries(tuple(entries), grid.merged.at), head)


def _points(grid: Grid) -> Iterator[tuple[dict[str, Value], Mapping[str, Value], Position | None]]:
    """Yield each point's values before any rule, those that no rule replaces, and an `include`'s position."""
    excluded = {cell for exclusion in grid.exclude for cell in _cells(grid.axes, exclusion)}
    if grid.axes:
        for cell in itertools.product(*(range(len(axis.steps)) for axis in grid.axes)):
            if cell not in excluded:
                yield _values(grid, cell), {}, None
    elif not grid.include:
        yield dict(grid.base), {}, None
    for extra in grid.include:
        for target in grid.targets if grid.compare else (None,):
            aim = {"target": target} if target else {}
            yield {**over(grid.base, extra.values), **aim}, extra.values, extra.at


def _ruled(
    point: Mapping[str, Value], rules: Sequence[Rule], fixed: Mapping[str, Value]
) -> Mapping[str, Value]:
    """Return a point with what the rules set, the later ones over the earlier ones."""
    for rule in rules:
        point = over(point, rule.values)
    return over(point, fixed) if rules else point


def _cells(axes: tuple[Axis, ...], exclusion: Exclusion) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(matching_steps(axis, exclusion.when) for axis in axes))


def _values(grid: Grid, cell: tuple[int, ...]) -> dict[str, Value]:
    point = dict(grid.base)
    for axis, step in zip(grid.axes, cell, strict=True):
        point.update(zip(axis.keys, axis.steps[step], strict=True))
    return point


def _identify(grid: Grid, point: Mapping[str, Value], origin: Position | None) -> Run:
    """Return the run of a point, which starts from what the grid says."""
    if grid.init is not None:
        point = {key: value for key, value in point.items() if key != "init"}
        return replace(_run(grid, point, origin, init=grid.init.run), init=grid.init.text)
    if grid.fork is None:
        return _run(grid, point, origin)
    point = {key: value for key, value in point.items() if key != "fork"}
    run, values = replace(_run(grid, point, origin), fork=grid.fork.text), grid.fork.values
    if grid.fork.run:
        return replace(_run(grid, point, origin, fork=grid.fork.run), fork=run.fork)
    # If nothing changes it is the longer run of what it goes on from.
    if all(key in point and same_value(point[key]) == same_value(value) for key, value in values.items()):
        return run
    if _run(grid, over(point, values), origin).run_id == run.run_id:
        return run
    return replace(_run(grid, point, origin, fork=_trunk(grid, grid.fork, run).run_id), fork=run.fork)


def _trunks(grid: Grid, fork: Fork, runs: Iterable[Run]) -> dict[str, Run]:
    """Return the run that each of these goes on from, by id."""
    trunks: dict[str, Run] = {}
    found = {}
    for run in runs:
        trunk = trunks.get(run.origin) or _trunk(grid, fork, run)
        found[run.run_id] = trunks.setdefault(trunk.run_id, trunk)
    return found


def _trunk(grid: Grid, fork: Fork, run: Run) -> Run:
    """Return the run that this one goes on from: with the values of the fork, ended at its place."""
    source, names = YamlFile(grid.source), (grid.length,) if grid.length else grid.trainer.length_keys
    lengths = (key for key, value in run.overrides.items() if bare_key(key) in names and value is not None)
    length = next(lengths, "")
    if not length or (grid.trainer.runs_program and not grid.length):
        hint = (
            "write length: KEY" if grid.trainer.runs_program else f"write one of {', '.join(names)} into base"
        )
        raise source.error(fork.at, "fork: found no key that says when a run ends", hint)
    ends = run.overrides[length]
    if not isinstance(ends, int | float) or not fork.place < ends:
        found = f"fork: found at: {fork.place:_}, and a run that ends at {length}: {shown(ends)}"
        raise source.error(fork.at, found, "a fork lies before the end")
    if grid.trainer.minutes_of(run):
        what = "fork: found minutes, and runs that end by time keep no state to fork from"
        raise source.error(fork.at, what, f"remove minutes: {length} ends them")
    if why := grid.trainer.refuses_fork(over(run.overrides, fork.values), run.overrides):
        raise source.error(fork.at, f"fork: {why}", "leave it out of `for`, or of the matrix")
    point = {key: value for key, value in run.point.items() if key != "fork"}
    return replace(_run(grid, over(over(point, fork.values), {length: fork.place}), None), keep=KEPT[0])


def _run(grid: Grid, point: Mapping[str, Value], origin: Position | None, **start: str) -> Run:
    overrides = dict(point)
    seed, threads = overrides.pop("seed", 0), overrides.pop("threads", 1)
    target = overrides.pop("target", None)
    try:
        run = grid.trainer.identify(overrides, seed, threads, target, **start)
    except OrchestrateError as error:
        at = origin or grid.positions.get(PRESET_KEY)
        raise YamlFile(grid.source).error(at, str(error), error.hint) from None
    return replace(run, loggers=grid.loggers, metrics=grid.metrics, keep=grid.keep)


def _duplicate(grid: Grid, first: Run, second: Run, origin: Position | None) -> PlacedError:
    """Return the error for two points with the same run.

    Their values are equal, or differ only in keys that decide nothing.
    """
    differing = [key for key in second.point if first.point.get(key) != second.point[key]]
    varying = {key for axis in grid.axes for key in axis.keys} | {"seed"}
    named = ", ".join(f"{key}={shown(value)}" for key, value in second.point.items() if key in varying)
    hint = "remove one of them"
    message = f"found the point {named} twice"
    if differing:
        pairs = ", ".join(
            f"{key}: {shown(first.point.get(key))} and {shown(second.point[key])}" for key in differing
        )
        message = (
            f"two points are the same run: they differ only in keys that do not change a result ({pairs})"
        )
        hint = "put such a key into base"
    at = origin or grid.positions.get(differing[0] if differing else _repeated(grid))
    return YamlFile(grid.source).error(at, message, hint)


def _repeated(grid: Grid) -> str:
    """Return the first key of an axis with a repeated step."""
    for axis in grid.axes:
        seen = [same_value(list(step)) for step in axis.steps]
        if len(set(seen)) < len(seen):
            return bare_key(axis.keys[0])
    return "seed"


def _grids_near(path: Path) -> str:
    grids = sorted({*path.parent.glob("[!.]*.yaml"), *Path("sweeps").glob("*.yaml")})
    grids.sort(key=lambda grid: -SequenceMatcher(None, grid.stem, path.stem).ratio())
    if grids:
        return f"the nearest are: {', '.join(map(str, grids[:5]))}"
    return "`orchestrate init` writes one to begin with"

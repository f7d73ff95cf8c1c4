"""Read overrides of Hydra's command line with Hydra's own parser: ``seed=0,1 experiment.lr=6e-5``.

They mean what they mean in a grid, so a point has the same id either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from orchestrator.config.grid.hydra_sweeps import SweepTextError, plain_value, points_of
from orchestrator.config.trainers import LIMITS, TrainerSpec
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.secret_detection import WHERE_THEY_GO, secret_in
from orchestrator.core.types import Run, Value

_MOST_RUNS = 10_000
_LONGEST = 200  # characters of a text that are shown


def runs_of(spec: TrainerSpec, overrides: Iterable[str]) -> list[Run]:
    """Return the runs that the overrides name, each once: all combinations of keys with several values.

    The last such key varies fastest. Of a key given twice the last value counts, as in Hydra. Raises
    :class:`OrchestrateError`.
    """
    axes: dict[str, tuple[str, list[Value]]] = {}
    for text in overrides:
        key, values = _read(spec, text)
        axes[key.lstrip("+~")] = (key, values)
    keys = [key for key, _ in axes.values()]
    runs: dict[str, Run] = {}
    for combination in itertools.product(*(values for _, values in axes.values())):
        if len(runs) == _MOST_RUNS:
            raise OrchestrateError(f"found more than {_MOST_RUNS:,} runs", hint="give them in several calls")
        point = dict(zip(keys, combination, strict=True))
        run = spec.identify(seed=point.pop("seed", 0), threads=point.pop("threads", 1), overrides=point)
        runs.setdefault(run.run_id, run)
    return list(runs.values())


def _read(spec: TrainerSpec, text: str) -> tuple[str, list[Value]]:
    key, equals, given = text.partition("=")
    bare = key.lstrip("+~")
    if not bare or (not equals and not key.startswith("~")):
        raise OrchestrateError(f"found {text!r}, expected key=value, such as algorithm=ippo")
    if bare in ("seed", "threads") and bare != key:
        raise OrchestrateError(f"found {key}, expected {bare}: every run has it")
    if (why := spec.owned_because(key)) is not None:
        raise OrchestrateError(f"found {key}, which cannot be set: {why}", hint="leave it out")
    # Hydra's grammar has fewer keys than a grid takes for a program.
    try:
        values = _values(f"key={given}" if equals and spec.runs_program else text)
    except SweepTextError as error:
        raise OrchestrateError(f"{bare}: {error}", hint=error.hint) from None
    for value in values:
        _check(key, value)
    return key, values


def _check(key: str, value: Value) -> None:
    """Refuse secrets, and seeds and thread counts out of range; these two keys belong to every trainer."""
    if found := secret_in(key, value):
        raise OrchestrateError(
            f"found {found}, which looks like a secret: overrides and results stay on disk",
            hint=WHERE_THEY_GO,
        )
    if key in LIMITS:
        low, high = LIMITS[key]
        if type(value) is not int or not low <= value <= high:
            raise OrchestrateError(f"{key}: found {value!r}, expected a whole number from {low} to {high}")


def _values(text: str) -> list[Value]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, Glob, RangeSweep, Sweep
    from hydra.errors import HydraException

    try:
        found = OverridesParser.create().parse_override(text).value()
    except (HydraException, ValueError, RecursionError) as error:  # also too many digits, deep nesting
        why = str(error).splitlines()[0]
        raise OrchestrateError(
            f"Hydra cannot read {text[:_LONGEST]!r}: {why[:_LONGEST]}",
            hint="text with anything special in it takes quotes: \"key='…'\"",
        ) from None
    given = text.partition("=")[2]
    if not isinstance(found, Sweep | Glob):
        return [plain_value(found, given)]
    if not isinstance(found, ChoiceSweep | RangeSweep) or found.shuffle:
        raise OrchestrateError(
            f"found {text!r}, expected one value, or several as in seed=0,1 or seed=range(3)"
        )
    return points_of(found, given, _MOST_RUNS)

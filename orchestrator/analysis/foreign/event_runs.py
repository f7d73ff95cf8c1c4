"""Read runs that programs logged to TensorBoard without this program: each folder with event files is one.

Keys are read from the table `hyperparameters` that CleanRL's programs log, or from the folder's name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.analysis.foreign.files import json_value, literal
from orchestrator.analysis.foreign.find import readable
from orchestrator.analysis.left_metrics import figures_of, rows_left
from orchestrator.analysis.run_table import RunReading
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.metric_files.binary import logged_text
from orchestrator.core.metric_files.names import TENSORBOARD, format_of
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow, Row

# The names of CleanRL's runs, and a seed in those of others.
_CLEANRL = re.compile(r"(?P<env_id>.+)__(?P<exp_name>.+)__(?P<seed>\d{1,18})__\d+")
_SEED = re.compile(r"[_-]?(?<![a-z])seed[_=-]?(\d{1,18})", re.IGNORECASE)
_TABLE_ROW = re.compile(r"^\|(\w[\w.-]*)\|(.*)\|$", re.MULTILINE)
_ALWAYS = ("env_id", "folder", "seed")
# The beginning of a file that holds its hyperparameters, in bytes.
_BEGINNING = 1 << 20


@dataclass(frozen=True, eq=False)
class EventRun:
    """A run in the folder ``within``, relative to the one that was asked for; ``config``: its known keys."""

    within: str
    config: Mapping[str, Any]
    history: Sequence[Row]


def read_event_runs(folder: Path, problem: Callable[[str], None]) -> tuple[list[EventRun], list[str]]:
    """Return the runs in a folder and below, with notes on repetitions; ``problem`` names those left out."""
    places: list[Path] = []
    for path, below, names in os.walk(folder):
        if any(format_of(Path(name)) == TENSORBOARD for name in names):
            places.append(Path(path))
            below.clear()  # such as those of hparams
        below[:] = [name for name in below if not name.startswith(".")]
    kept: dict[str, EventRun] = {}
    notes = []
    for run in sorted(read_all(partial(_read, folder), sorted(places)), key=lambda one: -len(one.history)):
        first = kept.setdefault(json.dumps(run.config, sort_keys=True), run)
        if not run.history:
            problem(f"{run.within} is left out: it has no values")
        elif first is not run:
            notes.append(f"counted once: {first.within} repeats {run.within}, with the same seed")
    return [run for run in kept.values() if run.history], notes


def event_readings(name: str, runs: Sequence[EventRun], keys: Collection[str]) -> list[RunReading]:
    """Return one reading per run, with its keys among ``keys`` and those in which the runs differ."""
    configs = [{key: json.dumps(value) for key, value in run.config.items()} for run in runs]
    every = {key for config in configs for key in config}
    wanted = {*keys, *_ALWAYS, *(key for key in every if len({config.get(key) for config in configs}) > 1)}
    readings = []
    for run in runs:
        run_id, seconds = hashlib.sha256(run.within.encode()).hexdigest()[:16], run.history[-1].wall_time
        index = IndexRow(run_id, True, {key: value for key, value in run.config.items() if key in wanted})
        facts = {**figures_of(run.history), "wall_time": seconds, "train_time": seconds}
        readings.append(RunReading(name, index, RunState.DONE, "", facts, run.history, foreign=True))
    return readings


def _read(root: Path, folder: Path) -> EventRun:
    within = readable(folder.relative_to(root) if folder != root else folder.name)
    text = ""
    for file in sorted(folder.glob("*.tfevents.*")):
        with suppress(OSError), open(file, "rb") as opened:
            text = text or logged_text(opened.read(_BEGINNING), "hyperparameters/text_summary")
    config = {key: json_value(literal(value)) for key, value in _TABLE_ROW.findall(text) if key != "param"}
    if not config and (named := _CLEANRL.fullmatch(Path(within).name)):
        config = {**named.groupdict(), "seed": int(named["seed"])}
    elif not config:
        seed = _SEED.search(within)
        config = {"folder": _SEED.sub("", within).strip("/"), **({"seed": int(seed[1])} if seed else {})}
    return EventRun(within, config, rows_left(folder, {"from": TENSORBOARD}, timed=True))

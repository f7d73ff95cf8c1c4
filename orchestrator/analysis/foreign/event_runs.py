"""Read runs that programs logged to TensorBoard without this program: each folder with event files is one.

Keys are read from the table `hyperparameters` that CleanRL's programs log, or from the folder's name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.analysis.foreign.files import json_value, literal
from orchestrator.analysis.foreign.find import readable
from orchestrator.analysis.left_metrics import figures_of, left_metrics
from orchestrator.analysis.run_table import RunReading
from orchestrator.core.machine.bulk_read import read_all
from orchestrator.core.metric_files.binary import logged_text
from orchestrator.core.metric_files.names import TENSORBOARD, format_of
from orchestrator.core.types import RunState
from orchestrator.rundir import IndexRow

# The names of CleanRL's runs, and a seed in those of others; Stable-Baselines3 numbers repetitions, as PPO_1.
_CLEANRL = re.compile(r"(?P<env_id>.+)__(?P<exp_name>.+)__(?P<seed>\d{1,18})__\d+")
_SEED = re.compile(r"(?i:[_-]?(?<![a-z])seed[_=-]?)(\d{1,18})|(?<=[A-Z][A-Z0-9])_(\d{1,18})$")
_TABLE_ROW = re.compile(r"^\|(\w[\w.-]*)\|(.*)\|$", re.MULTILINE)
_ALWAYS = ("env_id", "folder", "seed")
# The beginning of a file that holds its hyperparameters, in bytes.
_BEGINNING = 1 << 20


def read_event_runs(
    name: str, folder: Path, problem: Callable[[str], None]
) -> tuple[list[RunReading], list[str]]:
    """Return the runs in a folder and below, with notes on repetitions; ``problem`` names those left out."""
    places: list[Path] = []
    for path, below, names in os.walk(folder):
        if any(format_of(Path(file)) == TENSORBOARD for file in names):
            places.append(Path(path))
            below.clear()  # such as those of hparams
        below[:] = [each for each in below if not each.startswith(".")]
    kept: dict[str, RunReading] = {}
    notes = []
    readings = read_all(partial(_read, name, folder), sorted(places))
    for reading in sorted(readings, key=lambda one: -len(one.history)):
        first = kept.setdefault(json.dumps(reading.index.point, sort_keys=True), reading)
        if not reading.history:
            problem(f"{reading.index.run_id} is left out: it has no values")
        elif first is not reading:
            notes.append(
                f"counted once: {first.index.run_id} repeats {reading.index.run_id}, with the same seed"
            )
    return [reading for reading in kept.values() if reading.history], notes


def with_keys(readings: Sequence[RunReading], keys: Collection[str]) -> list[RunReading]:
    """Return readings with their keys among ``keys`` and those in which they differ."""
    points = [reading.index.point for reading in readings]
    every = {key for point in points for key in point}
    varying = {key for key in every if len({json.dumps(point.get(key)) for point in points}) > 1}
    wanted = {*keys, *varying, *_ALWAYS}
    return [
        replace(
            one, index=one.index._replace(point={key: value for key, value in point.items() if key in wanted})
        )
        for one, point in zip(readings, points, strict=True)
    ]


def _read(name: str, root: Path, folder: Path) -> RunReading:
    within = readable(folder.relative_to(root) if folder != root else folder.name)
    text = ""
    for file in sorted(folder.glob("*.tfevents.*")):
        with suppress(OSError), open(file, "rb") as opened:
            text = text or logged_text(opened.read(_BEGINNING), "hyperparameters/text_summary")
    point = {key: json_value(literal(value)) for key, value in _TABLE_ROW.findall(text) if key != "param"}
    if not point and (named := _CLEANRL.fullmatch(folder.name)):
        point = {**named.groupdict(), "seed": int(named["seed"])}
    elif not point:
        seed = _SEED.search(within)
        point = {
            "folder": _SEED.sub("", within).strip("/"),
            **({"seed": int(seed[1] or seed[2])} if seed else {}),
        }
    history = left_metrics(folder, {"from": TENSORBOARD}, timed=True)
    seconds = history[-1].wall_time if history else None
    facts = {**figures_of(history), "wall_time": seconds, "train_time": seconds}
    return RunReading(name, IndexRow(within, True, point), RunState.DONE, "", facts, history, foreign=True)

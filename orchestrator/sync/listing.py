"""What there is at a source: its sweeps, their runs, and which of those have a result."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.errors import NotFoundError
from orchestrator.rundir.copy_origin import SOURCES
from orchestrator.rundir.descriptions import FOLDER as DESCRIPTIONS
from orchestrator.rundir.foreign_marks import MARK
from orchestrator.rundir.index import RUN_ID
from orchestrator.rundir.run import RETIRED
from orchestrator.rundir.sweep import SWEEP_NAME
from orchestrator.rundir.synced import BUCKETS, CODE, INDEX, JOURNALS, RESULT, RUNS
from orchestrator.sync.rsync import ListedFile, Rsync

_FOLDERS = (RUNS, CODE, JOURNALS, DESCRIPTIONS, "grids", "ledger")


@dataclass
class RunThere:
    """A run at the source. ``stamp`` is its folder's, ``result`` its result's; ``retired`` were put aside."""

    stamp: str
    result: str | None = None
    retired: dict[str, str] = field(default_factory=dict)
    pruned: bool = False

    @property
    def token(self) -> str:
        """Changes when the run does, once it has a result."""
        return f"{self.result} {self.stamp}"


@dataclass
class SweepThere:
    """A sweep at the source. ``entries`` are the files and folders in it but for runs and codes."""

    name: str
    entries: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    runs: dict[str, RunThere] = field(default_factory=dict)
    index: str = ""


@dataclass(frozen=True)
class TreeThere:
    """``refused`` are names that no sweep or run has, and that are left alone."""

    sweeps: Mapping[str, SweepThere]
    refused: Sequence[str]


def look_there(rsync: Rsync, only: Sequence[str] = ()) -> TreeThere:
    """Every sweep there, or those named; :class:`NotFoundError` if there is none."""
    with tempfile.TemporaryDirectory() as nothing:
        listing = rsync.list("", Path(nothing), rules=_rules(only))
    found: dict[str, SweepThere] = {}
    refused = list(listing.special)
    for entry in listing.entries:
        if not entry.plain or not _take(found, entry):
            refused.append(entry.path)
    sweeps = {name: there for name, there in sorted(found.items()) if "grids" in there.entries}
    missing = [name for name in only if name not in sweeps]
    if missing or not sweeps:
        what = f"no sweep named {missing[0]!r}" if missing else "no sweep"
        known = f" (found: {', '.join(sweeps)})" if sweeps else ""
        raise NotFoundError(
            f"{what} in {rsync.source.text}{known}",
            hint="a results tree has a folder for each sweep; say where it is: user@host:path",
        )
    return TreeThere(sweeps, refused)


def _rules(only: Sequence[str]) -> list[str]:
    tops = [f"+ /{name}/" for name in only if SWEEP_NAME.fullmatch(name)] or ["+ /*/"]
    runs = [f"+ /*/{RUNS}/*/{name}" for name in (RESULT, "retired-*.json", MARK)]
    return [
        f"- /{BUCKETS}/",
        *tops,
        "- /*",
        "- /*/.*",
        f"- /*/{SOURCES}/",
        f"+ /*/{RUNS}/",
        f"+ /*/{RUNS}/*/",
        *runs,
        f"- /*/{RUNS}/**",
        f"+ /*/{CODE}/",
        f"+ /*/{CODE}/*/",
        f"- /*/{CODE}/**",
        "+ /*/*",
        "- *",
    ]


def _take(found: dict[str, SweepThere], entry: ListedFile) -> bool:
    """Enter what was listed; ``False`` for a name that has no business there."""
    name, *rest = entry.path.split("/")
    if not SWEEP_NAME.fullmatch(name):
        return False
    sweep = found.setdefault(name, SweepThere(name))
    match rest:
        case [top] if entry.folder != (top in _FOLDERS) and top in (*_FOLDERS, INDEX):
            return False
        case [] | ["runs"] | ["code"]:
            pass
        case ["runs", run_id, *inside]:
            return _take_run(sweep, run_id, inside, entry)
        case ["code", code_id] if entry.folder:
            sweep.codes.append(code_id)
        case ["index.tsv"]:
            sweep.index = entry.stamp
        case [top]:
            sweep.entries.append(top)
        case _:
            return False
    return True


def _take_run(sweep: SweepThere, run_id: str, inside: list[str], entry: ListedFile) -> bool:
    if not RUN_ID.fullmatch(run_id) or entry.folder == bool(inside):  # in it, only files are looked for
        return False
    run = sweep.runs.setdefault(run_id, RunThere(entry.stamp))
    match inside:
        case []:
            run.stamp = entry.stamp
        case [name] if name == RESULT:
            run.result = entry.stamp
        case [name] if RETIRED.fullmatch(name):
            run.retired[name] = entry.stamp
        case [name] if name == MARK:
            run.pruned = True
        case _:
            return False
    return True

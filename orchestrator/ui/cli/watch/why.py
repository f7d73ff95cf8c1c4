"""Explain the state of one run; of a stale one show the changed code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.config.program.identity import ProjectFiles
from orchestrator.control.fleet import present
from orchestrator.control.staleness import Staleness, said
from orchestrator.core.errors import DamagedFileError
from orchestrator.core.formatting import printable
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.rundir.records.ledger_entries import Change
from orchestrator.status.select_runs import one_run

_MOST_LINES = 60
_MOST_BYTES = 1 << 20


def why_lines(sweep_dir: SweepDir, selector: str) -> Iterator[str]:
    """Yield the lines that explain the state of the run that ``selector`` names."""
    seen = present(sweep_dir)
    row = one_run(seen.rows, selector, sweep_dir.name)
    status = seen.statuses[row.run_id]
    run = row.run_id[:8]
    yield f"{run} is {status.state.value}" + (f": {status.why}" if status.why else "")
    today = Staleness(sweep_dir)
    if status.state is RunState.DONE:
        yield _why_done(today.unknown, bool(today.all_differences(row, status)))
    if status.state is not RunState.STALE:
        return
    files = today.differences(row, status)[1:]
    if today.today is None or not files:
        yield from _versions(sweep_dir, row.run_id)
    elif (kept := today.kept(status)) is None:
        yield "the copy of the code that trained it is not kept: its changes cannot be shown"
    else:
        yield from _cut([line for one in files for line in _diff(one, kept, today.today)])
    yield (
        f"next: orchestrate accept {sweep_dir.name} {run}, if no result depends on the change, "
        f"or orchestrate retry {sweep_dir.name} {run} to train it again"
    )


def _why_done(unknown: str | None, accepted: bool) -> str:
    if unknown is not None:
        return f"its code is not compared with today's{f': {unknown}' if unknown else ''}"
    return "its code differs from today's by accepted changes" if accepted else "its code is today's"


def _versions(sweep_dir: SweepDir, run_id: str) -> Iterator[str]:
    """Yield the packages of the run's result that have another version today."""
    try:
        result = sweep_dir.run_to_read(run_id).result()
    except (DamagedFileError, OSError):
        result = None
    versions = result.fields.get("versions") if result else None
    for package, trained in versions.items() if isinstance(versions, Mapping) else ():
        try:
            now = version(package)
        except (PackageNotFoundError, ValueError):
            continue
        if now != trained:
            yield f"{printable(package)}: {printable(str(trained))} trained it, {now} is installed"


def _diff(one: Change, kept: ProjectFiles, today: ProjectFiles) -> Iterator[str]:
    yield f"{said(one)}:"
    was, now = _lines(kept.path(one.name), one.was), _lines(today.path(one.name), one.now)
    if was is None or now is None:
        yield "  not a text, or too long to be shown"
        return
    name = printable(one.name)
    yield from map(printable, unified_diff(was, now, f"{name} (trained)", f"{name} (now)", lineterm=""))


def _lines(path: Path, digest: str | None) -> list[str] | None:
    """Return a file's lines; none for an absent file, ``None`` for one that is no text."""
    if digest is None:
        return []
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        return None if len(content) > _MOST_BYTES else content.decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None


def _cut(lines: list[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… {left} more lines"] if left > 0 else lines

"""Options, progress and report of a sync."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.core.formatting import listed
from orchestrator.rundir.synced import KINDS, kind_of

_NAMED = 5


@dataclass(frozen=True)
class SyncOptions:
    """Sweeps, runs (selected as in `status`) and kinds of files to fetch; all by default.

    ``verify``: read all files here of finished runs and frozen code again; fetch damaged ones.
    """

    sweeps: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    latest_checkpoint: bool = False
    verify: bool = False

    @property
    def selection(self) -> str:
        """Text of the selected kinds; empty if runs are fetched completely."""
        kinds = "" if self.only is None else ",".join(sorted(self.only)) or "records"
        return f"{kinds}{' latest' if self.latest_checkpoint else ''}"

    def wants(self, path: PurePosixPath) -> bool:
        """Return whether a run's file is selected, by its path in the run's folder; any checkpoint counts
        alike.
        """
        kind = kind_of(path)
        return self.only is None or kind == "" or kind in self.only


def kinds(text: str) -> frozenset[str]:
    """Parse the kinds in ``metrics,checkpoints``. Raises :class:`OrchestrateError`."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found or [text]:
        if word not in KINDS:
            raise OrchestrateError(
                f"--only: found {word!r}, expected some of {', '.join(KINDS)}",
                hint=f"for example: --only {KINDS[0]},{KINDS[1]}",
            )
    return frozenset(found)


class SyncProgress:
    """Shows the progress of a sync; this one shows nothing."""

    def expect(self, sweep: str, files: int, size: int) -> None:
        """Begin a sweep with this many files and bytes to fetch."""

    def came(self, size: int) -> None:
        """Show the bytes fetched so far."""

    def begin(self, what: str) -> None:
        """Show the begin of a slow step without byte counts, such as a listing."""

    def say(self, text: str) -> None:
        """Show a message."""


@dataclass
class SyncReport:
    """The outcome of a sync for one sweep.

    ``complete``: runs verified just now. ``finished``: all runs with a result at the source. ``files``,
    ``size`` (bytes): fetched, or to fetch. ``due``: runs with a result to fetch. ``put_aside``: runs here to
    put aside as at the source. ``fitting``: selectors that match a run. ``problems``: differences from the
    source that remain. ``notes``: other messages. ``happened``: messages about runs, with their ids.
    ``lack``: the error where files do not fit on the disk.
    """

    sweep: str
    files: int = 0
    size: int = 0
    complete: list[str] = field(default_factory=list)
    finished: int = 0
    runs: int = 0
    due: int = 0
    put_aside: int = 0
    fitting: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    happened: dict[str, list[str]] = field(default_factory=dict)
    lack: StorageError | None = None

    def tell(self, run_id: str, what: str) -> None:
        """Add a message about a run; runs with the same message share a line."""
        self.happened.setdefault(what, []).append(run_id)

    def summarise(self) -> None:
        """Turn messages about runs into notes."""
        for what, run_ids in self.happened.items():
            runs = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
            named = f": {listed(run_ids, _NAMED)}" if len(run_ids) > 1 else ""
            self.notes.append(f"{runs}: {what}{named}")
        self.happened.clear()

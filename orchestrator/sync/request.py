"""What a person wants brought, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from orchestrator.core.errors import OrchestrateError, StorageError
from orchestrator.rundir.synced import KINDS, kind_of

_NAMED = 5


@dataclass(frozen=True)
class SyncOptions:
    """Which sweeps, runs (as `status` selects them) and kinds of files; all of them by default.

    ``verify``: read again every file here of finished runs and frozen code; fetch what is damaged.
    """

    sweeps: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    latest_checkpoint: bool = False
    verify: bool = False

    @property
    def selection(self) -> str:
        """Empty if nothing of a run is left out."""
        kinds = "" if self.only is None else ",".join(sorted(self.only)) or "records"
        return f"{kinds}{' latest' if self.latest_checkpoint else ''}"

    def wants(self, path: PurePosixPath) -> bool:
        """Whether a file of a run is to come, by its path in the run's folder; all checkpoints alike."""
        kind = kind_of(path)
        return self.only is None or kind == "" or kind in self.only


def kinds(text: str) -> frozenset[str]:
    """The kinds in ``metrics,checkpoints``. Raises :class:`OrchestrateError`."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found or [text]:
        if word not in KINDS:
            raise OrchestrateError(
                f"--only: found {word!r}, expected some of {', '.join(KINDS)}",
                hint=f"for example: --only {KINDS[0]},{KINDS[1]}",
            )
    return frozenset(found)


class SyncProgress(Protocol):
    """What is shown of a sync while it is under way."""

    def expect(self, sweep: str, files: int, size: int) -> None:
        """A sweep begins, of which so many files and bytes come."""

    def came(self, size: int) -> None:
        """So many bytes of it are here."""

    def begin(self, what: str) -> None:
        """A step begins that may take long and of which no bytes tell, as a list of what is there."""

    def say(self, text: str) -> None:
        """Something is worth knowing now."""


class NoProgress:
    """Shows nothing."""

    def expect(self, sweep: str, files: int, size: int) -> None: ...
    def came(self, size: int) -> None: ...
    def begin(self, what: str) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class SyncReport:
    """What a sync did with a sweep.

    ``complete``: runs verified just now; ``finished``: all runs with a result there; ``files`` and ``size``
    (bytes) came, or would. ``due``: runs whose results were to come; ``put_aside``: those here that are to be
    put aside, as they were there. ``fitting``: selectors of the wish that fit a run. ``problems`` are what is
    not here as it is there; ``notes`` are worth knowing. ``happened``: what is to be said of runs, and which.
    ``lack``: that what is to come has no room here.
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
        """Have it said of a run what became of it, in one line with all of which the same is to be said."""
        self.happened.setdefault(what, []).append(run_id)

    def summarise(self) -> None:
        """Turn what was told of runs into notes."""
        for what, run_ids in self.happened.items():
            more = f" and {len(run_ids) - _NAMED} more" if len(run_ids) > _NAMED else ""
            runs = f"run {run_ids[0]}" if len(run_ids) == 1 else f"{len(run_ids)} runs"
            named = f": {', '.join(run_ids[:_NAMED])}{more}" if len(run_ids) > 1 else ""
            self.notes.append(f"{runs}: {what}{named}")
        self.happened.clear()

"""What a person wants brought, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orchestrator.errors import OrchestrateError
from orchestrator.rundir.synced import KINDS, kind_of


@dataclass(frozen=True)
class Wish:
    """Which sweeps, runs (as `status` selects them) and kinds of files; all of them by default."""

    sweeps: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    latest_checkpoint: bool = False

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


@dataclass
class Brought:
    """What a sync did with a sweep.

    ``complete``: runs verified just now; ``finished``: all runs with a result there; ``files`` and ``size``
    (bytes) came, or would. ``due``: runs whose results were to come; ``put_aside``: those here that are to be
    put aside, as they were there. ``fitting``: selectors of the wish that fit a run. ``problems`` are what is
    not here as it is there; ``notes`` are worth knowing.
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

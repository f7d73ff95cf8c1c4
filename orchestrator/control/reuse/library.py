"""Libraries: results trees with finished runs that need not be trained again. They are only read.

Of a tree behind ssh or in a bucket, what is needed comes into a cache of the user's: the indexes, then the
records and files of single runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import RunDir, SweepDir, sweeps
from orchestrator.sync.request import SyncOptions, SyncProgress
from orchestrator.sync.source import Source, find_source, refuse_own
from orchestrator.sync.sync import sync

_SSH = "ssh:"
# Selects no run: a sync then brings the records of sweeps alone.
_NO_RUN = ("seed=no run",)


@dataclass(frozen=True)
class Library:
    """A tree: its finished runs lie in ``results``, or come there from ``source``.

    ``text``: as users name it.
    """

    text: str
    results: Path
    source: Source | None = None
    _whole: set[tuple[str, str]] = field(default_factory=set)

    @cached_property
    def sweeps(self) -> list[SweepDir]:
        """Its sweeps, by name."""
        return sweeps(self.results)

    def bring(self, sweep: str, run_ids: Sequence[str], *, whole: bool = False) -> None:
        """Bring the results of these runs here, or all of their files. Raises :class:`OrchestrateError`."""
        new = [run_id for run_id in run_ids if (sweep, run_id) not in self._whole]
        if self.source is None or not new:
            return
        only = None if whole else frozenset[str]()
        sync(self.source, self.results, SyncOptions((sweep,), tuple(new), only), SyncProgress())
        if whole:
            self._whole.update((sweep, run_id) for run_id in new)


def own_tree(results: Path) -> Library:
    """Return the tree of a command as a library: its runs are there."""
    return Library(os.fspath(results.absolute()), results)


def bring_all(runs: Iterable[tuple[Library, RunDir]], *, whole: bool = False) -> list[str]:
    """Bring the results of runs, or all of their files; return a note on each library that fails."""
    by_sweep: dict[tuple[str, str], tuple[Library, list[str]]] = {}
    for library, run in runs:
        by_sweep.setdefault((library.text, run.sweep), (library, []))[1].append(run.run_id)
    notes = []
    for (text, sweep), (library, run_ids) in by_sweep.items():
        try:
            library.bring(sweep, run_ids, whole=whole)
        except (OrchestrateError, OSError) as error:
            notes.append(f"library {text}: {error}")
    return notes


def open_libraries(texts: Iterable[str], results: Path) -> tuple[list[Library], list[str]]:
    """Return the libraries of these names, and a note on each that cannot be read now.

    Raises :class:`OrchestrateError` for the tree ``results`` itself.
    """
    found, notes = [], []
    for text in dict.fromkeys(texts):
        try:
            source = find_source(text.removeprefix(_SSH))
            is_here = source.host is None and source.mirror is None
            if is_here:
                library = Library(text, Path(source.root))
            else:
                library = Library(text, _cache() / source.name, source)
                sync(source, library.results, SyncOptions(runs=_NO_RUN), SyncProgress())
        except (OrchestrateError, OSError) as error:
            notes.append(f"library {text} is not used: {error}")
            continue
        if is_here:
            _refuse_own(text, source, results)
        found.append(library)
    return found, notes


def _refuse_own(text: str, source: Source, results: Path) -> None:
    try:
        refuse_own(source, results)
    except OrchestrateError:
        what = f"library: {text} is the tree {results} itself, or one is in the other"
        raise OrchestrateError(what, hint="remove it: the tree itself is searched anyway") from None


def _cache() -> Path:
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification ignores a relative path.
    base = chosen if chosen.is_absolute() else Path.home() / ".cache"
    return base / "orchestrate" / "libraries"

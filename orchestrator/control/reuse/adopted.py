"""Find runs to do that a library has finished already, and adopt them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from orchestrator.control.reuse.judge import Judge
from orchestrator.control.reuse.library import Library, bring_all
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.core.types import RunState, Sweep
from orchestrator.rundir import Result, RunDir, SweepDir
from orchestrator.rundir.copies.adoption import adopt
from orchestrator.rundir.records.ledger_entries import FoundEntry, FoundResult
from orchestrator.status.survey import RunStatus, Survey


@dataclass(frozen=True)
class Adoptable:
    """A finished run of a library, with the facts of its result."""

    library: Library
    run: RunDir
    found: FoundResult


@dataclass(frozen=True)
class Adoptions:
    """Runs to do that libraries have finished, by id; ``offered``: why others there are not taken."""

    found: Mapping[str, Adoptable] = field(default_factory=dict)
    offered: Mapping[str, str] = field(default_factory=dict)

    def applied(self, seen: Survey) -> Survey:
        """Return the survey in which these runs are done."""
        if not self.found:
            return seen
        done = {
            run_id: replace(RunStatus(run_id, RunState.DONE), **asdict(one.found))
            for run_id, one in self.found.items()
        }
        return replace(seen, statuses={**seen.statuses, **done})

    def notes(self, runs: int) -> Iterator[str]:
        """Describe what need not be trained, and what could be taken too. ``runs``: of the sweep."""
        for text, number in Counter(one.library.text for one in self.found.values()).items():
            yield f"{number} of {count(runs, 'run')} are in the library {text}"
        for why, number in Counter(self.offered.values()).items():
            were, them = ("was", "it") if number == 1 else ("were", "them")
            yield f"{count(number, 'run')} in a library {were} {why}: --reuse any takes {them}"


def find_adoptable(
    sweep: Sweep, seen: Survey, libraries: Sequence[Library], judge: Judge | None
) -> Adoptions:
    """Find finished runs of libraries that are runs to do, the first library first.

    Without a ``judge`` those of other code and machines count, too.
    """
    wanted = {run.run_id: run for run in sweep.runs if not seen.statuses[run.run_id].has_begun}
    found: dict[str, Adoptable] = {}
    offered: dict[str, str] = {}
    for library, run, result in finished(libraries, wanted):
        if run.run_id in found:
            continue
        if judge is not None and (why := judge.difference(wanted[run.run_id], result)):
            offered.setdefault(run.run_id, why)
        else:
            found[run.run_id] = Adoptable(library, run, FoundResult.of(result))
    return Adoptions(found, {run_id: why for run_id, why in offered.items() if run_id not in found})


def adopt_all(adoptions: Adoptions, sweep_dir: SweepDir) -> Iterator[str]:
    """Make these runs results of the sweep, and record it; yield a note on each that cannot be.

    Safe to kill and to repeat. Call under the sweep's lock.
    """
    yield from bring_all(((one.library, one.run) for one in adoptions.found.values()), whole=True)
    adopted: dict[str, FoundResult] = {}
    for run_id, one in adoptions.found.items():
        origin = f"{one.library.text.rstrip('/')}/{one.run.sweep}"
        try:
            adopted[run_id] = FoundResult.of(adopt(sweep_dir.run(run_id), one.run, origin))
        except (OrchestrateError, OSError) as error:
            yield f"run {run_id} is not adopted: {error}"
    if adopted:
        sweep_dir.add_to_ledger(FoundEntry(runs=adopted))


def finished(
    libraries: Iterable[Library], wanted: Container[str]
) -> Iterator[tuple[Library, RunDir, Result]]:
    """Yield the finished ones of these runs; damaged ones do not count."""
    there: list[tuple[Library, RunDir]] = []
    for library in libraries:
        for home in library.sweeps:
            with suppress(DamagedFileError, OSError):
                rows = (row.run_id for row in home.read_index() if row.run_id in wanted)
                there += [(library, home.run_to_read(run_id)) for run_id in rows]
    bring_all(there)
    for library, run in there:
        with suppress(DamagedFileError):
            if (result := run.result()) is not None:
                yield library, run, result

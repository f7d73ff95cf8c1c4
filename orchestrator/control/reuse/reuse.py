"""All that runs to do need not train: results to adopt, beginnings, and what runs start from by the grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.config.locations import libraries_of_user
from orchestrator.config.trainers import get_trainer
from orchestrator.control.reuse.adopted import Adoptions, adopt_all, find_adoptable
from orchestrator.control.reuse.judge import Judge
from orchestrator.control.reuse.library import open_libraries, own_tree
from orchestrator.control.reuse.origins import find_origins
from orchestrator.control.reuse.prefixes import Prefixes, find_prefixes, place_prefixes
from orchestrator.core.types import Sweep
from orchestrator.planning.plan import ReuseOption
from orchestrator.rundir import SweepDir
from orchestrator.status.survey import Survey


@dataclass(frozen=True)
class Reuse:
    """Found results and beginnings. ``problems``: libraries that cannot be read, a line each."""

    adoptions: Adoptions = field(default_factory=Adoptions)
    prefixes: Prefixes = field(default_factory=Prefixes)
    problems: tuple[str, ...] = ()

    def applied(self, seen: Survey) -> Survey:
        """Return the survey as if all of it was in place."""
        return self.prefixes.applied(self.adoptions.applied(seen))

    def notes(self, runs: int, planned: Iterable[str]) -> tuple[str, ...]:
        """Describe it, a line each. ``runs``: their number in the sweep; ``planned``: those to submit."""
        return (*self.adoptions.notes(runs), *self.prefixes.notes(planned), *self.problems)

    def place(self, planned: Iterable[str], waiting: Iterable[str], sweep_dir: SweepDir) -> Iterator[str]:
        """Adopt the results and give planned runs their beginnings; yield a note on each failure.

        Safe to kill and to repeat. Call under the sweep's lock, before the runs are submitted.
        """
        yield from adopt_all(self.adoptions, sweep_dir)
        # A job that submits waiting runs later looks into no library.
        run_ids = (*planned, *self.prefixes.of_libraries(waiting, sweep_dir.results))
        yield from place_prefixes(self.prefixes, run_ids, sweep_dir)


NOTHING = Reuse()


def find_reuse(
    sweep: Sweep,
    sweep_dir: SweepDir,
    seen: Survey,
    option: ReuseOption | None = None,
    start: Path | None = None,
) -> Reuse:
    """Find what the runs to do need not train. Writes nothing to the tree.

    Without an ``option``, as for a command without a person, libraries are not looked into. ``start``: the
    folder in which programs start, by default that of the call. Raises :class:`OrchestrateError` for a
    library that is the tree itself, and for runs that cannot start as the grid says.
    """
    if option is ReuseOption.NONE:
        return Reuse(prefixes=find_origins(sweep, sweep_dir, seen))
    names = () if option is None else (*sweep.library, *libraries_of_user())
    spec = get_trainer(sweep.trainer).with_plugins(sweep.plugins)
    judge = Judge(spec, start or Path.cwd(), sweep_dir.results)
    libraries, problems = open_libraries(names, sweep_dir.results) if names else ([], [])
    accepted = None if option is ReuseOption.ANY else judge
    adoptions = find_adoptable(sweep, seen, libraries, accepted)
    if trunks := {*sweep.trunks.values()}:  # those of another sweep of the tree count, too
        forked = replace(sweep, runs=tuple(run for run in sweep.runs if run.run_id in trunks))
        own = find_adoptable(forked, seen, [own_tree(sweep_dir.results)], accepted)
        adoptions = replace(adoptions, found={**adoptions.found, **own.found})
    seen = adoptions.applied(seen)
    prefixes = find_prefixes(sweep, sweep_dir, seen, judge, libraries)
    origins = find_origins(sweep, sweep_dir, seen, None if option is None else libraries)
    prefixes = prefixes.with_origins(origins)
    return Reuse(adoptions, prefixes, tuple(problems))

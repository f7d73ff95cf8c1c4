"""Read the fleet and act on it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from orchestrator.control import fleet
from orchestrator.control.cloud.exchange import exchange_with_instances
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import DamagedFileError, OrchestrateError, ProfileError
from orchestrator.core.formatting import count
from orchestrator.rundir import SweepDir, sweeps
from orchestrator.rundir.copies.parcel import unpacked
from orchestrator.rundir.files.plain_files import open_plain
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.status.survey import Survey
from orchestrator.ui.top.model import FleetState, History, SweepSnapshot, following, out_of_date, sight
from orchestrator.ui.top.wording import error_line

# Bytes shown of the end of a log.
_TAIL = 200_000


class FleetTree:
    """The sweeps of a results folder: the named ones, or all of them.

    Each method may take long and raises :class:`OrchestrateError`.
    """

    def __init__(self, results: Path, names: Sequence[str] = ()) -> None:
        self._results, self._names = results, names
        self._asking = threading.Lock()  # backends cache answers without locks

    def sweeps(self) -> Sequence[SweepDir]:
        """Return the sweeps to show, by name."""
        return [SweepDir.existing(self._results, name) for name in self._names] or sweeps(self._results)

    def present(self, sweep_dir: SweepDir) -> Survey:
        """Return the states of a sweep's runs."""
        with self._asking:
            return fleet.present(sweep_dir)

    def recorded(self, sweep_dir: SweepDir) -> Survey:
        """Return the states of a sweep's runs as recorded on this disk, without asking a machine."""
        return poll_sweep(sweep_dir, ask=False)

    def history(self, sweep_dir: SweepDir) -> History:
        """Return a sweep's ledger and its workers' journals."""
        return History(sweep_dir.read_ledger(), sweep_dir.read_journals(), unpacked(sweep_dir))

    def price(self, on: str, kept: float | None = None) -> float | None:
        """Return US dollars for one hour of a job of that submission; ``None`` if unknown.

        The price at submission; for a job of another tree, the profile's.
        """
        return kept if kept is not None else _price(on)

    def cancel(self, sweep_dir: SweepDir, run_ids: Sequence[str]) -> str:
        """Cancel runs; return a message for the user."""
        with self._asking:
            decided = fleet.cancel(sweep_dir, run_ids)
        problems = "".join(f"; {error_line(problem)}" for problem in decided.problems)
        return f"{sweep_dir.name}: {len(decided.run_ids)} of {count(len(run_ids), 'run')} cancelled{problems}"

    def retry(self, sweep_dir: SweepDir, run_ids: Sequence[str]) -> str:
        """Submit runs again; return a message for the user.

        `orchestrate retry` runs in a process of its own, which goes on after the screen is left.
        """
        argv = [sys.executable, "-P", "-m", "orchestrator.ui.cli", "retry", sweep_dir.name, *run_ids]
        argv += ["--detach", "--results", str(sweep_dir.results)]
        # Into a file: a pipe without a reader would end it.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True, check=False
            )
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
        if done.returncode not in (0, 1):  # 1: some other run has failed
            raise OrchestrateError(lines[0].removeprefix("error: "), hint=" ".join(lines[1:]).strip() or None)
        return "; ".join(line for line in lines if not line.startswith("detached"))

    def exchange(self, sweep_dir: SweepDir) -> str:
        """Fetch results from instances and clusters, end finished instances; return a message."""
        lines: list[str] = []
        with self._asking:
            exchange_with_instances(sweep_dir, lines.append, not_within=0)
        fleet.fetch_from_trees(sweep_dir, lines.append)
        return f"{sweep_dir.name}: {'; '.join(lines) or 'nothing new'}"

    def log(self, sweep_dir: SweepDir, run_id: str) -> str:
        """Return the end of a run's log."""
        with fleet.log_from(sweep_dir, run_id, attempt=None, to_the_end=False) as pipe:
            if pipe is not None:
                return _whole_lines(pipe.read())
        attempts = sweep_dir.run_to_read(run_id).attempts()
        if attempts:
            return _tail(attempts[-1].log) or f"attempt {attempts[-1].number} has printed nothing yet"
        for _, job in reversed(list(jobs_of(sweep_dir.read_ledger()))):
            if run_id in job.run_ids and (printed := _tail(sweep_dir.worker_output(job.token))):
                return f"the run has not begun; its job printed:\n{printed}"
        return "the run has not begun yet"


@cache
def _price(profile: str) -> float | None:
    from orchestrator.config.profiles import find_profile

    try:
        return find_profile(profile).price_per_hour
    except (ProfileError, OSError):
        return None  # a missing or unreadable profile has no price


def _tail(path: Path) -> str:
    try:
        with open_plain(path) as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return _whole_lines(file.read())
    except FileNotFoundError:
        return ""
    except DamagedFileError as error:
        return str(error)


def _whole_lines(printed: bytes) -> str:
    """Return the last lines, without a line that the limit cuts in two."""
    text = printed[-_TAIL:].decode(errors="replace")
    return text.partition("\n")[2] if len(printed) >= _TAIL else text


def next_state(
    access: FleetTree, before: FleetState, now: float, at_first: Callable[[FleetState], object] | None = None
) -> FleetState:
    """Return the fleet's state ``now``; where a read fails, keep the earlier state and name the problem.

    Machines may take a minute to answer. ``at_first`` receives the state recorded on disk, before the first
    answer.
    """
    try:
        sweep_dirs = access.sweeps()
    except Exception as error:
        return following(before, before.sights, now, error_line(error))
    if at_first is not None and before.at is None:
        recorded = [_snapshot(access, access.recorded, sweep_dir, None, now) for sweep_dir in sweep_dirs]
        at_first(FleetState(None, tuple(recorded)))
    sights = [_snapshot(access, access.present, one, before.sight(one.name), now) for one in sweep_dirs]
    return following(before, sights, now)


def _snapshot(
    access: FleetTree,
    ask: Callable[[SweepDir], Survey],
    sweep_dir: SweepDir,
    before: SweepSnapshot | None,
    now: float,
) -> SweepSnapshot:
    try:
        seen, history = ask(sweep_dir), access.history(sweep_dir)
        return sight(sweep_dir, seen, history, access.price, now, before)
    except Exception as error:
        return out_of_date(sweep_dir, before, error_line(error))

"""Submit the arrays of a plan, record each answer in the ledger, and tell a user what was submitted."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.backends.base import Backend
from orchestrator.backends.script import Script, Setting
from orchestrator.config.trainers import get_trainer
from orchestrator.core.errors import QueueFullError, RefusedError
from orchestrator.core.formatting import count
from orchestrator.core.types import Array, Plan, array_of
from orchestrator.rundir import FrozenCode, SweepDir
from orchestrator.rundir.records.ledger_entries import SubmissionEntry


@dataclass(frozen=True)
class Started:
    """A submission. ``to_do``: runs that were missing; ``adopted``: jobs found at work, ``queued``: in the
    queue.

    ``where``: the targets' names, unless this tree submits to a single one; ``path``: the results there.
    ``problems``: why runs could not be submitted, by run id; ``kept``: why another tree keeps a run.
    ``over``: nothing is left to follow. It is what `sweep --json` prints, and all that another tree is told.
    """

    path: str
    to_do: int = 0
    adopted: int = 0
    queued: int = 0
    where: str = ""
    arrays: tuple[str, ...] = ()
    waiting: str | None = None
    notes: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    over: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Arrays, waiting runs and notes, for people."""
        return (*self.arrays, *([self.waiting] if self.waiting else []), *self.notes)


class Submission:
    """Submits a plan, and keeps its ledger entry up to date from before the first array to the last."""

    def __init__(self, plan: Plan, sweep_dir: SweepDir, entry: SubmissionEntry) -> None:
        self.plan, self._sweep_dir = plan, sweep_dir
        self._entry = replace(entry, number=sweep_dir.add_to_ledger(entry))

    @property
    def job_ids(self) -> Mapping[str, str]:
        return self._entry.job_ids

    def submit(self, scripts: Sequence[Script], backend: Backend) -> tuple[str, ...]:
        """Submit the arrays in order; return the scheduler's message if its queue is full."""
        for position, script in enumerate(scripts):
            after = self.plan.arrays[position].after
            before = [job_id for token, job_id in self.job_ids.items() if array_of(token) == after]
            try:
                array, ids = _submit_array(script, backend, before)
            except RefusedError as error:
                full = isinstance(error, QueueFullError)
                self._record(_cut(self.plan, position), {}, waiting=full or bool(self.plan.waiting))
                if not self.job_ids or not full:
                    raise
                return (f"{count(len(self.plan.waiting), 'run')} waiting for room in the queue: {error}",)
            arrays = self.plan.arrays
            left = without(arrays[position].run_ids, array.run_ids)
            arrays = (*arrays[:position], array, *arrays[position + 1 :])
            plan = replace(self.plan, arrays=arrays, waiting=(*self.plan.waiting, *left))
            self._record(plan, ids, waiting=bool(plan.waiting))
        return ()

    def _record(self, plan: Plan, ids: Mapping[str, str], *, waiting: bool) -> None:
        """Record the jobs accepted so far. Refused jobs leave no trace, so their tokens are free again."""
        self.plan, tokens = plan, {job.token for job in plan.jobs}
        jobs = tuple(job for job in self._entry.jobs if job.token in tokens)
        self._entry = replace(self._entry, jobs=jobs, job_ids={**self.job_ids, **ids}, waiting=waiting)
        self._sweep_dir.amend_ledger(self._entry)


def _submit_array(script: Script, backend: Backend, before: Sequence[str]) -> tuple[Array, Mapping[str, str]]:
    """Submit an array, or the part that the queue accepts; if refused, without avoiding machines."""
    array, sweep_dir = script.array, script.setting.sweep_dir
    sweep_dir.keep_script(array.token, script.text)
    try:
        return array, backend.submit(script, before)
    except QueueFullError:
        if len(array.jobs) == 1:
            raise
        smaller = replace(array, jobs=array.jobs[: len(array.jobs) // 2])
    except RefusedError:
        if not array.avoid:
            raise
        smaller = replace(array, avoid=())
    return _submit_array(_rendered(smaller, backend, script.setting), backend, before)


def _cut(plan: Plan, position: int) -> Plan:
    """Return the plan up to that array; the runs of the others wait."""
    left = tuple(run_id for array in plan.arrays[position:] for run_id in array.run_ids)
    return replace(plan, arrays=plan.arrays[:position], waiting=(*plan.waiting, *dict.fromkeys(left)))


def scripts_of(plan: Plan, sweep_dir: SweepDir, backend: Backend, code: FrozenCode) -> list[Script]:
    """Render the script of each array, with absolute paths."""
    whole = SweepDir(sweep_dir.results.absolute(), sweep_dir.name)
    needs = get_trainer(plan.sweep.trainer).needs_of_tasks(plan.sweep.runs)
    return [_rendered(array, backend, Setting(whole, code, needs)) for array in plan.arrays]


def _rendered(array: Array, backend: Backend, setting: Setting) -> Script:
    return Script(array, backend.render(array, setting), setting)


def without(run_ids: Iterable[str], left_out: Container[str]) -> tuple[str, ...]:
    """Return the runs that are not left out, in their order."""
    return tuple(run_id for run_id in run_ids if run_id not in left_out)


def waiting(number: int, *, canary: bool, submitted: bool, no_feed: str | None, follow: bool) -> str | None:
    """How runs are submitted later for which the queue has no room, or which wait for canaries.

    ``no_feed`` as for :class:`Plan`. ``follow``: the same command with `--follow` submits them.
    """
    if not number:
        return None
    how = "jobs that end submit them, or this command again" if submitted else "this command again tries"
    if submitted and no_feed is not None:
        or_follow = ", or --follow as jobs end" if follow else ""
        how = f"this command again submits them{or_follow} ({no_feed})"
    what = "the first run of their configuration" if canary else "room in the queue"
    return f"{count(number, 'run')} waiting for {what}: {how}"


def forks_later(forks: str, *, follows: bool, feeds: bool) -> tuple[str, ...]:
    """How ``forks``, described as they are, are submitted once the runs that they wait for are done.

    ``follows``: this command stays; ``feeds``: jobs that end submit them.
    """
    how = (
        "jobs that end submit them, or this command again"
        if feeds
        else "this command again submits them then"
    )
    how = "this command submits them then" if follows else how
    return (f"{forks}; {how}",) if forks else ()


def array_line(job_id: str, jobs: int, slots: int) -> str:
    """One array by its scheduler's id, as ``slurm:12_0``."""
    scheduler, _, number = job_id.partition(":")
    return f"{scheduler} array {number.partition('_')[0]}: {count(jobs, 'job')}, {slots} runs at once in each"

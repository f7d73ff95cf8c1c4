"""Exchange with the cloud instances of a sweep: fetch results, send decisions, terminate instances.

An instance's tree continues this one: it was sent the runs of its job, and no other job may take them while
that job lives. Their results come back under the same names.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.backends.instances import Instance, Instances, InstanceState, instances_of
from orchestrator.control.cloud.instance_records import InstanceRecords
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.formatting import count
from orchestrator.core.machine.ssh import failure
from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import End, Event, Result, RunDir, SweepDir, tidy_finished
from orchestrator.rundir.copies.handover import Handover
from orchestrator.rundir.copies.parcel import (
    arrivals,
    condemned_at,
    discard,
    ledger_names,
    mark_fetched,
    of_job,
    since_exchange,
    store_of,
    turn_to_exchange,
    unpacked,
)
from orchestrator.rundir.copies.synced import RESULT, RUNS
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.rundir.records.journal import REVOKED
from orchestrator.rundir.records.ledger_entries import jobs_of
from orchestrator.status.ledger import job_ids
from orchestrator.sync.file_selection import choose, run_of
from orchestrator.sync.request import SyncOptions
from orchestrator.sync.rsync import Listing, Rsync
from orchestrator.sync.source import Source, store_source
from orchestrator.sync.verify import Checked, check_all, drop_pruned, publish, staged_result

# What is new on an instance comes this often: what is lost with one is not older.
EXCHANGE_S = 20.0
_SEE_OFF_S = 5.0
# A worker whose instance's program was killed saves within its grace.
_LAST_WORDS_S = 60.0
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS", re.IGNORECASE)
_LEAST_SECRET = 8
_ALL = SyncOptions()


@dataclass(frozen=True)
class ActiveInstance:
    """A job on an instance, not known to be settled. ``run_ids``: its runs without a later job."""

    sweep: SweepDir
    token: str
    backend: str
    job_id: str
    run_ids: tuple[str, ...]

    @property
    def cloud(self) -> Instances:
        return instances_of(self.backend)

    @property
    def instance(self) -> str:
        return self.cloud.instance_of(self.job_id)


@dataclass
class ExchangeReport:
    """Outcome of an exchange: jobs that are settled; ``news`` and ``problems`` in lines for people."""

    settled: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [*self.news, *self.problems]

    def settle(self, job: ActiveInstance) -> None:
        self.settled.append(job.token)
        self.news.append(f"instance {job.instance} ended")

    def add(self, job: ActiveInstance, problem: str) -> None:
        known = problem.startswith(job.instance)
        self.problems.append(problem if known else f"{job.instance}: {problem}")


def sent_jobs(sweep: SweepDir) -> list[ActiveInstance]:
    """Return the sweep's jobs on instances that may be up, or may have files that are not here."""
    sweep = SweepDir(sweep.results.absolute(), sweep.name)  # programs are told where to put things
    left = set(unpacked(sweep))
    if not left or read_copy(sweep.path) is not None:
        return []
    jobs = list(jobs_of(sweep.read_ledger()))
    owner: dict[str, str] = {}
    for _, job in jobs:
        owner |= dict.fromkeys(job.run_ids, job.token)
    found = []
    for entry, job in jobs:
        token = job.token
        job_id = entry.job_ids.get(token)
        if token in left and job_id is not None:
            own = tuple(run_id for run_id in job.run_ids if owner[run_id] == token)
            found.append(ActiveInstance(sweep, token, entry.backend, job_id, own))
    return found


def _discard_unlaunched(sweep: SweepDir) -> None:
    """Remove the parcels of jobs that were given up before their launch."""
    left = set(unpacked(sweep)) if read_copy(sweep.path) is None else ()
    if left:
        launched = job_ids(sweep.read_ledger())
        for token in left - launched.keys():
            if sweep.has_begun(token):
                discard(sweep, token)


def exchange(sweep: SweepDir, not_within: float = EXCHANGE_S, *, orphans: bool = False) -> ExchangeReport:
    """Fetch results from instances, send decisions to them, and take down those that are done.

    Skips instances of an exchange within so many seconds, or of one under way in another command. An instance
    that does not answer changes nothing, and is reported. ``orphans``: also take down instances of a dead
    launch; those of cancelled runs go in any case.
    """
    done = ExchangeReport()
    _discard_unlaunched(sweep)
    jobs = [job for job in sent_jobs(sweep) if since_exchange(sweep, job.token) > not_within]
    if not jobs:
        return done
    try:
        standing: dict[str, InstanceState] = {}
        up: dict[str, Instance] = {}
        for kind in {job.backend for job in jobs}:
            own = [job.job_id for job in jobs if job.backend == kind]
            up |= instances_of(kind).up(own)
            standing |= instances_of(kind).standing_of(own, up)
    except OrchestrateError as error:
        done.problems.append(str(error))
        return done
    records = InstanceRecords(sweep)
    for job in jobs:
        with turn_to_exchange(sweep, job.token) as mine:
            if mine:
                try:
                    if (found := up.get(job.instance)) is not None:
                        records.machine(job.token, found)
                    machine = _Machine(job, found, records)
                    _settle(job, machine, standing[job.job_id], done, orphans)
                except OrchestrateError as error:
                    job.cloud.doubt(job.job_id)
                    done.add(job, str(error))
    return done


def drain_instances(sweep: SweepDir, patience: float) -> Iterator[ExchangeReport]:
    """Exchange until every instance of the sweep has gone, for so many seconds at most."""
    deadline = time.monotonic() + patience
    while sent_jobs(sweep):
        yield exchange(sweep, _SEE_OFF_S, orphans=True)
        if time.monotonic() > deadline:
            return
        time.sleep(1)


@dataclass(frozen=True)
class _Machine:
    """A job's machine and its record. ``instance``: as its backend has it, ``None`` if it does not exist."""

    job: ActiveInstance
    instance: Instance | None
    records: InstanceRecords

    def take_down(self, said: str | None) -> None:
        """Terminate it, and record its end. ``said``: how its job ended, if it ended by itself."""
        job = self.job
        job.cloud.take_down(job.job_id, said)
        over = job.cloud.launch_over(job.job_id) if self.instance is None else None
        self.records.end(job.token, observed=self.instance is not None, launch_over=over)


def _settle(
    job: ActiveInstance, machine: _Machine, standing: InstanceState, done: ExchangeReport, orphans: bool
) -> None:
    """Advance the job as far as possible now; the order loses nothing at any interruption."""
    condemned = condemned_at(job.sweep, job.token) is not None
    if standing is InstanceState.ORPHAN:
        standing = InstanceState.ORPHAN if _never_began(job, condemned) else InstanceState.UP
    if standing in (InstanceState.STARTING, InstanceState.ORPHAN):
        if condemned or (orphans and standing is InstanceState.ORPHAN):
            _give_back(job, machine, done)
        return
    if standing is InstanceState.STOPPED:
        done.add(job, f"is stopped, with what is not here yet: {job.cloud.RESTART.format(job.instance)}")
        return
    if standing is InstanceState.GONE and not _is_named_here(job):
        done.add(job, "nothing is known of it here; was it sent from another machine, or folder?")
        return
    whole, said = False, None
    if standing is InstanceState.UP:
        whole = _from_instance(job, done)
        if not whole:
            said = _over(job)
            if said is None or not _may_go(job, done):
                return
            _keep_words(job)
        said = said or _unsaid(job)
    machine.take_down(said)
    if not whole and not _from_store(job, done):
        return
    _close(job, said)
    discard(job.sweep, job.token)
    done.settle(job)


def _is_named_here(job: ActiveInstance) -> bool:
    """Whether the instance is named as if launched from this machine and folder."""
    return job.instance == job.cloud.instance_of(job.cloud.unrecorded_id(job.sweep, job.token))


def _never_began(job: ActiveInstance, condemned: bool) -> bool:
    """Whether an orphan has no job to keep. One that does not answer is kept unless condemned unbegun."""
    if condemned:
        return True
    return not job.sweep.has_begun(job.token) and job.cloud.never_sent(job.job_id)


def _give_back(job: ActiveInstance, machine: _Machine, done: ExchangeReport) -> None:
    """Take down an instance that never got its job."""
    said = job.cloud.launch_failure(job.job_id)
    machine.take_down(said)
    _close(job, said)
    discard(job.sweep, job.token)
    done.settle(job)


def _from_instance(job: ActiveInstance, done: ExchangeReport) -> bool:
    """Exchange with an instance that is up; return whether its job ended and all its files are here."""
    source = Source(job.cloud.RESULTS_THERE, job.cloud.reach(job.job_id))
    rsync = Rsync(source)
    rsync.push(job.sweep.path, job.sweep.name, ledger_names(job.sweep))
    job.cloud.trust(job.job_id)
    handed = Handover(job.sweep, job.token)
    _fetch(rsync, job, [str(handed.ended_name)], job.sweep.path)
    ended = handed.ended() is not None  # and whatever comes after it, comes with all that there is
    whole = _bring(job, source, done)
    if not (ended and whole):
        return False
    handed.mark_safe()
    rsync.push(job.sweep.path, job.sweep.name, [str(handed.safe_name)])
    return True


def _over(job: ActiveInstance) -> str | None:
    """Return the reason for a job that ended without a mark, once it had time to save."""
    said = job.cloud.over(job.job_id)
    mark = arrivals(job.sweep, job.token) / "over"
    if said is None or (mark.exists() and time.time() - mark.stat().st_mtime > _LAST_WORDS_S):
        return said
    if not mark.exists():
        mark.touch()
    return None if job.sweep.has_begun(job.token) else said


def _unsaid(job: ActiveInstance) -> str | None:
    """Return how a worker ended that left no end on record."""
    if not job.sweep.has_begun(job.token):
        return "its worker could not begin"
    log = job.sweep.worker_log(job.token)  # None once it was folded away, which only ended ones are
    return None if log is None or log.exited else "its worker was killed"


def _may_go(job: ActiveInstance, done: ExchangeReport) -> bool:
    """Fetch the files of an idle instance; return whether all are here."""
    whole = _bring(job, Source(job.cloud.RESULTS_THERE, job.cloud.reach(job.job_id)), done)
    if not whole and _store(job) is None:
        done.add(job, "has what does not come home; it goes by itself when it has been idle")
    return whole or _store(job) is not None


def _from_store(job: ActiveInstance, done: ExchangeReport) -> bool:
    """Fetch the files of the job's store, if it has one; return whether all are here."""
    store = _store(job)
    if store is None:
        return True
    source = store_source(store, job.sweep.results, job.sweep.name)
    if source.host is None and not Path(source.root).is_dir():
        raise OrchestrateError(f"its store {store} is not seen here: mount it, or mend the profile's `store`")
    whole = not _has_sweep(source, job.sweep.name) or _bring(job, source, done)
    source.leave()
    return whole


def _has_sweep(source: Source, name: str) -> bool:
    folder = f"{source.root}/{name}"
    if source.host is None:
        return Path(folder).is_dir()
    found = source.host.run(["test", "-d", folder])
    if found.code not in (0, 1):
        raise failure(source.host.name, found.errors)
    return found.code == 0


def _close(job: ActiveInstance, said: str | None) -> None:
    """Record the end of a job on an instance that is gone."""
    why = said or "its instance is gone"
    if not job.sweep.has_begun(job.token):
        if said is not None:  # another one like it would not begin either
            output = job.sweep.worker_output(job.token)
            why = f"{why}: see {output}" if output.exists() else why
            job.sweep.take_token(job.token, Event(REVOKED, time.time(), data={"why": why}))
        return
    reason = Reason.PREEMPTED if said is None else Reason.KILLED
    ending = End(RunState.INTERRUPTED, reason, why)
    for run_id in job.run_ids:
        for attempt in job.sweep.run(run_id).attempts():
            claim = attempt.claim()
            if claim is not None and claim.worker == job.token and attempt.end() is None:
                attempt.write_end(replace(ending, checkpointed=attempt.checkpointed()))


def _bring(job: ActiveInstance, source: Source, done: ExchangeReport) -> bool:
    """Fetch new files; return whether all are here and verified.

    The journal is fetched first, and placed last: all files that it names are here then.
    """
    rsync, sweep, folder = Rsync(source), job.sweep, arrivals(job.sweep, job.token)
    words, runs = of_job(job.token, job.run_ids)
    problems = _fetch(rsync, job, words, folder)
    listing = rsync.list(sweep.name, sweep.path, names=runs)
    chosen = [one for one in choose(listing, sweep.path, _ALL) if one.run_id in job.run_ids]
    problems += listing.problems
    problems += _fetch(rsync, job, [name for one in chosen for name in one.names], sweep.path)
    problems += _publish(rsync, job, listing, done)
    for one in chosen:
        run = sweep.run(one.run_id)
        if one.whole and not run.has_result():
            drop_pruned(run, one.there)
    if not problems:
        for name in words:
            if (folder / name).exists():
                os.replace(folder / name, sweep.path / name)
        mark_fetched(sweep, job.token)
    for problem in problems:
        done.add(job, problem)
    return not problems


def _fetch(rsync: Rsync, job: ActiveInstance, names: list[str], into: Path) -> list[str]:
    incoming = arrivals(job.sweep, job.token)
    return [*rsync.fetch(job.sweep.name, into, names, incoming)] if names else []


def _publish(rsync: Rsync, job: ActiveInstance, listing: Listing, done: ExchangeReport) -> list[str]:
    """Publish new results once all files that they list are here; return the problems."""
    folder = arrivals(job.sweep, job.token)
    new = [run_of(one.path) for one in listing.entries if _is_new_result(job, one.path)]
    if not new:
        return []
    rsync.fetch(job.sweep.name, folder, [f"{RUNS}/{run_id}/{RESULT}" for run_id in new], folder)
    staged = {run_id: RunDir(folder / RUNS / run_id) for run_id in new}
    problems, results = [], {}
    for run_id, one in staged.items():
        try:
            results[run_id] = staged_result(one)
        except DamagedFileError as error:
            problems.append(f"run {run_id}: {error}")
    sound = []
    for run_id, found in _checked(rsync, job, results).items():
        if found.void:
            amiss = sorted({*found.wrong, *found.absent})[0]
            problems.append(f"run {run_id}: {amiss} is not as its result says; it is left unfinished here")
        elif results[run_id].attempt > job.sweep.run(run_id).retired:  # else it was put aside here
            sound.append(run_id)
    if sound:
        os.sync()  # a result must not outlive its files in a power cut
        done.news.append(f"fetched {count(len(sound), 'result')} from {job.instance}")
    for run_id in sound:
        run = job.sweep.run(run_id)
        publish(staged[run_id], run)
        tidy_finished(run, results[run_id])
    return problems


def _checked(rsync: Rsync, job: ActiveInstance, results: Mapping[str, Result]) -> dict[str, Checked]:
    """Check the files of runs; fetch wrong ones once more, by their content."""
    runs = {run_id: (job.sweep.run(run_id), result.manifest) for run_id, result in results.items()}
    checked = dict(zip(runs, check_all(list(runs.values())), strict=True))
    again = [run_id for run_id, found in checked.items() if found.void]
    names = [f"{RUNS}/{one}/{name}" for one in again for name in (*checked[one].wrong, *checked[one].absent)]
    if names:
        incoming = arrivals(job.sweep, job.token)
        rsync.fetch(job.sweep.name, job.sweep.path, names, incoming, by_content=True)
        checked |= dict(zip(again, check_all([runs[run_id] for run_id in again]), strict=True))
    return checked


def _is_new_result(job: ActiveInstance, path: str) -> bool:
    run_id = run_of(path)
    return path == f"{RUNS}/{run_id}/{RESULT}" and not job.sweep.run(run_id).has_result()


def _keep_words(job: ActiveInstance) -> None:
    """Keep the output of a job that left no end on record, without secrets."""
    text = job.cloud.last_words(job.job_id)
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _LEAST_SECRET:
            text = text.replace(value, "…")
    output = job.sweep.worker_output(job.token)
    if not output.exists() or not output.stat().st_size:
        output.write_text(text)


def _store(job: ActiveInstance) -> str | None:
    """Return the job's store."""
    return store_of(job.sweep, job.token)

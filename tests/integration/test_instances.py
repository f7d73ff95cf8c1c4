"""What comes home from instances of a cloud, whatever happens when; nothing is lost, and nothing done twice.

SkyPilot's answers are made up here (tests/sky has the real one), and an instance is a folder of this machine.
Workers, results trees and rsync are real.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jobs import instance as on_instance
from orchestrator.backends.instances import Instance, RecordedState
from orchestrator.backends.skypilot import client, instances
from orchestrator.backends.skypilot.client import Request, RequestState
from orchestrator.control import decisions
from orchestrator.control.cloud import cloud_instances
from orchestrator.control.cloud.exchange import age_note
from orchestrator.control.cloud.instance_costs import InstanceCost, costs
from orchestrator.control.follow import why_left
from orchestrator.control.poll import poll_sweep
from orchestrator.core.errors import BackendUnavailableError, RefusedError
from orchestrator.core.types import Job, JobState, Reason, RunState
from orchestrator.planning.budget import spending_of, worth_going_on
from orchestrator.planning.predictions import bills
from orchestrator.rundir import CodeDir, Event, SweepDir
from orchestrator.rundir.copies.handover import Handover, WorkerEnd
from orchestrator.rundir.copies.parcel import arrivals, keep_store, pack, parcel, turn_to_exchange, unpacked
from orchestrator.rundir.records.journal import REVOKED
from orchestrator.rundir.records.ledger_entries import submissions
from orchestrator.rundir.records.submitted import SubmissionCost
from orchestrator.sync.rsync import Rsync
from orchestrator.ui.cli import app
from orchestrator.ui.top.fleet_access import FleetTree
from orchestrator.ui.top.model import sight
from tests import helpers
from tests.audit import as_tuples, check_finished, expected_rows

CODE_ID = "0123456789abcdef"
STEPS = 20
# Files that `collect` keeps beside its tables.
OWN = ("tiny/speeds.json", "tiny/.lock")


@dataclass
class Rented:
    """One instance, and what SkyPilot says of it. ``task``: the state of its job, if SkyPilot says one."""

    folder: Path
    name: str = ""
    up: bool = True
    launch: RequestState = RequestState.SUCCEEDED
    task: client.SkyTask | None = None
    state: RecordedState = RecordedState.UP
    autodown: str = "goes down after 5 idle minutes"
    since: float = 0.0
    price: float | None = None
    region: str = ""
    refuses: str = ""
    on_the_way_down: Callable[[], None] = lambda: None
    taken_down: list[str] = field(default_factory=list)

    def clusters(self, names: Collection[str] | None, refresh: bool) -> dict[str, Instance]:
        if not self.up or (names is not None and self.name not in names):
            return {}
        about = (self.since, self.price, self.region, "", False, self.autodown)
        return {self.name: Instance(self.name, self.state, *about)}

    def dies_in_mid_launch(self) -> None:
        """With SkyPilot's server: no request is known any more, and no timer was set."""
        self.launch, self.state, self.autodown = RequestState.UNKNOWN, RecordedState.STARTING, ""

    def down(self, name: str) -> None:
        if self.refuses:
            raise BackendUnavailableError(self.refuses)
        self.on_the_way_down()
        self.taken_down.append(name)
        self.lose()

    def lose(self) -> None:
        """The machine and its disk are gone."""
        self.up = False
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def tree(self) -> Path:
        return self.folder / "results"


@pytest.fixture
def rented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rented:
    one = Rented(tmp_path / "instance")
    monkeypatch.setattr(client, "clusters", one.clusters)
    monkeypatch.setattr(client, "down", one.down)
    monkeypatch.setattr(client, "launching", lambda _: None)
    monkeypatch.setattr(client, "request_state", lambda _: Request(one.launch, "no capacity", "elsewhere"))
    monkeypatch.setattr(client, "tasks", lambda _: {"0001-0001": one.task} if one.task else {})
    monkeypatch.setattr(instances, "reach", lambda _: None)
    monkeypatch.setattr(instances, "RESULTS_THERE", str(one.tree))
    monkeypatch.setattr(instances, "last_words", lambda _: "no such package; the key is open sesame\n")
    for remembered in (instances._confirmed_at, instances._queried_at, instances.final_states):
        remembered.clear()
    return one


@pytest.fixture
def sent(results: Path, tmp_path: Path, rented: Rented) -> tuple[SweepDir, Job]:
    """Two runs that were sent to the instance, in one job."""
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 2, STEPS))
    return sweep, send(sweep, rented)


def send(sweep: SweepDir, rented: Rented, store: Path | None = None) -> Job:
    """Submit all runs as one job of the instance, which is sent its parcel."""
    job = helpers.submit(sweep)
    (entry,) = submissions(sweep.read_ledger())[-1:]
    rented.name = instances.cluster_name(sweep, job.token)
    ids = {job.token: f"skypilot:{rented.name}/{sweep.name}/{job.token}/request"}
    sweep.amend_ledger(replace(entry, backend="skypilot", job_ids=ids))
    code = CodeDir.of(sweep, CODE_ID)
    code.path.mkdir(parents=True, exist_ok=True)
    code.facts_path.write_text('{"project": null, "files": []}')
    if store is not None:
        keep_store(sweep, job.token, str(store))
    shutil.copytree(pack(sweep, job, code), rented.folder, dirs_exist_ok=True)
    return job


def train(rented: Rented, sweep: SweepDir, job: Job) -> subprocess.Popen[bytes]:
    return helpers.start_worker(SweepDir(rented.tree, sweep.name), job)


def end(rented: Rented, sweep: SweepDir, job: Job, code: int = 0) -> None:
    """The instance's word that the worker ended."""
    Handover(SweepDir(rented.tree, sweep.name), job.token).mark_ended(WorkerEnd(time.time(), code))


def exchange(sweep: SweepDir) -> cloud_instances.ExchangeReport:
    return cloud_instances.exchange(sweep, not_within=0)


def states(sweep: SweepDir) -> set[RunState]:
    return {status.state for status in poll_sweep(sweep).statuses.values()}


def has_all(sweep: SweepDir) -> bool:
    return all(sweep.run(run_id).result_path.exists() for run_id in sweep.run_ids())


def descriptions(sweep: SweepDir) -> list[Any]:
    return [sweep.run(run_id).description() for run_id in sweep.run_ids()]


def test_an_instance_goes_when_all_is_home_and_not_before(
    rented: Rented, sent: tuple[SweepDir, Job], tmp_path: Path
) -> None:
    sweep, job = sent
    safe: list[bool] = []
    there = Handover(SweepDir(rented.tree, sweep.name), job.token)
    rented.on_the_way_down = lambda: safe.append(has_all(sweep) and there.is_safe)
    assert helpers.finish(train(rented, sweep, job)) == 0
    assert exchange(sweep).settled == []  # its word is missing: it may have more to say
    assert states(sweep) == {RunState.DONE}
    assert rented.taken_down == []
    assert age_note(sweep) == ()
    os.utime(arrivals(sweep, job.token) / "fetched", (0, time.time() - 720))
    assert "12 min ago; `orchestrate status tiny --exchange`" in age_note(sweep)[0]
    end(rented, sweep, job)
    assert exchange(sweep).settled == [job.token]
    assert safe == [True]
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []
    check_finished(sweep, descriptions(sweep), tmp_path / "audit", STEPS)


def test_nothing_is_told_done_before_its_result_is_here(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs end in the middle of an exchange, after what there is was listed."""
    sweep, job = sent
    listed = Rsync.list

    def end_after(self: Rsync, *arguments: Any, **more: Any) -> Any:
        listing = listed(self, *arguments, **more)
        assert helpers.finish(train(rented, sweep, job)) == 0
        return listing

    with monkeypatch.context() as patched:
        patched.setattr(Rsync, "list", end_after)
        exchange(sweep)
    told = [one.run_id for one in poll_sweep(sweep).statuses.values() if one.state is RunState.DONE]
    assert all(sweep.run(run_id).result_path.exists() for run_id in told)
    exchange(sweep)
    assert states(sweep) == {RunState.DONE}
    assert has_all(sweep)


def test_runs_of_a_lost_instance_go_on_from_what_came_home(
    rented: Rented, results: Path, tmp_path: Path
) -> None:
    pace = tmp_path / "pace"
    pace.write_text("0.01 5")
    runs = helpers.count_runs(tmp_path / "audit", 2, STEPS, pace)
    sweep = helpers.make_sweep(results, runs)
    job = send(sweep, rented)
    worker = train(rented, sweep, job)
    helpers.wait_for(lambda: SweepDir(rented.tree, sweep.name).run(runs[0].run_id).checkpoints())
    exchange(sweep)
    assert RunState.RUNNING in states(sweep)
    worker.kill()
    worker.wait()
    rented.lose()
    assert RunState.PENDING not in states(sweep)  # nobody may have them before all is known
    assert exchange(sweep).settled == [job.token]
    assert sweep.run(runs[0].run_id).attempt(1).end() is not None
    assert states(sweep) == {RunState.INTERRUPTED, RunState.PENDING}
    pace.write_text("0.001")
    assert helpers.work(sweep) == 0
    for run in runs:
        assert as_tuples(sweep.run(run.run_id).history()) == expected_rows(run.seed, STEPS)
    assert len(sweep.run(runs[0].run_id).attempts()) == 2


def test_a_store_is_asked_until_it_answers_and_no_run_is_done_again(
    rented: Rented, results: Path, tmp_path: Path
) -> None:
    runs = helpers.count_runs(tmp_path / "audit", 2, STEPS)
    sweep, store = helpers.make_sweep(results, runs), tmp_path / "store"
    job = send(sweep, rented, store)
    assert helpers.finish(train(rented, sweep, job)) == 0
    away = tmp_path / "away"
    shutil.copytree(rented.tree, away)
    rented.lose()
    done = exchange(sweep)
    assert done.settled == []
    assert str(store) in done.problems[0]
    assert states(sweep) == {RunState.QUEUED}
    away.rename(store)
    assert exchange(sweep).settled == [job.token]
    assert states(sweep) == {RunState.DONE}
    check_finished(sweep, runs, tmp_path / "audit", STEPS)


def test_what_is_damaged_in_a_store_is_asked_for_again(rented: Rented, results: Path, tmp_path: Path) -> None:
    sweep, store = (
        helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1, STEPS)),
        tmp_path / "s",
    )
    job = send(sweep, rented, store)
    assert helpers.finish(train(rented, sweep, job)) == 0
    shutil.copytree(rented.tree, store)
    rented.lose()
    (run_id,) = sweep.run_ids()
    metrics = SweepDir(store, sweep.name).run(run_id).attempt(1).metrics
    whole = metrics.read_bytes()
    metrics.write_bytes(whole[:-1] + b" ")
    done = exchange(sweep)
    assert done.settled == []
    assert metrics.name in done.problems[0]
    assert states(sweep) == {RunState.QUEUED}
    metrics.write_bytes(whole)
    assert exchange(sweep).settled == [job.token]
    assert states(sweep) == {RunState.DONE}


def test_a_store_that_has_nothing_yet_keeps_no_job(rented: Rented, results: Path, tmp_path: Path) -> None:
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 1, STEPS))
    store = tmp_path / "store"
    store.mkdir()
    job = send(sweep, rented, store)
    rented.lose()
    assert exchange(sweep).settled == [job.token]
    assert states(sweep) == {RunState.PENDING}


def test_what_a_retry_put_aside_does_not_come_back(rented: Rented, sent: tuple[SweepDir, Job]) -> None:
    sweep, job = sent
    assert helpers.finish(train(rented, sweep, job)) == 0
    exchange(sweep)
    decisions.retry_runs(sweep, sweep.run_ids())
    exchange(sweep)
    assert not any(sweep.run(run_id).result_path.exists() for run_id in sweep.run_ids())


def test_a_job_that_never_began_says_why_and_is_not_repeated(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, job = sent
    monkeypatch.setenv("MY_API_KEY", "open sesame")
    rented.task = client.SkyTask(JobState.ENDED, "failed setup")
    assert exchange(sweep).settled == []  # it is not asked for at once
    instances._queried_at[f"skypilot:{rented.name}/{sweep.name}/{job.token}/request"] -= 1000
    assert exchange(sweep).settled == [job.token]
    output = sweep.worker_output(job.token).read_text()
    assert "no such package" in output
    assert "sesame" not in output
    (log,) = sweep.read_journals()
    assert log.revoked
    assert "failed setup" in log.events[-1].data["why"]


def test_what_somebody_stopped_is_told_and_left(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = sent
    stopped = Instance(rented.name, RecordedState.STOPPED, 0.0, None, "", "", False, rented.autodown)
    monkeypatch.setattr(client, "clusters", lambda names, refresh: {rented.name: stopped})
    done = exchange(sweep)
    assert "sky start" in done.problems[0]
    decisions.stop_workers(sweep)
    assert rented.taken_down == []
    assert states(sweep) == {RunState.QUEUED}


def test_an_instance_that_is_on_no_record_is_named(rented: Rented, sent: tuple[SweepDir, Job]) -> None:
    """The command that launched it died before it had written that down."""
    sweep, _ = sent
    (entry,) = submissions(sweep.read_ledger())
    sweep.amend_ledger(replace(entry, job_ids={}))
    assert cloud_instances.sent_jobs(sweep) == []
    (line,) = costs(sweep)
    assert line.startswith(f"instance {rented.name} is up")
    (told,) = json.loads(cli(sweep, "status", "--json").output)[0]["instances"]
    assert (told["name"], told["state"], told["warning"]) == (rented.name, "up", None)
    assert not {type(told[name]) for name in ("since", "dollars_per_hour", "dollars")} & {str}
    assert set(told) == {
        "backend", "name", "state", "since", "dollars_per_hour", "dollars",
        "region", "instance_type", "spot", "warning",
    }  # fmt: skip
    rented.lose()
    assert costs(sweep) == []


def test_the_cost_of_an_instance_is_a_number() -> None:
    since = time.time() - 1800
    one = InstanceCost("skypilot", Instance("i", RecordedState.UP, since, 3.0, "r", "t", True, ""), "")
    assert one.as_dict()["dollars"] == pytest.approx(1.5, rel=0.01)
    assert str(one).endswith(": 3.00 $/h, 1.50 $ so far")


def test_two_commands_at_once_do_not_meet(rented: Rented, sent: tuple[SweepDir, Job]) -> None:
    sweep, job = sent
    assert helpers.finish(train(rented, sweep, job)) == 0
    end(rented, sweep, job)
    with turn_to_exchange(sweep, job.token) as mine:
        assert mine
        assert exchange(sweep).settled == []
    assert exchange(sweep).settled == [job.token]


def cli(sweep: SweepDir, *arguments: str) -> Result:
    command, *rest = arguments
    return CliRunner().invoke(app, [command, sweep.name, *rest, "--results", str(sweep.results)])


def files(sweep: SweepDir) -> dict[str, tuple[int, bytes]]:
    """Every file and folder of the tree, by name, with its time and content."""
    return {
        str(path.relative_to(sweep.results)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sweep.results.rglob("*")
    }


def test_looking_changes_nothing(
    rented: Rented, sent: tuple[SweepDir, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished runs wait on the instance, and beside its parcel lies one that was never launched."""
    sweep, job = sent
    assert helpers.finish(train(rented, sweep, job)) == 0
    end(rented, sweep, job)
    unlaunched = parcel(sweep, "0002-0001")
    unlaunched.mkdir()
    (entry,) = submissions(sweep.read_ledger())
    twin = replace(job, token=unlaunched.name, run_ids=())
    sweep.add_to_ledger(replace(entry, jobs=(twin,), job_ids={}))
    assert sweep.take_token(unlaunched.name, Event(REVOKED, time.time())) is not None
    monkeypatch.chdir(tmp_path)
    before = files(sweep)

    assert cli(sweep, "status").exit_code == 0
    (told,) = json.loads(cli(sweep, "status", "--json").stdout)
    assert "nothing fetched from instances yet" in told["notes"][0]
    assert cli(sweep, "report", "--output", "elsewhere").exit_code == 0
    assert "has not begun" in str(cli(sweep, "logs", "seed=0").exception)
    FleetTree(sweep.results).present(sweep)
    assert files(sweep) == before
    made = json.loads(cli(sweep, "collect", "--json").stdout)["files"]
    names = {str(Path(path).relative_to(sweep.results)) for path in made}
    after = files(sweep)
    assert {name for name in after if after[name] != before.get(name)} <= {*names, sweep.name, *OWN}
    assert rented.taken_down == []

    said = cli(sweep, "status", "--exchange")
    assert said.exit_code == 0
    assert f"fetched 2 results from {rented.name}" in said.output
    assert f"instance {rented.name} ended" in said.output
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []
    assert states(sweep) == {RunState.DONE}


def test_an_orphan_is_told_by_looks_and_replaced_by_a_sweep(
    rented: Rented, sent: tuple[SweepDir, Job]
) -> None:
    sweep, job = sent
    rented.dies_in_mid_launch()
    said = cli(sweep, "status")
    assert said.exit_code == 0
    assert "WARNING: nothing stops it" in said.output
    assert f"orchestrate cancel {sweep.name}" in said.output
    assert (rented.taken_down, unpacked(sweep)) == ([], [job.token])
    assert states(sweep) == {RunState.QUEUED}
    assert cloud_instances.exchange(sweep, not_within=0, orphans=True).settled == [job.token]
    assert rented.taken_down == [rented.name]
    assert states(sweep) == {RunState.PENDING}


@pytest.mark.parametrize("state", [RecordedState.STARTING, RecordedState.UP, RecordedState.STOPPED])
def test_cancel_takes_an_orphan_down_however_far_it_came(
    rented: Rented, sent: tuple[SweepDir, Job], state: RecordedState
) -> None:
    sweep, _ = sent
    rented.dies_in_mid_launch()
    rented.state = state
    said = cli(sweep, "cancel")
    assert said.exit_code == 0, said.output
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []
    assert states(sweep) == {RunState.CANCELLED}


@pytest.mark.parametrize("by", ["status --exchange", "cancel", "sync"])
def test_an_instance_that_cannot_be_taken_down_stays_on_record_until_it_is(
    rented: Rented, sent: tuple[SweepDir, Job], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, job = sent
    monkeypatch.chdir(sweep.results.parent)
    rented.dies_in_mid_launch()
    rented.refuses = "the cloud does not answer"
    said = cli(sweep, "cancel")
    assert said.exit_code == BackendUnavailableError.exit_code
    assert "2 runs cancelled" in said.output
    assert f"{rented.name}: the cloud does not answer" in said.output
    assert "try again until it is gone" in said.output
    assert unpacked(sweep) == [job.token]
    assert "it could not be taken down yet" in cli(sweep, "status").output
    rented.refuses = ""
    if by == "sync":
        said = CliRunner().invoke(app, ["sync", "--sweep", sweep.name])
    else:
        said = cli(sweep, *by.split())
    assert said.exit_code == 0, said.output
    assert f"instance {rented.name} ended" in said.output
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []
    assert costs(sweep) == []


@pytest.mark.parametrize("state", [RecordedState.STARTING, RecordedState.UP])
@pytest.mark.parametrize("minutes", [5, 120])
def test_cancel_alone_takes_down_what_is_being_launched_however_long(
    rented: Rented, sent: tuple[SweepDir, Job], state: RecordedState, minutes: int
) -> None:
    """SkyPilot is still at it: its files may be on their way."""
    sweep, _ = sent
    rented.launch, rented.state, rented.autodown = RequestState.RUNNING, state, ""
    rented.since = time.time() - 60 * minutes
    assert cloud_instances.exchange(sweep, not_within=0, orphans=True).settled == []
    assert rented.taken_down == []
    assert ("WARNING: its launch takes very long" in costs(sweep)[0]) == (minutes > 60)
    assert cli(sweep, "cancel").exit_code == 0
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []


def test_an_instance_that_saves_its_checkpoints_is_given_its_time(
    rented: Rented, sent: tuple[SweepDir, Job]
) -> None:
    """Its job had begun there, and nothing of it was here, when its runs were cancelled."""
    sweep, job = sent
    assert cli(sweep, "cancel").exit_code == 0
    assert rented.taken_down == []
    said = cli(sweep, "status").output
    assert "Its runs were cancelled, and save checkpoints until" in said
    assert "WARNING" not in said
    (mark,) = sweep.path.glob(f"parcels/.{job.token}/condemned")
    os.utime(mark, (0, time.time() - 120))
    assert cli(sweep, "cancel").exit_code == 0  # again: that gives it no more time
    assert "it could not be taken down yet" in cli(sweep, "status").output


def test_cancel_finds_an_instance_whose_launch_is_on_no_record(
    rented: Rented, sent: tuple[SweepDir, Job]
) -> None:
    sweep, _ = sent
    (entry,) = submissions(sweep.read_ledger())
    sweep.amend_ledger(replace(entry, job_ids={}))
    rented.dies_in_mid_launch()
    assert cli(sweep, "cancel").exit_code == 0
    assert rented.taken_down == [rented.name]
    assert unpacked(sweep) == []


def test_one_whose_timer_a_person_lifted_is_no_orphan(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot's server ended since, and nothing came home yet; one that does not answer is kept, too."""
    sweep, _ = sent
    rented.launch, rented.autodown = RequestState.UNKNOWN, ""
    rented.task = client.SkyTask(JobState.RUNNING, "running")
    assert cloud_instances.exchange(sweep, not_within=0, orphans=True).problems == []

    def silent(_: str) -> None:
        raise BackendUnavailableError("it does not answer")

    monkeypatch.setattr(client, "tasks", silent)
    (problem,) = cloud_instances.exchange(sweep, not_within=0, orphans=True).problems
    assert "it does not answer" in problem
    assert rented.taken_down == []


def test_an_orphan_that_is_up_on_record_alone_is_one(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launch died when the record was written and nothing was set up: SkyPilot refuses to ask it."""

    def refused(_: str) -> None:
        raise RefusedError("it has been stopped or was not properly set up")

    sweep, job = sent
    rented.launch, rented.autodown = RequestState.UNKNOWN, ""
    monkeypatch.setattr(client, "tasks", refused)
    assert cloud_instances.exchange(sweep, not_within=0, orphans=True).settled == [job.token]
    assert rented.taken_down == [rented.name]


def test_a_launch_that_failed_at_the_end_leaves_nothing_up(
    rented: Rented, sent: tuple[SweepDir, Job]
) -> None:
    """As when its files could not be sent: the instance is up, and another would fare no better."""
    sweep, job = sent
    rented.launch, rented.autodown = RequestState.FAILED, ""
    assert cloud_instances.exchange(sweep, not_within=0, orphans=True).settled == [job.token]
    assert rented.taken_down == [rented.name]
    (log,) = sweep.read_journals()
    assert log.revoked
    assert log.events[-1].data["why"] == "no capacity"


HOUR = 3600.0


def priced(sweep: SweepDir, hours_ago: float, **cost: float) -> None:
    """The sweep's job was requested so long ago, at 1 $/h if not told otherwise, with an hour's hold."""
    (entry,) = submissions(sweep.read_ledger())
    told = SubmissionCost(**{"price_per_hour": 1.0, "hold": HOUR, "idle": 300.0, **cost})
    sweep.amend_ledger(replace(entry, time=time.time() - hours_ago * HOUR, cost=told))


def spent(sweep: SweepDir) -> float:
    return spending_of(sweep, poll_sweep(sweep), sweep.read_ledger()).spent


def test_an_instance_nobody_fetched_from_is_charged(rented: Rented, sent: tuple[SweepDir, Job]) -> None:
    sweep, job = sent
    priced(sweep, hours_ago=54)
    assert spent(sweep) == pytest.approx(54, rel=1e-3)
    rented.lose()
    assert exchange(sweep).settled == [job.token]
    assert spent(sweep) == pytest.approx(54, rel=1e-3)
    (bill,) = bills(sweep)
    assert (bill.seconds, bill.over) == (None, True)
    assert bill.dollars == pytest.approx(54, rel=1e-3)
    assert not worth_going_on(sweep, poll_sweep(sweep), 50.0)


def test_a_launch_that_failed_is_charged_until_then(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = sent
    priced(sweep, hours_ago=54)
    failed = Request(RequestState.FAILED, "no capacity", "elsewhere", time.time() - 53 * HOUR)
    monkeypatch.setattr(client, "request_state", lambda _: failed)
    rented.lose()
    exchange(sweep)
    assert spent(sweep) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(("planned", "listed", "charged"), [(1.0, 9.0, 9.0), (360.0, 0.0, 360.0)])
def test_one_price_is_told_and_charged(
    rented: Rented, sent: tuple[SweepDir, Job], planned: float, listed: float, charged: float
) -> None:
    """A launch that went to a dearer region; and a profile with a price for what SkyPilot's list has free."""
    sweep, _ = sent
    priced(sweep, hours_ago=1, price_per_hour=planned)
    rented.price, rented.region = listed, "AWS eu-moon-1"
    for fetched in (False, True):
        (told,) = json.loads(cli(sweep, "status", "--json").stdout)[0]["instances"]
        assert (told["dollars_per_hour"], told["dollars"]) == pytest.approx((charged, charged), rel=1e-3)
        if not fetched:
            exchange(sweep)
    assert spent(sweep) == pytest.approx(charged, rel=1e-3)
    tree = FleetTree(sweep.results)
    (shown,) = sight(sweep, tree.present(sweep), tree.history(sweep), tree.price, time.time()).jobs
    assert shown.cost.dollars == pytest.approx(charged, rel=1e-3)


@pytest.mark.parametrize(("price", "hours_ago"), [(1000.0, 0), (1.0, 2)])
def test_a_share_is_money_from_the_request_on(
    rented: Rented, results: Path, tmp_path: Path, price: float, hours_ago: float
) -> None:
    """An hour at the planned price is used up on a machine a thousand times as dear, or by a long launch."""
    sweep = helpers.make_sweep(results, helpers.count_runs(tmp_path / "audit", 2, STEPS))
    job = replace(send(sweep, rented), allowance=HOUR)
    (entry,) = submissions(sweep.read_ledger())
    sweep.amend_ledger(replace(entry, jobs=(job,)))
    priced(sweep, hours_ago)
    rented.price = price
    exchange(sweep)
    assert helpers.finish(train(rented, sweep, job)) != 0
    exchange(sweep)
    (log,) = sweep.read_journals()
    assert log.events[-1].exit.cause is Reason.BUDGET
    assert not has_all(sweep)


def test_results_are_waited_for_as_long_as_the_share_pays(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, job = sent
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    priced(sweep, hours_ago=0)
    (entry,) = submissions(sweep.read_ledger())
    for allowance, waits in ((None, math.inf), (9 * HOUR, HOUR), (900.0, 100.0)):
        instance = on_instance.Instance(sweep, entry, replace(job, allowance=allowance), HOUR, None, ())
        paid = instance._paid_until() - entry.time - (allowance or 0.0)
        assert paid == pytest.approx(waits, abs=1)


def test_detached_names_the_command_that_fetches_before_any_machine_is_listed(
    rented: Rented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot accepted the launch, and has no machine on record yet."""
    rented.up, rented.launch = False, RequestState.RUNNING
    monkeypatch.setattr(client, "launch", lambda *_, **__: "request")
    monkeypatch.chdir(tmp_path)
    Path("cloud.yaml").write_text("backend: skypilot\nprice_per_hour: 1\npython: python3\n")
    Path("grid.yaml").write_text("name: tiny\ntrainer: command\nbase: {command: [/bin/true]}\n")
    said = CliRunner().invoke(app, ["sweep", "grid.yaml", "--on", "cloud.yaml", "--detach"])
    assert said.exit_code == 0, said.output
    assert "orchestrate status tiny --watch --exchange" in said.output


@pytest.mark.parametrize("refused", [True, False])
def test_a_machine_taken_away_during_its_set_up_is_replaced(
    rented: Rented, sent: tuple[SweepDir, Job], monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """And one that the cloud refused is not: it would refuse another one."""
    sweep, job = sent
    failed = Request(RequestState.FAILED, "rsync: connection closed", "", time.time(), refused)
    monkeypatch.setattr(client, "request_state", lambda _: failed)
    rented.lose()
    assert exchange(sweep).settled == [job.token]
    seen = poll_sweep(sweep)
    assert states(sweep) == {RunState.PENDING}
    assert bool(why_left(sweep, seen).why) == refused

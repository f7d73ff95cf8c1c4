"""Claims and leases: one holder at a time, proof before a takeover, fencing by the clock."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from orchestrator.core.errors import DamagedFileError
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Run, RunState
from orchestrator.rundir import Claim, End, Holder, Lease, RunDir, attempt_ended
from orchestrator.rundir.attempts.claims import age_by_file_server
from tests.helpers import wait_for

RUN = Run("0" * 16, "command", {"command": ["true"]})


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / RUN.run_id)
    run.describe(RUN)
    return run


def gone(claim: Claim) -> Claim:
    """The same claim by a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = Holder.of(process.pid)
    process.communicate()
    return replace(claim, holder=holder)


def elsewhere(claim: Claim) -> Claim:
    return replace(claim, holder=replace(claim.holder, boot_id="f" * 32, host="other", machine="other"))


class Clock:
    """The clock that leases are measured by."""

    now = 1000.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "clock_gettime", lambda _: self.now)


def take_together(path: Path, barrier: Barrier, won: multiprocessing.Queue[int]) -> None:
    barrier.wait()
    attempt = RunDir(path).take(Claim.fresh("worker"))
    if attempt is not None:
        won.put(os.getpid())
    barrier.wait()  # alive until all have tried


def test_of_many_processes_one_gets_the_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for number in range(10):
        run = RunDir(tmp_path / f"{number:016x}")
        run.describe(RUN)
        barrier, won = context.Barrier(8), context.Queue()
        processes = [context.Process(target=take_together, args=(run.path, barrier, won)) for _ in range(8)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        winner = won.get(timeout=600)
        assert won.empty()
        assert [attempt.number for attempt in run.attempts()] == [1]
        claim = run.attempts()[0].claim()
        assert claim is not None
        assert claim.holder.pid == winner
        won.close()


def test_a_live_holder_keeps_its_run(run: RunDir) -> None:
    assert run.take(Claim.fresh("a")) is not None
    assert run.take(Claim.fresh("b")) is None
    assert run.blocked_by() is not None


def test_an_old_heartbeat_proves_nothing_here(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    os.utime(attempt.claim_path, (1, 1))
    assert run.take(Claim.fresh("b")) is None


def test_the_run_of_a_dead_holder_is_taken_at_once(run: RunDir) -> None:
    assert run.take(gone(Claim.fresh("a"))) is not None
    second = run.take(Claim.fresh("b"))
    assert second is not None
    assert second.number == 2


def test_a_zombie_is_dead(run: RunDir) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    holder = Holder.of(pid)
    assert holder.alive() is True
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: holder.alive() is False)  # not reaped yet
    os.waitpid(pid, 0)
    assert holder.alive() is False


def test_another_process_with_the_same_number_is_another(run: RunDir) -> None:
    mine = Holder.current()
    assert replace(mine, started=mine.started - 1).alive() is False
    assert not replace(mine, started=mine.started - 1).signal(signal.SIGKILL)


def test_an_end_record_is_proof(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    assert attempt.write_end(End(RunState.INTERRUPTED))
    assert not attempt.write_end(End(RunState.FAILED))
    assert attempt.end() == End(RunState.INTERRUPTED)
    assert run.take(Claim.fresh("b")) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"outcome": "int',
        b"[]",
        b"null",
        b"{}",
        b'{"outcome": "gone"}',
        b'{"outcome": "failed", "reason": "bad luck"}',
        b'{"outcome": "failed", "message": 3}',
        b'{"outcome": "failed", "frames": "many"}',
        b'{"outcome": "failed", "checkpointed": 36893488147419103232}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_end_record_is_an_error_that_names_the_file(run: RunDir, content: bytes) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    attempt.end_path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=re.escape(str(attempt.end_path))):
        attempt.end()


def test_unknown_fields_of_an_end_record_are_ignored(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    attempt.end_path.write_text('{"outcome": "failed", "message": "\\ud800", "time": NaN, "more": [1]}')
    assert attempt.end() == End(RunState.FAILED, message="?")


def test_elsewhere_only_two_leases_without_renewal_are(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_LEASE", "100")
    attempt = run.take(elsewhere(Claim.fresh("a")))
    assert attempt is not None
    monkeypatch.setenv("ORCHESTRATE_LEASE", "1")  # the holder's lease counts, not the reader's
    for age, ended in ((150, False), (199, False), (202, True), (-10_000, False)):
        moment = time.time() - age
        os.utime(attempt.claim_path, (moment, moment))
        assert attempt_ended(attempt) is ended, age


def test_ages_are_by_the_file_systems_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own clock may be hours off."""
    path = tmp_path / "claim"
    path.touch()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= age_by_file_server(path) < 5
    assert os.listdir(tmp_path) == ["claim"]


def test_no_attempt_begins_for_a_finished_run(run: RunDir) -> None:
    attempt = run.take(gone(Claim.fresh("a")))
    assert attempt is not None
    assert run.publish({}, [])
    assert run.take(Claim.fresh("b")) is None


def test_a_lease_is_lost_after_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    path = tmp_path / "claim"
    path.touch()
    lease = Lease(path, 100)
    clock.now += 49
    assert lease.renew()
    clock.now += 49
    assert not lease.lost
    clock.now += 2
    assert lease.lost
    before = path.stat().st_mtime_ns
    assert not lease.renew(), "a lost lease never comes back"
    assert path.stat().st_mtime_ns == before


def test_a_lease_counts_from_before_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    since = Lease.clock()
    clock.now += 51  # stopped between claiming and knowing it
    assert Lease(tmp_path / "claim", 100, since).lost


def test_a_claim_without_a_lease_has_the_usual_one(run: RunDir) -> None:
    claim = plain(Claim.fresh("a"))
    del claim["lease"], claim["code_id"]
    assert (parse(Claim, claim).lease, parse(Claim, claim).code_id) == (300.0, None)


def test_whoever_lost_its_claim_while_it_read_publishes_nothing(run: RunDir) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    attempt.metrics.write_text("x")

    def guard() -> None:
        assert [path.name for path in run.path.glob(".result.json.*")], "all is written but the name"
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run.publish({}, [(attempt.metrics, True)], guard)
    assert sorted(path.name for path in run.path.iterdir()) == ["attempts", "run.json"]


def test_a_lease_that_cannot_be_renewed_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    lease = Lease(tmp_path / "gone", 100)
    clock.now += 40
    assert lease.renew()
    clock.now += 11
    assert not lease.renew()


def test_holders_fence_themselves_before_anyone_may_take_over() -> None:
    """Half a lease to fence, two to take over: renewals of a tenth leave four chances."""
    lease = Lease(Path("unused"), 100)
    assert lease.interval * 4 < 100 / 2 < 2 * 100


def test_survivors_of_a_dead_leader_are_ended(run: RunDir, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    text = f"sleep 300 & echo $! > {note}; read line"
    leader = subprocess.Popen(["/bin/sh", "-c", text], stdin=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: note.exists() and note.read_text().endswith("\n"))
    child = int(note.read_text())
    claim = replace(Claim.fresh("a"), holder=Holder.of(leader.pid))
    assert run.take(claim) is not None
    assert claim.holder.end_survivors()
    assert Holder.of(child).alive(), "nothing is ended while the leader lives"
    leader.kill()
    leader.communicate()
    assert claim.holder.survivors() == [child]
    assert run.take(Claim.fresh("b")) is not None
    assert claim.holder.survivors() == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nonce": "x"}', "null", '{"nonce": 1, "holder": 3}'])
def test_a_damaged_claim_is_named(run: RunDir, text: str) -> None:
    attempt = run.take(Claim.fresh("a"))
    assert attempt is not None
    attempt.claim_path.write_text(text)
    with pytest.raises(DamagedFileError, match="claim"):
        run.take(Claim.fresh("b"))


def test_a_claim_reads_back(run: RunDir) -> None:
    fresh = Claim.fresh("worker")
    claim = replace(fresh, holder=replace(fresh.holder, job_id="slurm:12.0"))
    attempt = run.take(claim)
    assert attempt is not None
    assert attempt.claim() == claim

"""What a look from afar says: taken from journals as `status` takes it, believed only in its shape."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.config.locations import parse_place
from orchestrator.control.poll import poll_sweep as look_here
from orchestrator.core.errors import UnreachableError
from orchestrator.core.records import plain
from orchestrator.core.types import RunState
from orchestrator.rundir import Event, Holder, SweepDir
from orchestrator.rundir.records.journal import CLAIMED, ENDED, EXITED, PROGRESS, STARTED
from orchestrator.ui.cli.watch.monitor import screen
from orchestrator.ui.monitor import ConnectionState, MonitorSnapshot, wording
from orchestrator.ui.monitor.connection import tensorboard_commands
from orchestrator.ui.monitor.probe import TensorBoard, parse_gpus, parse_quota
from orchestrator.ui.monitor.remote_program import PROBE
from orchestrator.ui.monitor.snapshot import (
    DamagedSnapshotError,
    Disk,
    MonitoredSweep,
    Quota,
    TensorBoardState,
    parse_snapshot,
)
from orchestrator.ui.monitor.tree import WatchedTree
from orchestrator.ui.monitor.wording import Level
from tests.helpers import count_runs, enter, make_sweep, running, submit, wait_for, work

NOW = 1_700_000_000.0
ELSEWHERE = Holder("node7", "other boot", "pid:[1]", 4711, 99)


@pytest.fixture
def sweep(results: Path, tmp_path: Path) -> SweepDir:
    return make_sweep(results, count_runs(tmp_path / "audit", 6, steps=9, seconds=0.0))


def journal(sweep: SweepDir, token: str, *events: Event, holder: Holder = ELSEWHERE) -> Path:
    path = sweep.path / "journals" / f"{token}.jsonl"
    started = Event(STARTED, NOW - 100, data={"holder": plain(holder), "slots": 1})
    path.write_bytes(b"".join(event.to_line() for event in (started, *events)))
    return path


def states(tree: WatchedTree, now: float = NOW) -> dict[str, str]:
    return {row.run_id: row.state.value for row in tree.look(now, 50)[1]}


def counts(sweep: MonitoredSweep) -> dict[str, int]:
    return {state.value: number for state, number in sweep.counts.items()}


def told(run_id: str, frames: int, at: float = NOW - 5) -> Event:
    return Event(
        PROGRESS, at, run_id, 1, {"frames": frames, "total": 100, "end_to_end_fps": 10.0, "return": 0.5}
    )


def test_the_states_are_those_that_status_shows(sweep: SweepDir) -> None:
    assert work(sweep, slots=2) == 0
    tree = WatchedTree(sweep.results)
    seen = look_here(sweep)
    sweeps, rows = tree.look(time.time(), 50)
    assert counts(sweeps[0]) == {"done": 6}
    assert {row.run_id: (row.state, row.frames, row.value) for row in rows} == {
        run_id: (status.state, status.frames, status.value) for run_id, status in seen.statuses.items()
    }
    newest = {row.run_id: row.checkpoint_frames for row in rows}
    assert newest == {run_id: sweep.run(run_id).checkpoints()[0].frames for run_id in sweep.run_ids()}


def test_a_journal_is_read_on_where_it_grew(sweep: SweepDir) -> None:
    one, two, *_ = sweep.run_ids()
    tree = WatchedTree(sweep.results)
    path = journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1), told(one, 10))
    assert states(tree) == {one: "running"}
    whole = told(one, 20).to_line()
    with open(path, "ab") as file:
        file.write(whole[:20])  # under way
        file.flush()
        assert tree.look(NOW, 50)[1][0].frames == 10
        file.write(whole[20:] + Event(CLAIMED, NOW - 2, two, 1).to_line())
    rows = tree.look(NOW, 50)[1]
    assert {row.run_id: row.frames for row in rows} == {one: 20, two: None}
    assert tree.look(NOW, 50)[0][0].notes == ()


def test_journals_that_were_folded_tell_the_same(sweep: SweepDir) -> None:
    one, *_ = sweep.run_ids()
    end = Event(ENDED, NOW - 20, one, 1, {"outcome": "failed", "reason": "code error", "message": "boom"})
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1), end, Event(EXITED, NOW - 10))
    tree = WatchedTree(sweep.results)
    before = tree.look(NOW, 50)
    sweep.compact_journals(sweep.read_journals())
    assert tree.look(NOW, 50) == before == WatchedTree(sweep.results).look(NOW, 50)
    assert before[1][0].why == "code error: boom"


def test_compaction_undoes_no_decision_and_counts_no_damage_twice(sweep: SweepDir) -> None:
    one, two, *_ = sweep.run_ids()
    for token, run_id in (("0001-0001", one), ("0001-0002", two)):
        end = Event(ENDED, NOW - 20, run_id, 1, {"outcome": "failed"})
        journal(sweep, token, Event(CLAIMED, NOW - 50, run_id, 1), end, Event(EXITED, NOW - 10))
    tree = WatchedTree(sweep.results)
    enter(sweep, "retry", {"runs": {one: 1, two: 1}})
    (sweep.path / "ledger" / "0009.json").write_text("{")
    before = tree.look(NOW, 50)[0]
    assert counts(before[0]) == {"pending": 6}
    assert "0009.json: is not valid JSON" in str(before[0].notes)
    for log in sweep.read_journals():
        sweep.compact_journals([log])
        assert tree.look(NOW, 50)[0] == before


def test_silence_is_stalled_and_a_worker_that_left_is_proof(sweep: SweepDir) -> None:
    one, two, three, *_ = sweep.run_ids()
    tree = WatchedTree(sweep.results)
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1), told(one, 10))
    journal(sweep, "0001-0002", Event(CLAIMED, NOW - 50, two, 1), Event(EXITED, NOW - 10))
    gone = subprocess.Popen(["sleep", "60"])
    holder = Holder.of(gone.pid)
    journal(sweep, "0001-0003", Event(CLAIMED, NOW - 50, three, 1), holder=holder)
    assert states(tree) == {one: "running", two: "interrupted", three: "running"}
    gone.kill()
    gone.wait()
    assert states(tree, NOW + 400) == {one: "stalled", two: "interrupted", three: "interrupted"}


def test_what_people_decided_counts(sweep: SweepDir) -> None:
    one, two, *_ = sweep.run_ids()
    failed = Event(ENDED, NOW - 20, one, 1, {"outcome": "failed"})
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1), failed, Event(CLAIMED, NOW - 9, two, 1))
    tree = WatchedTree(sweep.results)
    assert counts(tree.look(NOW, 50)[0][0]) == {"failed": 1, "running": 1, "pending": 4}
    enter(sweep, "retry", {"runs": {one: 1}})
    enter(sweep, "cancel", {"runs": {two: 1}})
    assert counts(tree.look(NOW, 50)[0][0]) == {"pending": 5, "cancelled": 1}
    submit(sweep)
    enter(sweep, "found", {"runs": {two: {"attempt": 1, "frames": 9}}})
    assert counts(tree.look(NOW, 50)[0][0]) == {"queued": 5, "done": 1}
    enter(sweep, "lost", {"runs": {two: 1}})
    enter(sweep, "retry", {"runs": {two: 1}})
    enter(sweep, "ended", {"runs": {one: {"attempt": 2, "message": "node lost"}}})
    assert counts(tree.look(NOW, 50)[0][0]) == {"pending": 1, "queued": 4, "failed": 1}
    assert tree.look(NOW, 50)[0][0].notes == ()


def test_few_rows_are_those_that_matter_and_failures_are_never_lost(sweep: SweepDir) -> None:
    ids = sweep.run_ids()
    events = [Event(CLAIMED, NOW - 50, run_id, 1) for run_id in ids]
    end = Event(ENDED, NOW - 40, ids[0], 1, {"outcome": "failed", "message": "boom"})
    journal(sweep, "0001-0001", *events, end, *(told(run_id, 10) for run_id in ids[1:]))
    rows = WatchedTree(sweep.results).look(NOW, 2)[1]
    assert [row.state.value for row in rows] == ["running", "running", "failed"]


def test_damage_is_counted_and_harms_nothing(sweep: SweepDir) -> None:
    one, *_ = sweep.run_ids()
    path = journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1))
    hostile = {"kind": "claimed", "time": NOW, "run": "../../../etc", "attempt": 1}
    with open(path, "ab") as file:
        file.write(b"\xff\xfe\n[]\n{}\n" + json.dumps(hostile).encode() + b"\n")
    (sweep.path / "ledger" / "0009.json").write_text("nothing")
    sweeps, rows = WatchedTree(sweep.results).look(NOW, 50)
    assert [row.run_id for row in rows] == [one]
    (note,) = sweeps[0].notes
    assert note.endswith("3 lines of journal 0001-0001.jsonl")


def test_a_sweep_that_cannot_be_read_takes_no_other_away(sweep: SweepDir) -> None:
    other = make_sweep(sweep.results, count_runs(sweep.results, 1), name="other")
    journal(other, "0001-0001", Event(CLAIMED, NOW - 50, other.run_ids()[0], 1))
    (sweep.path / "index.tsv").write_bytes(b"nothing")
    sweeps, rows = WatchedTree(sweep.results).look(NOW, 50)
    assert [row.sweep for row in rows] == ["other"]
    assert [bool(one.notes) for one in sweeps] == [False, True]


def test_a_run_s_folder_that_cannot_be_read_takes_no_other_run_away(sweep: SweepDir) -> None:
    assert work(sweep, slots=2) == 0
    one, two, three, *_ = sweep.run_ids()
    (sweep.run(three).attempt(1).path / "events.out.tfevents.1").touch()
    (sweep.run(two).attempt(1).path / "events.out.tfevents.1").touch()
    sweep.run(one).path.chmod(0)
    sweep.run(two).attempt(1).path.chmod(0o400)  # its names can be read, and nothing more
    code = (
        "from pathlib import Path; from orchestrator.ui.monitor.tree import WatchedTree; import json, sys;"
        "tree = WatchedTree(Path(sys.argv[1])); _, rows = tree.look(0.0, 50);"
        "print(json.dumps([tree.has_events, {row.run_id: row.checkpoint_frames for row in rows}]))"
    )
    as_any_user = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*as_any_user, sys.executable, "-c", code, str(sweep.results)]
    try:
        has_events, seen = json.loads(
            subprocess.run(command, capture_output=True, check=True, text=True).stdout
        )
    finally:
        sweep.run(one).path.chmod(0o700)
        sweep.run(two).attempt(1).path.chmod(0o700)
    assert has_events
    assert {run_id for run_id, checkpoint in seen.items() if not checkpoint} == {one, two}
    assert len(seen) == 6


def test_events_for_tensorboard_are_found_wherever_they_are(sweep: SweepDir) -> None:
    last = sweep.run_ids()[-1]
    journal(sweep, "0001-0001", *(Event(CLAIMED, NOW - 50, run_id, 1) for run_id in sweep.run_ids()))
    tree = WatchedTree(sweep.results)
    tree.look(NOW, 1)
    assert not tree.has_events
    folder = sweep.run(last).attempt(1).path
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host").touch()
    tree.look(NOW, 1)
    assert tree.has_events


@contextmanager
def probe(results: Path, **configuration: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The program as a monitor starts it."""
    argv = [sys.executable, "-m", PROBE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        told = {"tree": str(results), "rows": 5, "silence": 60, "tensorboard": []}
        process.stdin.write(json.dumps(told | configuration).encode() + b"\n")
        process.stdin.flush()
        yield process
        process.kill()


def ask(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_probe_answers_until_nobody_asks(sweep: SweepDir) -> None:
    with probe(sweep.results) as process:
        snapshot = parse_snapshot(ask(process))
        assert [one.name for one in snapshot.sweeps] == [sweep.name]
        assert snapshot.machine.cpu is not None
        assert 0 <= snapshot.machine.cpu <= 100
        assert snapshot.machine.disk.total > snapshot.machine.disk.free > 0
        assert parse_snapshot(ask(process)).time > snapshot.time
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(120) == 0


def test_a_probe_that_nobody_asks_ends_with_all_it_started(sweep: SweepDir, tmp_path: Path) -> None:
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, sweep.run_ids()[0], 1))
    (sweep.run(sweep.run_ids()[0]).attempt(1).path).mkdir(parents=True)
    (sweep.run(sweep.run_ids()[0]).attempt(1).path / "events.out.tfevents.1").touch()
    started = tmp_path / "pid"
    board = ["sh", "-c", f"sleep 100 & echo $! > {started}; wait"]
    with probe(sweep.results, silence=3, tensorboard=[["/no/such/python"], board]) as process:
        assert ask(process)["board"]["state"] == "starting"
        pid = int(wait_for(lambda: started.exists() and started.read_text().strip(), what="its start"))
        assert running(pid)
        assert process.wait(120) == 0
        wait_for(lambda: not running(pid), what="the end of what the probe started")


def test_what_a_killed_probe_started_ends_too(sweep: SweepDir, tmp_path: Path) -> None:
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, sweep.run_ids()[0], 1))
    (sweep.run(sweep.run_ids()[0]).attempt(1).path).mkdir(parents=True)
    (sweep.run(sweep.run_ids()[0]).attempt(1).path / "events.out.tfevents.1").touch()
    started = tmp_path / "pid"
    board = ["sh", "-c", f"echo $$ > {started}; exec sleep 100"]
    with probe(sweep.results, tensorboard=[board]) as process:
        ask(process)
        pid = int(wait_for(lambda: started.exists() and started.read_text().strip(), what="its start"))
        process.kill()
        wait_for(lambda: not running(pid), what="the end of what the probe started")


def test_a_tensorboard_of_the_users_own_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notes = tmp_path / ".tensorboard-info"
    notes.mkdir()
    server = (
        "import socket, sys; server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", server, "tensorboard"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        note = {"pid": process.pid, "port": port, "logdir": "/the/tree"}
        (notes / "pid-1.info").write_text(json.dumps(note))
        (notes / "pid-2.info").write_text("{")
        (notes / "pid-3.info").write_text(json.dumps({**note, "pid": os.getpid()}))  # a number used again
        assert TensorBoard("/other/tree", []).look(False) == TensorBoardState("waiting")
        board = TensorBoard("/the/tree", [["false"]])
        assert board.look(True) == TensorBoardState("serving", port)
        board.close()
        assert running(process.pid)
        process.kill()
    assert TensorBoard("/the/tree", []).look(False) == TensorBoardState("waiting")


def test_a_tensorboard_that_cannot_start_says_why(tmp_path: Path) -> None:
    absent = TensorBoard(str(tmp_path), [["/no/such/python"], [sys.executable, "-m", "no_such_module"]])
    assert wait_for(lambda: absent.look(True).state == "absent", what="the end of the last try")
    broken = TensorBoard(str(tmp_path), [["sh", "-c", "echo first; echo out of luck; exit 3"]])
    wait_for(lambda: broken.look(True).message == "out of luck", what="the reason")


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("", [["{tree}/../.venv/bin/python"], ["python3"]]),
        (
            "python: [apptainer, exec, x.sif, python]\n",
            [["apptainer", "exec", "x.sif", "python"], ["{tree}/../.venv/bin/python"]],
        ),
    ],
)
def test_tensorboard_is_started_with_the_profile_s_python(
    own_world: Path, profile: str, expected: list[list[str]]
) -> None:
    folder = own_world / ".config" / "orchestrate" / "profiles"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("ssh: lab\n" + profile)
    place = parse_place("lab" if profile else "any-host")
    assert tensorboard_commands(place) == [[*words, "-m", "tensorboard.main"] for words in expected]


def test_a_profile_s_setup_comes_before_tensorboard(own_world: Path, tmp_path: Path) -> None:
    folder = own_world / ".config" / "orchestrate" / "profiles"
    folder.mkdir(parents=True)
    said, program = tmp_path / "said", tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$WORD" "$@" > {said}\n')
    program.chmod(0o755)
    (folder / "lab.yaml").write_text(f"ssh: lab\nsetup: ['export WORD=x']\npython: [{program}]\n")
    command, *_ = tensorboard_commands(parse_place("lab"))
    subprocess.run([*command, "--logdir", "a b"], check=True)
    assert said.read_text() == "x -m tensorboard.main --logdir a b\n"


# What a driver and file systems say, in their own words.


def test_gpus_as_the_driver_lists_them() -> None:
    one, two = parse_gpus("0, NVIDIA H200, 72, 34816, 143771\n1, Tesla T4, [N/A], [N/A], [N/A]\nFailed, x\n")
    assert (one.index, one.name, one.busy, one.memory) == ("0", "NVIDIA H200", 72.0, 34816.0 * 1024**2)
    assert (two.name, two.busy, two.memory_total) == ("Tesla T4", None, None)
    assert wording.gpu_line(one) == " 72%  memory 34 of 140 GiB  NVIDIA H200"
    assert parse_gpus("No devices were found\n") == ()


def test_quotas_as_file_systems_tell_them() -> None:
    nfs = (
        "Disk quotas for user me (uid 1000): \n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "nas:/home       9000000* 8000000 10000000 1700000000   1200       0       0       0\n"
        "/dev/sdb1           100       0       0       0      3       0       0       0\n"
    )
    assert parse_quota(nfs, ["nas:/home", "/home"]) == Quota(9000000 * 1024, 8000000 * 1024, 1200, None)
    assert parse_quota(nfs, ["/dev/sdb1", "/"]) == Quota(100 * 1024, None, 3, None)
    assert parse_quota(nfs, ["/dev/sdc1", "/x"]) is None
    lustre = "     /scratch 85899345  104857600 115343360       -  912345  1000000 1100000       -\n"
    assert parse_quota(lustre, ["10.0.0.1@tcp:/fs", "/scratch"]) == Quota(
        85899345 * 1024, 104857600 * 1024, 912345, 1000000
    )
    assert parse_quota("", ["/"]) is None
    assert parse_quota("/scratch 1 2", ["/scratch"]) is None


def test_a_disk_that_is_about_to_be_full_is_seen() -> None:
    tib = 1024.0**4
    disk = Disk(4 * tib, 2 * tib, 1000, 900, "/work", None)
    assert wording.disk_line(disk) == ("2.0 of 4.0 TiB used", Level.FINE)
    close = replace(disk, quota=Quota(0.95 * tib, tib, 5, None))
    assert wording.disk_line(close) == ("2.0 of 4.0 TiB used  quota 0.9 of 1.0 TiB", Level.CLOSE)
    assert wording.disk_line(replace(disk, files_free=10.0)) == (
        "2.0 of 4.0 TiB used  99% of its files",
        Level.BAD,
    )
    assert wording.disk_line(Disk(0, 0, 0, 0, "", None))[1] is Level.FINE


@pytest.mark.parametrize(
    ("board", "url", "expected"),
    [
        (TensorBoardState("waiting"), None, "waits for the first run that logs to it"),
        (TensorBoardState("starting"), None, "starts"),
        (TensorBoardState("serving", 6006, True), "http://127.0.0.1:1/", "http://127.0.0.1:1/"),
        (
            TensorBoardState("absent"),
            None,
            "not installed there; the fix: python3 -m pip install tensorboard",
        ),
        (TensorBoardState("failed", message="port in use"), None, "ended there: port in use"),
    ],
)
def test_tensorboard_in_words(board: TensorBoardState, url: str | None, expected: str) -> None:
    assert wording.board_line(board, url)[0] == expected


def test_times_in_their_largest_unit() -> None:
    assert [wording.age(seconds) for seconds in (-3, 40, 130, 7300, 200_000)] == [
        "0 s",
        "40 s",
        "2 min",
        "2 h",
        "2 d",
    ]


# What comes from elsewhere is not believed.


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = tmp_path_factory.mktemp("answer") / "results"
    sweep = make_sweep(results, count_runs(results, 2))
    one, *_ = sweep.run_ids()
    journal(sweep, "0001-0001", Event(CLAIMED, NOW - 50, one, 1), told(one, 10))
    attempt = sweep.run(one).attempt(1)
    attempt.checkpoints.mkdir(parents=True)
    attempt.checkpoint_name(9, "0" * 16).write_text("x")
    with probe(results) as process:
        return ask(process)


def test_runs_on_other_machines_are_said_to_be_there(answer: Any) -> None:
    snapshot = parse_snapshot(answer)
    (run,) = snapshot.runs
    assert (run.state, run.host, run.frames, run.eta) == (RunState.STALLED, "node7", 10, None)
    assert wording.elsewhere(snapshot) is None
    busy = replace(snapshot, runs=(replace(run, state=RunState.RUNNING, eta=9.0),))
    assert wording.elsewhere(busy) == "its own figures: runs are on node7"
    assert wording.elsewhere(replace(busy, host="node7")) is None
    assert wording.frames(run) == "10% of 100"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_whatever_comes_is_refused_or_can_be_shown(answer: Any, data: st.DataObject) -> None:
    changed = copy.deepcopy(answer)
    for path in data.draw(st.lists(st.sampled_from([*leaves(answer)][1:]), min_size=1, max_size=3)):
        target: Any = changed
        try:
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = data.draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue  # what was there was replaced before
    try:
        snapshot = parse_snapshot(changed)
    except DamagedSnapshotError:
        return
    assert all(line.isprintable() for line in shown(snapshot))


def shown(snapshot: MonitorSnapshot) -> list[str]:
    lines = [
        snapshot.host,
        snapshot.tree,
        wording.machine_line(snapshot.machine),
        wording.disk_line(snapshot.machine.disk)[0],
    ]
    lines += [wording.sweep_line(sweep) + sweep.name for sweep in snapshot.sweeps]
    lines += [
        run.run_id
        + run.label
        + run.why
        + run.host
        + wording.frames(run)
        + wording.checkpoint(run, snapshot.time)
        for run in snapshot.runs
    ]
    lines += [wording.gpu_line(gpu) for gpu in snapshot.machine.gpus]
    lines += [wording.board_line(snapshot.board, None)[0]] if snapshot.board else []
    return lines


def test_states_are_shown_in_the_order_of_a_run_s_life(answer: Any) -> None:
    counts = {"cancelled": 1, "done": 2, "failed": 3, "running": 4}  # as JSON sorts them
    (sweep,) = answer["sweeps"]
    changed = {**answer, "sweeps": [{**sweep, "counts": counts, "eta": None, "end_to_end_fps": 0.0}]}
    (read,) = parse_snapshot(changed).sweeps
    assert list(read.counts) == [state for state in RunState if state.value in counts]
    assert wording.sweep_line(read).startswith("2/10 done  4 running  3 failed  1 cancelled")


def test_no_character_reaches_a_terminal_that_it_would_obey(answer: Any) -> None:
    changed = copy.deepcopy(answer)
    changed["host"] = "\x1b]0;title\x07host\u202e"
    changed["runs"][0]["label"] = "\x1b[2Jvalue other\n=x"
    changed["runs"][0]["why"] = "\x9b31mred"
    snapshot = parse_snapshot(changed)
    assert all(line.isprintable() for line in shown(snapshot))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
@pytest.mark.parametrize("problem", [None, UnreachableError("cluster: cannot be reached (" + 90 * "x" + ")")])
def test_a_screen_is_never_larger_than_the_terminal(
    answer: Any, width: int, height: int, problem: UnreachableError | None
) -> None:
    snapshot = parse_snapshot(answer)
    (run,) = snapshot.runs
    failed = replace(run, state=RunState.FAILED, why="code error: " + 200 * "y")
    many = (*(replace(run, label="lr=0.001 " * 20) for _ in range(60)), failed)
    snapshot = replace(
        snapshot, runs=many, sweeps=snapshot.sweeps * 9, tree="/long" * 40, board=TensorBoardState("absent")
    )
    console = Console(width=width, file=io.StringIO())
    console.print(screen("cluster", ConnectionState(snapshot, NOW, problem), height, width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "… and 5 sweeps more" in lines
    assert [line for line in lines if line.startswith("failed")]
    assert any("unknown since" in line for line in lines) is (problem is not None)


def test_with_a_port_a_board_serves(answer: Any) -> None:
    for port in (None, 0, 70000, "80", True):
        with pytest.raises(DamagedSnapshotError):
            parse_snapshot({**answer, "board": {"state": "serving", "port": port}})

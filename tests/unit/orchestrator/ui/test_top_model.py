"""What `orchestrate top` makes of surveys, ledgers and journals; no screen."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.control import fleet
from orchestrator.control.poll import poll_sweep
from orchestrator.control.remote.status_cache import note, overlaid
from orchestrator.core import records
from orchestrator.core.errors import BackendUnavailableError, OrchestrateError
from orchestrator.core.formatting import moment, printable, sparkline
from orchestrator.core.types import JobState, JobStatus, RunState
from orchestrator.rundir import Event, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.journal import CLAIMED, EXITED, STARTED
from orchestrator.rundir.records.ledger_entries import AssignedEntry, TreePlace
from orchestrator.status import ownership
from orchestrator.status.cost import job_facts
from orchestrator.status.survey import Survey
from orchestrator.ui.top.columns import FAILURES, JOBS, RUNS, SWEEPS, VIEWS
from orchestrator.ui.top.dialogs import readable
from orchestrator.ui.top.fleet_access import FleetTree, next_state
from orchestrator.ui.top.model import FleetState, History, sight
from orchestrator.ui.top.refresher import Refresher
from orchestrator.ui.top.views import Choice, about, chosen, runs_in
from orchestrator.ui.top.wording import nothing, question, totals, trouble
from tests.fleets import HOLDER, NOON, Stage, StagedFleet, claimed, ended, progress, run_id
from tests.helpers import command_run, make_sweep, submit, wait_for

pytestmark = pytest.mark.usefixtures("utc")

RUNNING = JobStatus(JobState.RUNNING, "RUNNING", place="node1")
NO_ANSWER = JobStatus(JobState.UNKNOWN, "squeue: Unable to contact slurm controller")


def looked(fleet: StagedFleet, before: FleetState = FleetState(), now: float = NOON) -> FleetState:
    fleet.allow()
    fleet.now = now
    return next_state(fleet, before, now)


@pytest.fixture
def stage() -> Stage:
    """Four runs in two jobs: one of them trains, after another run of its has failed; the other waits."""
    stage = Stage("speed", [{"algorithm": name, "seed": 0} for name in ("mappo", "ippo", "iql", "qmix")])
    stage.submit("0001-0001.0", [0, 1], RUNNING, slots=2)
    stage.submit("0002-0001.0", [2, 3], JobStatus(JobState.QUEUED, "PENDING (Priority)"), on="cpu")
    stage.work(
        "0001-0001.0",
        NOON - 3600,
        claimed(0, NOON - 3590),
        claimed(1, NOON - 3590),
        *(
            progress(
                0, NOON - 100 + at, frames=at, total=200, end_to_end_fps=float(at), iteration_fps=float(at)
            )
            for at in range(100)
        ),
        ended(1, NOON - 1800, "failed", reason="code error", message="ValueError: no"),
    )
    return stage


def test_rows_hold_what_was_written_and_what_backends_say(stage: Stage) -> None:
    picture = looked(StagedFleet(stage, prices={"gpu": 2.0}))
    assert picture.counts == {RunState.QUEUED: 2, RunState.RUNNING: 1, RunState.FAILED: 1}
    assert picture.jobs == {JobState.QUEUED: 1, JobState.RUNNING: 1}
    assert picture.throughput == (99.0,)
    (sight,) = picture.sights
    runs = {row.run_id: row for row in sight.runs}
    assert runs[run_id(0)].label == "mappo"
    assert runs[run_id(0)].speeds == tuple(map(float, range(70, 100)))
    assert runs[run_id(1)].status.why == "code error: ValueError: no"
    assert runs[run_id(1)].speeds == ()
    working, waiting = sight.jobs
    assert (working.target, working.state, working.said) == ("gpu", JobState.RUNNING, "RUNNING node1")
    assert (working.seconds, working.slots, working.done) == (3600, 2, 0)
    assert (str(working.cost), str(waiting.cost), str(picture.cost)) == ("$2.00", "–", "$2.00")
    assert (waiting.state, waiting.said, waiting.seconds) == (JobState.QUEUED, "PENDING (Priority)", 0)


def test_a_job_that_left_costs_what_it_took(stage: Stage) -> None:
    stage.work("0001-0001.0", NOON - 3600, claimed(0, NOON - 3590), left=NOON - 1800)
    stage.jobs["0001-0001.0"] = JobStatus(JobState.ENDED, "COMPLETED")
    for minutes in (0, 60):
        picture = looked(StagedFleet(stage, prices={"gpu": 2.0}), now=NOON + 60 * minutes)
        assert str(picture.cost) == "$1.00"


def test_what_does_not_answer_is_unknown_since_then_and_no_failure(stage: Stage) -> None:
    fleet = StagedFleet(stage)
    picture = looked(fleet)
    assert trouble(picture, NOON) == ""
    stage.jobs = dict.fromkeys(stage.jobs, NO_ANSWER)
    stage.alive = False
    for minutes in (3, 4, 70):
        now = NOON + 60 * minutes
        picture = looked(fleet, picture, now)
        line = "speed: 2 jobs unknown since 12:03: squeue: Unable to contact slurm controller"
        assert trouble(picture, now) == line
        (job, _) = chosen(JOBS, picture, Choice())
        assert about(job, now)[1].startswith("unknown since 12:03")
        assert picture.counts[RunState.FAILED] == 1
    stage.jobs = dict.fromkeys(stage.jobs, RUNNING)
    picture = looked(fleet, picture, NOON + 7200)
    assert trouble(picture, NOON + 7200) == ""
    stage.jobs = dict.fromkeys(stage.jobs, NO_ANSWER)
    assert "since 15:00" in trouble(looked(fleet, picture, NOON + 3 * 3600), NOON + 3 * 3600)


def test_jobs_of_another_tree_are_shown_by_where_they_are(stage: Stage) -> None:
    said = JobStatus(JobState.UNKNOWN, "unknown since 11:30: ssh: connect to host jz: timed out")
    stage.jobs |= {"jz/0001-0001.0": said, "far/0001-0001.0": JobStatus(JobState.RUNNING, "RUNNING")}
    picture = looked(StagedFleet(stage))
    jobs = {job.token: job for job in chosen(JOBS, picture, Choice(words="0001-0001.0"))}
    assert {token: job.target for token, job in jobs.items() if "/" in token} == {
        "jz/0001-0001.0": "jz",
        "far/0001-0001.0": "far",
    }
    assert str(jobs["far/0001-0001.0"].cost) == "–"
    line = "speed: 1 job unknown since 11:30: ssh: connect to host jz: timed out"
    assert trouble(looked(StagedFleet(stage), picture, NOON + 60), NOON + 60) == line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            BackendUnavailableError("squeue: down", hint="orchestrate doctor"),
            "squeue: down (orchestrate doctor)",
        ),
        (OrchestrateError("two\nlines"), "two lines"),
        (OSError(116, "Stale file handle"), "OSError: [Errno 116] Stale file handle"),
        (ZeroDivisionError("of ours"), "ZeroDivisionError: of ours"),
    ],
)
def test_what_was_seen_stays_when_a_look_fails(stage: Stage, error: Exception, said: str) -> None:
    other = Stage("other", [{"seed": 0}])
    fleet = StagedFleet(stage, other)
    before = looked(fleet)
    stage.problem = error
    after = looked(fleet, before, NOON + 120)
    assert after.sights[0].runs == before.sights[0].runs
    assert trouble(after, NOON + 120) == f"speed as of 12:00: {said}"
    assert after.sights[1].seen == NOON + 120
    assert after.throughput == (99.0, 0.0)  # what is not seen is not counted as speed
    stage.problem = None
    assert trouble(looked(fleet, after, NOON + 240), NOON + 240) == ""


def test_a_sweep_that_could_never_be_read_is_told_of(stage: Stage) -> None:
    stage.problem = OrchestrateError("no")
    picture = looked(StagedFleet(stage))
    assert trouble(picture, NOON) == "speed: no"
    assert chosen(SWEEPS, picture, Choice()) == list(picture.sights)


def test_runs_of_earlier_grids_are_shown_while_they_work(stage: Stage) -> None:
    stage.rows = [row._replace(in_grid=False) for row in stage.rows]
    (sight,) = looked(StagedFleet(stage)).sights
    assert [row.run_id for row in sight.runs] == [run_id(0), run_id(2), run_id(3)]
    assert sight.counts == {}


def test_lists_are_searched_sorted_and_narrowed(stage: Stage) -> None:
    picture = looked(StagedFleet(stage))

    def labels(choice: Choice) -> list[str]:
        return [row.label for row in chosen(RUNS, picture, choice)]

    assert labels(Choice()) == ["mappo", "ippo", "iql", "qmix"]
    assert labels(Choice(words="FAILED valueerror")) == ["ippo"]
    assert labels(Choice(words="failed mappo")) == []
    choice = Choice()
    while (choice := choice.sorted_by_next(RUNS)).column is not None:
        if RUNS.columns[choice.column].title == "":
            assert labels(choice) == ["ippo", "iql", "mappo", "qmix"]
        forwards = labels(choice)
        assert sorted(forwards) == sorted(labels(Choice()))
    assert choice == Choice()
    (job, _) = chosen(JOBS, picture, Choice())
    assert labels(Choice(sweep="speed", runs_of=job)) == ["mappo", "ippo"]
    assert labels(Choice(sweep="another")) == []
    assert [row.label for row in chosen(FAILURES, picture, Choice())] == ["ippo"]
    assert [row.label for row in runs_in(job, picture)] == ["mappo", "ippo"]
    assert len(runs_in(picture.sights[0], picture)) == 4


def test_questions_say_what_happens(stage: Stage) -> None:
    picture = looked(StagedFleet(stage))
    (sight,) = picture.sights
    assert question("cancel", sight, sight.runs).startswith("Cancel 4 runs of sweep speed?")
    assert question("cancel", sight.jobs[0], sight.runs[:1]).startswith("Cancel 1 run of job 0001-0001.0 of")
    done = sight.runs[0]._replace(status=stage.seen(NOON).statuses[run_id(0)])
    assert "trained anew" not in question("retry", done, [done])


def test_nothing_to_show_says_why(stage: Stage) -> None:
    assert nothing(FleetState(), Choice()) == "looking …"
    assert "orchestrate sweep" in nothing(looked(StagedFleet()), Choice())
    assert "esc" in nothing(looked(StagedFleet(stage)), Choice(words="x"))


HOSTILE = st.text(
    st.characters() | st.sampled_from("\x1b\x9b\x00\x07\r\n\t\u202e\u200b[]/bold\\ 漢👩‍👩"), max_size=40
)


@given(HOSTILE)
def test_no_text_is_a_command_for_the_terminal(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert all(line.isprintable() for line in readable(text).split("\n"))


def test_a_log_is_shown_as_a_terminal_would_leave_it() -> None:
    assert readable("a\x1b[31mred\x1b[0m\n10%\r20%\r\nnext\x1b]0;title\x07!") == "ared\n20%\nnext!"


@settings(deadline=None)
@given(
    points=st.lists(st.dictionaries(HOSTILE, HOSTILE | st.integers(), max_size=3), min_size=1, max_size=4),
    message=HOSTILE,
    fps=st.floats() | st.integers() | HOSTILE | st.none() | st.booleans(),
    frames=st.integers() | st.floats() | HOSTILE | st.none(),
    words=HOSTILE,
)
def test_whatever_is_in_names_and_journals_is_drawn_as_text(
    points: list[dict[str, Any]], message: str, fps: Any, frames: Any, words: str
) -> None:
    stage = Stage("speed", points)
    stage.submit(
        "0001-0001.0", range(len(points)), JobStatus(JobState.RUNNING, message, place=message), on=message
    )
    told = [
        progress(0, NOON - 1, frames=frames, total=frames, end_to_end_fps=fps, iteration_fps=fps),
        progress(0, NOON, end_to_end_fps=fps, iteration_fps=fps),
    ]
    failed = ended(1, NOON, "failed", reason=None, message=message)
    stage.work("0001-0001.0", NOON - 60, claimed(0, NOON - 50), *told, failed)
    picture = looked(StagedFleet(stage))
    assert [one.problem for one in picture.sights] == [None]
    for view in VIEWS:
        for row in chosen(view, picture, Choice()):
            cells = [column.draw(row, NOON)[0] for column in view.columns]
            assert all(cell.isprintable() for cell in (*cells, *about(row, NOON)))
        for column in range(len(view.columns)):
            chosen(view, picture, Choice(words=words, column=column, backwards=True))
    assert trouble(picture, NOON).isprintable()
    assert all(line.isprintable() for line in totals(picture, 80).plain.split("\n"))


@given(st.lists(st.floats()), st.integers(1, 50))
def test_a_sparkline_is_as_wide_as_there_is_room(values: list[float], width: int) -> None:
    bars = sparkline(values, width)
    assert cell_len(bars) == min(width, len(values))
    assert set(bars) <= set("▁▂▃▄▅▆▇")


def test_a_sparkline_grows_from_nothing_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇▇"
    assert sparkline([9.0, float("nan"), 0.0], 2) == "▁▁"


def test_a_moment_long_ago_is_a_day() -> None:
    assert moment(NOON, NOON + 3600) == "12:00"
    assert moment(NOON, NOON + 3 * 24 * 3600) == "Sep 22"
    assert moment(None, NOON) == ""


def test_one_look_at_a_time_and_one_more_when_asked() -> None:
    looks: list[int] = []
    shown: list[int] = []
    go = threading.Semaphore(0)

    def look() -> int:
        looks.append(threading.get_ident())
        go.acquire()
        return len(looks)

    watch = Refresher(look, shown.append)
    watch.start()
    wait_for(lambda: len(looks) == 1)
    watch.now()  # while a look is under way
    go.release()
    wait_for(lambda: len(looks) == 2)
    assert shown == [1]
    watch.stop()
    go.release()
    wait_for(lambda: not watch._thread.is_alive())
    assert shown == [1], "nothing is shown after it was stopped"
    assert set(looks) != {threading.get_ident()}


def test_a_tree_is_looked_at_as_it_lies_there(tmp_path: Path) -> None:
    runs = [command_run(["x"], seed) for seed in range(2)]
    sweep = make_sweep(tmp_path, runs, "speed")
    make_sweep(tmp_path, runs, "other")
    job = submit(sweep)
    sweep.worker_output(job.token).write_text("no such module\n")
    picture = next_state(FleetTree(tmp_path), FleetState(), NOON)
    assert [one.name for one in picture.sights] == ["other", "speed"]
    assert [one.token for one in picture.sights[1].jobs] == [job.token]
    only = next_state(FleetTree(tmp_path, ["speed"]), FleetState(), NOON)
    assert [one.name for one in only.sights] == ["speed"]
    gone = next_state(FleetTree(tmp_path, ["gone"]), only, NOON + 60)
    assert gone.sights == only.sights
    assert trouble(gone, NOON + 60).startswith("as of 12:00: no sweep named 'gone'")

    tree = FleetTree(tmp_path)
    assert tree.log(sweep, runs[0].run_id) == "the run has not begun; its job printed:\nno such module\n"
    attempt = sweep.run(runs[0].run_id).attempt(1)
    attempt.path.mkdir(parents=True)
    attempt.claim_path.touch()
    attempt.log.write_text("x" * 300_000 + "\nlast line\n")
    assert tree.log(sweep, runs[0].run_id) == "last line\n"


def test_the_price_is_that_of_the_profile(own_world: Path) -> None:
    folder = own_world / ".config" / "orchestrate" / "profiles"
    folder.mkdir(parents=True)
    (folder / "dear.yaml").write_text("price_per_hour: 2.5\n")
    tree = FleetTree(Path("results"))
    prices = {on: tree.price(on) for on in ("dear", "cpu", "local", "gone", "/no/such.yaml")}
    assert prices == {"dear": 2.5, "cpu": None, "local": None, "gone": None, "/no/such.yaml": None}


def test_the_price_of_a_submission_is_the_one_that_it_was_made_at(own_world: Path) -> None:
    """Of a cloud no profile needs to say one; it was looked up then."""
    tree = FleetTree(Path("results"))
    assert tree.price("l4", 0.98) == 0.98
    assert tree.price("l4", None) is None


def test_what_is_on_disk_is_shown_before_any_machine_answers() -> None:
    stage = Stage("speed", [{"seed": 0}])
    stage.submit("0001-0001", [0])
    fleet = StagedFleet(stage)
    shown: list[FleetState] = []
    order: list[str] = []

    def ask(sweep_dir: SweepDir) -> Survey:
        order.append(f"asked after {len(shown)}")
        return stage.seen(NOON)

    fleet.present = ask  # type: ignore[method-assign]
    picture = next_state(fleet, FleetState(), NOON, shown.append)
    assert order == ["asked after 1"]
    assert shown[0].at is None  # it is still looking
    assert [run.run_id for run in shown[0].sights[0].runs] == [run_id(0)]
    fleet.allow()
    next_state(fleet, picture, NOON + 5, shown.append)
    assert len(shown) == 1


def test_a_retry_that_is_refused_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OrchestrateError, match="no sweep named 'gone'"):
        FleetTree(tmp_path).retry(SweepDir(tmp_path, "gone"), [run_id(0)])


def test_jobs_of_another_tree_cost_by_its_journals_and_the_profile_here(
    tmp_path: Path, own_world: Path
) -> None:
    runs = [command_run(["x"], seed) for seed in range(2)]
    there, here = (make_sweep(tmp_path / name, runs, "speed") for name in ("there", "here"))
    job = submit(there)
    journal = there.take_token(job.token, Event(STARTED, NOON, data={"holder": records.plain(HOLDER)}))
    assert journal is not None
    journal.append(Event(CLAIMED, NOON + 1, runs[0].run_id, 1))
    journal.append(Event(EXITED, NOON + 1800))

    folder = own_world / ".config" / "orchestrate" / "profiles"
    folder.mkdir(parents=True)
    (folder / "jz.yaml").write_text("price_per_hour: 3\n")
    place = TreePlace("jz", "jz", "login", "/work")
    code, run_ids = SentCode("0" * 16, (), None), frozenset(run.run_id for run in runs)
    here.add_to_ledger(AssignedEntry(place=place, code=code, run_ids=run_ids, home="home", time=NOON))
    (one,) = ownership.assigned(here.read_ledger())
    tree, history = FleetTree(tmp_path / "here"), History(here.read_ledger(), here.read_journals())

    told = fleet.present(there)
    runs = [status.to_json() for status in told.statuses.values()]
    heard = note(here, place, {"runs": runs, "jobs": job_facts(told)})
    seen = sight(here, overlaid(poll_sweep(here), one, heard), history, tree.price, NOON + 7200)
    assert [(row.token, row.target, row.seconds, str(row.cost)) for row in seen.jobs] == [
        (f"jz/{job.token}", "jz", 1800, "$1.50")
    ]
    assert str(seen.cost) == "$1.50"

    silent = replace(heard, silence="ssh: timed out")
    seen = sight(here, overlaid(poll_sweep(here), one, silent), history, tree.price, NOON + 7200)
    assert str(seen.cost) == "$1.50", "what was spent stays spent"
    assert seen.jobs[0].unanswered is None, "it is told since when it is not heard of"

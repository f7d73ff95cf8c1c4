"""A budget: what is left of it, who is refused, what each job is given, and how long it holds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.backends.local import LocalBackend
from orchestrator.backends.skypilot import client
from orchestrator.backends.skypilot.prices import list_price
from orchestrator.config.profiles import Profile, find_profile
from orchestrator.config.trainers import get_trainer
from orchestrator.control import follow
from orchestrator.core.errors import BudgetError, OrchestrateError
from orchestrator.core.records import plain
from orchestrator.core.types import Capacity, Job, Plan, Price, Resources, Run, Sweep, TargetAssignment
from orchestrator.planning import budget
from orchestrator.planning.budget import BudgetedPlan, budget_on_record, reckon, spending_of, worth_going_on
from orchestrator.planning.estimate import TargetCost, where_at
from orchestrator.planning.plan import SubmitOptions, make_plan
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.model import Speed, TrainingPlace, kind_of
from orchestrator.rundir import Event, Holder, IndexRow, SweepDir
from orchestrator.rundir.records.journal import EXITED, STARTED
from orchestrator.rundir.records.ledger_entries import SubmissionEntry, submissions
from orchestrator.rundir.records.submitted import SubmissionCost
from orchestrator.status.survey import RunStatus, Survey
from tests.helpers import enter, submit_sweep

RUNS = tuple(get_trainer("command").identify({"command": ["x"], "frames": 100}, seed, 1) for seed in range(4))
SWEEP = Sweep("tiny", "command", RUNS, "name: tiny\n", "grid.yaml")


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    """This machine at 3.60 $/h: a tenth of a cent a second."""
    path = tmp_path / "mine.yaml"
    path.write_text("backend: local\nprice_per_hour: 3.6\n")
    return LocalBackend(find_profile(str(path)))


@pytest.fixture
def tiny(results: Path) -> SweepDir:
    sweep = SweepDir(results, "tiny")
    sweep.create()
    return sweep


def know(monkeypatch: pytest.MonkeyPatch, seconds: float | None, spread: float = 0.0) -> None:
    """From now on a run is known to take so long, or nothing is known."""
    speeds: list[Speed] = []
    if seconds is not None:
        fps = 100 / seconds
        place = TrainingPlace("mine", None, "")
        speeds = [Speed(kind_of(RUNS[0]), place, fps, fps * (1 - spread), fps * (1 + spread), 0.0, 100, 9)]
    monkeypatch.setattr(budget, "load_table", lambda _: SpeedTable(speeds, {"mine": 1e-9}))


def costs_at(address: str) -> Callable[[SpeedTable], TargetCost | None]:
    return partial(where_at, address, list_price)


def seen_of(live: Sequence[str] = ()) -> Survey:
    rows = [IndexRow(run.run_id, True, run.point) for run in RUNS]
    return Survey(rows, {run.run_id: RunStatus(run.run_id) for run in RUNS}, frozenset(live))


def plan_of(jobs: int = 1, assignment: TargetAssignment | None = None) -> Plan:
    room = Capacity("mine", None, 0, array_size=1, most=jobs, apart=True, pack=1)
    return make_plan(SWEEP, seen_of(), room, submission=9, assignment=assignment)


def past_job(
    sweep: SweepDir, token: str, worked: float, allowance: float | None, *, live: bool = False
) -> None:
    job = Job(token, "tiny", "mine", (RUNS[0].run_id,), 1, Resources(), allowance=allowance)
    now = time.time()
    data = {
        "time": now - worked,
        "jobs": [plain(job)],
        "job_ids": {},
        "skipped": {},
        "cost": {"price_per_hour": 3.6, "budget": 5.0},
    }
    enter(sweep, "submission", data)
    holder = {"holder": plain(Holder.current())}
    journal = sweep.take_token(token, Event(STARTED, now - worked, data=holder))
    assert journal is not None
    if not live:
        journal.append(Event(EXITED, now, data={"why": "nothing is left to do", "asked": False}))


def reckoned(
    sweep: SweepDir, backend: LocalBackend, asked: float | None, plan: Plan | None = None, launch: bool = True
) -> BudgetedPlan:
    return reckon(plan or plan_of(), seen_of(), sweep, costs_at(backend.address), asked, launch=launch)


def allowances(plan: Plan) -> list[float]:
    return [job.allowance for job in plan.jobs if job.allowance is not None]


def test_the_machine_that_a_cloud_is_asked_for_is_on_record(tiny: SweepDir, tmp_path: Path) -> None:
    asked = []
    for more in ("", "spot: true\n"):
        path = tmp_path / "cloud.yaml"
        path.write_text(f"backend: skypilot\ninfra: aws\ninstance_type: m6i.large\nprice_per_hour: 1\n{more}")
        profile = find_profile(str(path))
        done = reckon(plan_of(), seen_of(), tiny, costs_at(profile.address), None, launch=False)
        asked.append(done.cost.machine)
    assert asked == ["aws m6i.large"] * 2


def test_without_a_budget_jobs_have_no_allowance_and_the_prediction_is_kept(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, 100.0)
    done = reckoned(tiny, backend, None)
    assert allowances(done.plan) == []
    assert done.cost.price_per_hour == 3.6
    assert done.cost.prediction is not None
    assert done.cost.prediction["dollars"]["expected"] == pytest.approx(0.4, rel=1e-3)
    assert done.notes[0].startswith("predicted: 6:40 (80 %: ")


def test_what_is_predicted_above_it_is_refused_with_everything_one_needs(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, 1000.0)
    past_job(tiny, "0001-0001", 500.0, None)
    with pytest.raises(BudgetError) as refused:
        reckoned(tiny, backend, 4.4)
    said = str(refused.value)
    assert refused.value.exit_code == 4
    assert said.startswith(
        "predicted to cost $4.00 (80 %: $3.81 to $4.20) on mine, above the budget of $4.40"
    )
    assert "$0.50 is spent" in said
    assert "orchestrate estimate" in str(refused.value.hint)
    assert reckoned(tiny, backend, 4.6).plan.jobs
    assert reckoned(tiny, backend, 4.4, launch=False).plan.jobs  # a worker is replaced within what is left


def test_what_may_not_suffice_is_launched_and_said(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, 1000.0, spread=0.5)
    assert any(
        "may cost more than the remaining $4.10" in note for note in reckoned(tiny, backend, 4.1).notes
    )
    know(monkeypatch, None)
    (note,) = reckoned(tiny, backend, 4.1).notes
    assert "no measured speed of command on a CPU" in note
    assert "at $4.10 its jobs save and stop" in note


def test_what_is_left_is_shared_by_what_jobs_have_to_do(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, 100.0)
    past_job(tiny, "0001-0001", 1000.0, None)
    done = reckoned(tiny, backend, 2.0, plan_of(3))
    assert sorted(allowances(done.plan)) == pytest.approx([250.0, 250.0, 500.0], rel=1e-3)


def test_a_part_of_the_runs_has_a_part_of_the_money(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, None)
    dealt = plan_of(1, TargetAssignment(frozenset({RUNS[0].run_id})))
    assert allowances(reckoned(tiny, backend, 2.0, dealt).plan) == pytest.approx([500.0])


def test_what_jobs_at_work_may_still_use_is_nobody_elses(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, 10.0)
    past_job(tiny, "0001-0001", 100.0, 600.0, live=True)
    past_job(tiny, "0002-0001", 100.0, None, live=True)
    seen = seen_of(["0001-0001", "0002-0001"])
    found = spending_of(tiny, seen, tiny.read_ledger())
    assert found.spent == pytest.approx(0.2, abs=0.01)
    assert found.promised == pytest.approx(0.5, abs=0.01)
    assert found.open == 1
    done = reckon(plan_of(), seen, tiny, costs_at(backend.address), 1.0, launch=True)
    assert allowances(done.plan) == pytest.approx([300.0], abs=10)
    assert any("submitted without a budget" in note for note in done.notes)


def test_a_budget_holds_until_another_is_named(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, None)
    assert budget_on_record(tiny.read_ledger()) is None
    past_job(tiny, "0001-0001", 1000.0, 1000.0)
    assert budget_on_record(tiny.read_ledger()) == 5.0
    assert allowances(reckoned(tiny, backend, None).plan) == pytest.approx([4000.0])
    assert allowances(reckoned(tiny, backend, 3.0).plan) == pytest.approx([2000.0])
    lifted = reckoned(tiny, backend, math.inf)
    assert allowances(lifted.plan) == []
    assert lifted.cost.budget == "inf"
    tiny.add_to_ledger(SubmissionEntry(jobs=(), cost=lifted.cost))
    assert budget_on_record(tiny.read_ledger()) is None


@pytest.mark.parametrize("launch", [True, False])
def test_one_that_is_used_up_launches_nothing(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, launch: bool
) -> None:
    know(monkeypatch, None)
    past_job(tiny, "0001-0001", 999.5, 1000.0)
    with pytest.raises(BudgetError, match="used up"):
        reckoned(tiny, backend, 1.0, launch=launch)
    assert not worth_going_on(tiny, seen_of(), 1.0)
    assert not worth_going_on(tiny, seen_of(), 1.05)
    assert worth_going_on(tiny, seen_of(), 2.0)
    assert worth_going_on(tiny, seen_of(), math.inf)


def test_a_target_without_a_price_can_keep_to_none(tiny: SweepDir, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, 1.0)
    with pytest.raises(OrchestrateError, match="cost unknown") as refused:
        reckoned(tiny, LocalBackend(), 1.0)
    assert refused.value.exit_code == 2
    assert reckoned(tiny, LocalBackend(), math.inf).plan.jobs


def test_an_instance_starts_and_ends_on_its_share(
    tiny: SweepDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("backend: skypilot\nprice_per_hour: 3.6\nidle_minutes: 5\n")
    profile = find_profile(str(path))
    know(monkeypatch, None)
    monkeypatch.setattr(budget, "load_table", lambda _: SpeedTable([], {"mine": 10.0}, {"mine": 90.0}))
    instance = Cloud(profile)
    # From its request: five minutes go to its termination, and a tenth of the rest to its results.
    assert allowances(reckoned(tiny, instance, 1.0).plan) == pytest.approx([0.9 * (1000.0 - 300.0)])
    with pytest.raises(BudgetError, match="leaves too little for a job on mine"):
        reckoned(tiny, instance, 0.4)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            client.MachinePrice("AWS", "us-east-1", "g6.xlarge", True, 0.3, 0.8048),
            Price(0.3, "g6.xlarge of AWS us-east-1, spot, by SkyPilot's price list (on demand $0.80/h)"),
        ),
        (
            client.MachinePrice("AWS", "", "g6.xlarge", False, 0.8048, None),
            Price(0.8048, "g6.xlarge of AWS, on demand, by SkyPilot's price list"),
        ),
        (client.MachinePrice("Slurm", "lab", "2CPU", False, 0.0, None), None),
    ],
)
def test_a_price_is_of_the_machine_that_the_list_has_it_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: client.MachinePrice, said: Price | None
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(client, "price", lambda text: asked.append(text) or listed)
    path = tmp_path / "l4.yaml"
    path.write_text("backend: skypilot\naccelerators: L4:1\nspot: true\n")
    profile = find_profile(str(path))
    assert list_price(profile) == list_price(profile) == said
    (text,) = asked  # once
    assert "L4:1" in text
    assert "use_spot: true" in text


class Cloud(LocalBackend):
    """Only its address counts here."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)


def test_the_whole_way_down_to_the_job_that_is_submitted(
    results: Path, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, None)
    submitted: list[Job] = []

    def keep(script: object, after: object = ()) -> dict[str, str]:
        submitted.extend(script.array.jobs)  # type: ignore[attr-defined]
        return {}

    monkeypatch.setattr(backend, "submit", keep)
    sweep_dir = SweepDir(results, "tiny")
    submit_sweep(SWEEP, sweep_dir, backend, SubmitOptions(budget=2.0))
    (job,) = submitted
    assert job.allowance == pytest.approx(2000.0)
    (entry,) = submissions(sweep_dir.read_ledger())
    assert entry.cost.budget == 2.0
    assert entry.jobs == (job,)


def test_following_ends_where_what_is_left_pays_for_nothing(
    tiny: SweepDir, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, None)
    past_job(tiny, "0001-0001", 4999.9, 5000.0)
    for run in RUNS:
        tiny.run(run.run_id).describe(run)
    surveys = list(follow.follow(follow.OneTarget(SWEEP, tiny, backend)))
    assert surveys[-1].left == [run.run_id for run in RUNS]
    assert len([entry for entry in tiny.read_ledger() if entry.kind == "submission"]) == 1


@given(
    st.floats(0.01, 1e6),
    st.floats(0.01, 1e4),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_shares_are_never_more_than_what_is_left(
    left: float, price: float, frames: list[int], machines: int
) -> None:
    runs = tuple(
        get_trainer("command").identify({"command": ["x"], "frames": one}, seed, 1)
        for seed, one in enumerate(frames)
    )
    sweep = replace(SWEEP, runs=runs)
    rows = [IndexRow(run.run_id, True, run.point) for run in runs]
    seen = Survey(rows, {run.run_id: RunStatus(run.run_id) for run in runs}, frozenset())
    room = Capacity("mine", None, 0, array_size=1, most=machines, apart=True, pack=1)
    plan = make_plan(sweep, seen, room, submission=1)
    table = SpeedTable([Speed(kind_of(_first(runs)), TrainingPlace("mine"), 7.0, 7.0, 7.0)])
    where = budget.TargetCost("mine", "local", TrainingPlace("mine"), budget.Price(price, ""), machines)
    found = budget.forecast(plan, seen, where, table)
    try:
        shared = budget._with_shares(plan, found, budget.Price(price, ""), SubmissionCost(), left, left)
    except BudgetError:
        return
    given_out = sum(job.allowance or 0.0 for job in shared.jobs)
    assert given_out * price / 3600 == pytest.approx(left)
    assert all(job.allowance and job.allowance > 0 for job in shared.jobs)


def _first(runs: Sequence[Run]) -> Run:
    return runs[0]

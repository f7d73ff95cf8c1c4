"""What jobs on rented machines cost: never less than was charged, and never more than the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources
from orchestrator.planning.accounts import accounts, latest_end
from orchestrator.rundir import Event, Holder, LedgerEntry, WorkerLog
from orchestrator.rundir.records.journal import EXITED, REVOKED, STARTED
from orchestrator.rundir.records.ledger_entries import InstanceEntry, SubmissionEntry
from orchestrator.rundir.records.submitted import SubmissionCost

NOON = 1_790_078_400.0
HOUR = 3600.0
HOLDER = {"holder": plain(Holder("host", "boot", "pid:[1]", 42, 1000))}
TOKEN = "0001-0001"


def rented(
    token: str = TOKEN, at: float = NOON, allowance: float | None = None, price: float | None = 1.0
) -> SubmissionEntry:
    """A job on an instance, which stays an hour for its results and five minutes for its end."""
    job = Job(token, "tiny", "l4", ("a" * 16,), 1, Resources(), allowance=allowance)
    cost = SubmissionCost(price_per_hour=price, hold=HOUR, idle=300.0)
    return SubmissionEntry(time=at, backend="skypilot", target="l4", on="l4", jobs=(job,), cost=cost)


def log(token: str, began: float, left: float | None) -> WorkerLog:
    ends = [] if left is None else [Event(EXITED, left)]
    return WorkerLog(token, (Event(STARTED, began, data=HOLDER), *ends))


def dollars(
    ledger: Sequence[LedgerEntry], now: float, *logs: WorkerLog, held: Sequence[str] = (TOKEN,)
) -> float:
    return sum(one.cost.dollars for one in accounts(ledger, logs, held, now).values())


def test_an_instance_that_was_never_fetched_from_costs_all_its_life() -> None:
    assert dollars([rented()], NOON + 50 * HOUR) == pytest.approx(50.0)
    gone = InstanceEntry(token=TOKEN, ended=NOON + 60 * HOUR)
    assert dollars([rented(), gone], NOON + 99 * HOUR, held=()) == pytest.approx(60.0)


def test_one_that_ended_by_itself_is_not_charged_until_somebody_looked() -> None:
    """Its worker left after two hours: an hour for its results, and ten minutes for its end."""
    left = log(TOKEN, NOON + 600, NOON + 2 * HOUR)
    assert dollars([rented()], NOON + 99 * HOUR, left) == pytest.approx(3 + 600 / HOUR)
    assert dollars([rented(allowance=HOUR)], NOON + 99 * HOUR) == pytest.approx(1 / 0.9 + 600 / HOUR)


def test_the_machine_obtained_gives_the_price_if_it_is_dearer() -> None:
    far = InstanceEntry(token=TOKEN, price_per_hour=9.0, region="AWS eu-moon-1")
    assert dollars([rented(), far], NOON + HOUR) == pytest.approx(9.0)
    free = InstanceEntry(token=TOKEN, price_per_hour=0.0)
    assert dollars([rented(price=360.0), free], NOON + HOUR) == pytest.approx(360.0)
    (unpriced,) = accounts([rented(price=None), free], [], [TOKEN], NOON + HOUR).values()
    assert unpriced.price is None


def test_a_launch_that_was_given_up_before_its_request_costs_nothing() -> None:
    never = WorkerLog(TOKEN, (Event(REVOKED, NOON + 60),))
    assert dollars([rented()], NOON + HOUR, never, held=()) == 0.0


def test_ledgers_without_ends_count_to_the_last_event() -> None:
    assert dollars([rented()], NOON + 99 * HOUR, log(TOKEN, NOON + 60, NOON + HOUR), held=()) == 1.0


@given(st.floats(1.0, 1e7), st.floats(0.0, 1e5), st.floats(0.0, 1e4))
def test_a_lifetime_gives_an_allowance_and_back(lifetime: float, hold: float, idle: float) -> None:
    cost = SubmissionCost(price_per_hour=1.0, hold=hold, idle=idle)
    if (allowance := cost.allowance(idle + lifetime)) > 0:
        assert cost.lifetime(allowance) == pytest.approx(idle + lifetime)
        assert allowance <= lifetime * (1 + 1e-9)  # of sums that are rounded
        assert cost.lifetime(allowance, 9.0) == pytest.approx((idle + lifetime) / 9)


@dataclass(frozen=True)
class Life:
    """A machine as it really was: times after its request as parts of what it may live.

    ``worked``: until its worker left; ``fetched``: its journal arrived; ``seen``: it was up when it was taken
    down; ``looked``: hours until somebody looked, after its end.
    """

    worked: float
    stayed: float
    fetched: bool
    seen: bool
    looked: float
    dearer: float


lives = st.builds(
    Life,
    worked=st.floats(0, 1),
    stayed=st.floats(0, 1),
    fetched=st.booleans(),
    seen=st.booleans(),
    looked=st.floats(0, 100),
    dearer=st.sampled_from([1.0, 1.1, 9.0]),
)


@given(st.lists(lives, min_size=1, max_size=6), st.floats(1.0, 100.0))
def test_the_same_command_again_and_again_keeps_within_the_budget(past: list[Life], budget: float) -> None:
    ledger: list[LedgerEntry] = []
    logs: list[WorkerLog] = []
    now, charged = NOON, 0.0
    for number, life in enumerate(past):
        left = budget - sum(one.cost.dollars for one in accounts(ledger, logs, (), now).values())
        token = f"{number:04d}-0001"
        allowance = rented().cost.allowance(left * HOUR)
        if allowance <= 0:
            break
        entry = rented(token, now, allowance)
        ledger.append(entry)
        price = entry.cost.price_per_hour or 0.0
        obtained = InstanceEntry(token=token, price_per_hour=price * life.dearer)
        ledger.append(obtained)
        most = entry.cost.lifetime(allowance, price * life.dearer)
        worked = life.worked * entry.cost.allowance(most)
        end = min(now + worked + life.stayed * (HOUR + 300), now + most)
        if life.fetched:
            logs.append(log(token, now, now + worked))
        looks = [now + (end - now) * part for part in (0.0, 0.3, 0.9)] + [end, end + life.looked * HOUR]
        told = [dollars(ledger, at, *logs, held=(token,)) for at in looks]
        assert told == sorted(told)  # it never falls
        charged += (end - now) * price * life.dearer / HOUR
        assert told[-1] >= charged - 1e-6  # nor is it less than what the cloud wants
        mine = logs[-1] if life.fetched else None
        gone = min(looks[-1], latest_end(entry, entry.jobs[0], mine, price * life.dearer))
        ledger.append(InstanceEntry(token=token, ended=end if life.seen else gone))
        now = looks[-1] + 1
        assert dollars(ledger, now, *logs, held=()) >= charged - 1e-6
        assert charged <= budget + 1e-6

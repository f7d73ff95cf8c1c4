"""Journal lines come back as they were written, and their data as the dataclass of their kind."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.types import Reason, RunState
from orchestrator.rundir import Event
from orchestrator.rundir.records.journal import (
    CLAIMED,
    ENDED,
    EXITED,
    PROGRESS,
    AttemptEnd,
    Progress,
    WorkerExit,
    read_event,
)

times = st.integers(0, 1 << 41).map(lambda milliseconds: milliseconds / 1000)
returns = st.floats(allow_nan=False)  # also infinities, which JSON lacks
whole, text = st.integers(0, 1 << 50), st.text(max_size=8)
measures = st.fixed_dictionaries(
    {}, optional={"frames": whole, "total": whole, "end_to_end_fps": times, "return": returns, "later": text}
)
ends = st.fixed_dictionaries(
    {"outcome": st.sampled_from([state.value for state in RunState])},
    optional={"reason": text, "summary": st.none() | st.just({"final_return": 1.0}), "later": text},
)
kinds = st.sampled_from([(CLAIMED, st.just({})), (PROGRESS, measures), (ENDED, ends), (EXITED, measures)])
events = kinds.flatmap(
    lambda kind: st.builds(Event, st.just(kind[0]), times, text, whole, kind[1], st.none() | times)
)


@given(events)
def test_a_line_is_read_as_it_was_written(event: Event) -> None:
    assert read_event(event.to_line()) == event


def test_a_return_may_be_no_number() -> None:
    """No episode has ended yet."""
    event = read_event(Event(PROGRESS, 1.0, data={"frames": 3, "return": math.nan}).to_line())
    assert event.progress.frames == 3
    assert math.isnan(event.progress.value or 0.0)


@pytest.mark.parametrize("time", ["NaN", "Infinity", "true", '"1"'])
def test_the_time_of_an_event_is_a_finite_number(time: str) -> None:
    with pytest.raises(ValueError, match=r"finite|float"):
        read_event(f'{{"kind": "claimed", "time": {time}}}'.encode())


def test_the_data_of_each_kind() -> None:
    progress = Event(PROGRESS, 1.0, data={"frames": 3, "return": 0.5, "iteration_fps": 9.0})
    assert progress.progress == Progress(3, None, None, 9.0, 0.5)
    summary = {"final_return": 2.0, "end_to_end_fps": 8.0}
    done = Event(ENDED, 1.0, data={"outcome": "done", "frames": 4, "summary": summary, "code_id": "c"})
    assert done.end == AttemptEnd(RunState.DONE, None, None, 4, 8.0, 2.0, "c")
    assert Event(EXITED, 1.0).exit == WorkerExit(None, True, again=False, cause=None)
    assert Event(EXITED, 1.0, data={"asked": True, "again": True, "cause": "nonsense"}).exit == WorkerExit(
        None, True, again=True, cause=None
    )
    spent = Event(EXITED, 1.0, data={"cause": Reason.BUDGET.value})
    assert spent.exit.cause is Reason.BUDGET

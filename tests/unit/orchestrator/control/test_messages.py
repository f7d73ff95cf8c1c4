"""Requests to other trees arrive as they were sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.remote.messages import (
    Answer,
    CancelRequest,
    Decision,
    DecisionAnswer,
    LogsRequest,
    PlanRequest,
    ReleaseAnswer,
    ReleaseRequest,
    Request,
    RetryRequest,
    SentGrid,
    SentProfile,
    StatusRequest,
    StopAnswer,
    StopRequest,
    SubmitAnswer,
    SubmitRequest,
    SubmittedArray,
    parse_answer,
    parse_request,
)
from orchestrator.control.submit import SubmitOptions
from orchestrator.rundir.frozen_code import SentCode

text, whole = st.text(max_size=8), st.integers(0, 1 << 40)
texts = st.lists(text, max_size=3).map(tuple)
always = {"mark": text}
decided = {**always, "decision": st.builds(Decision, st.none() | text, text, whole)}
planned = {
    "runs": texts,
    "grid": st.builds(SentGrid, text, text),
    "profile": st.builds(SentProfile, text, text),
    "wish": st.builds(SubmitOptions, st.none() | whole, st.booleans(), st.none() | st.floats(0, 1e6)),
    "options": texts,
    "code": st.builds(SentCode, text, texts, st.none() | text),
}
requests = st.one_of(
    st.builds(StatusRequest, **always),
    st.builds(LogsRequest, **always, run=text, attempt=st.none() | whole, follow=st.booleans()),
    st.builds(StopRequest, **decided),
    st.builds(CancelRequest, **decided, runs=texts),
    st.builds(RetryRequest, **decided, runs=texts),
    st.builds(ReleaseRequest, **decided, runs=texts, moved=st.booleans(), waiting=st.booleans()),
    st.builds(PlanRequest, **always, **planned),
    st.builds(SubmitRequest, **decided, **planned, adopt=st.booleans()),
)


@given(requests)
def test_a_request_is_read_as_it_was_sent(request: Request) -> None:
    assert parse_request(json.loads(json.dumps(request.to_json()))) == request


told = {
    "runs": st.none() | st.lists(st.dictionaries(text, text), max_size=2),
    "jobs": st.dictionaries(text, st.dictionaries(text, text), max_size=2),
}
lines, reasons = st.lists(text, max_size=3), st.dictionaries(text, text, max_size=2)
answers = st.one_of(
    st.builds(Answer, **told),
    st.builds(StopAnswer, **told, stopped=st.booleans()),
    st.builds(DecisionAnswer, **told, concerned=lines),
    st.builds(ReleaseAnswer, released=lines, held=reasons),
    st.builds(
        SubmitAnswer,
        **told,
        settled=st.booleans(),
        problems=lines,
        arrays=st.lists(st.builds(SubmittedArray, st.none() | text, whole, whole), max_size=2),
        no_feed=st.none() | text,
        cannot=reasons,
        notes=lines,
    ),
)


@given(answers)
def test_an_answer_is_read_as_it_was_sent(answer: Answer) -> None:
    assert parse_answer(type(answer), {"format": 1, **json.loads(json.dumps(answer.to_json()))}) == answer


def test_an_answer_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="stopped"):
        parse_answer(StopAnswer, {"runs": []})


def test_the_words_on_the_wire() -> None:
    request = ReleaseRequest(runs=("a",), moved=False, decision=Decision("home", "me:/x", 3))
    assert request.to_json() == {
        "do": "release",
        "mark": "",
        "runs": ("a",),
        "moved": False,
        "waiting": False,
        "home": "home",
        "owner": "me:/x",
        "number": 3,
    }


@pytest.mark.parametrize("record", [{}, {"do": "dance"}, {"do": "stop"}, {"do": "logs", "run": "a"}])
def test_what_is_no_request(record: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        parse_request(record)

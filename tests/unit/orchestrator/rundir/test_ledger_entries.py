"""Ledger entries come back from their files as they went there."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.types import Job, Reason, Resources
from orchestrator.rundir import FrozenCode, LedgerEntry
from orchestrator.rundir.files.atomic import dump_json
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import (
    AddEntry,
    AssignedEntry,
    AssignedShare,
    CancelEntry,
    EndedEntry,
    FailedAttempt,
    FoundEntry,
    FoundResult,
    InstanceEntry,
    LostEntry,
    MemoryEntry,
    RecalledEntry,
    ReleasedEntry,
    RetryEntry,
    ReturnedEntry,
    ShareEntry,
    SubmissionEntry,
    TreePlace,
    parse_entry,
)
from orchestrator.rundir.records.submitted import SubmissionCost

text, whole = st.text(max_size=8), st.integers(0, 1 << 40)
seconds = st.floats(0, 1e10)
run_ids = st.frozensets(text, max_size=4)
always = {
    "number": whole,
    "time": seconds,
    "more": st.dictionaries(st.sampled_from(["added_later", "and_this"]), text | whole | st.none()),
}
paths = text.map(lambda name: Path("/proj", name.replace("\0", "")))
codes = st.builds(FrozenCode, text, paths, st.lists(paths, max_size=2).map(tuple), paths, paths)
jobs = st.builds(Job, text, text, text, st.lists(text, max_size=3).map(tuple), whole, st.just(Resources()))
costs = st.builds(
    SubmissionCost,
    budget=st.none() | seconds | st.just("inf"),
    price_per_hour=st.none() | seconds,
    prediction=st.none() | st.just({"seconds": {"expected": 1.0}}),
    machine=st.none() | text,
    hold=st.none() | seconds,
    idle=st.none() | seconds,
)
submitted = st.builds(
    SubmissionEntry,
    **always,
    jobs=st.lists(jobs, max_size=3).map(tuple),
    job_ids=st.dictionaries(text, text, max_size=3),
    skipped=st.dictionaries(text, text, max_size=3),
    backend=text,
    target=text,
    on=text,
    options=st.lists(text, max_size=2).map(tuple),
    grid=st.none() | whole,
    slots=st.none() | whole,
    canary=st.booleans(),
    trainer=st.none() | text,
    code=st.none() | codes,
    folder=st.none() | text,
    dealt=st.none() | run_ids,
    waiting=st.booleans(),
    cost=costs,
)
attempts = st.dictionaries(text, whole, max_size=3)
decided = [
    st.builds(kind, **always, runs=attempts, why=st.none() | text)
    for kind in (CancelEntry, ReturnedEntry, RetryEntry, MemoryEntry, LostEntry)
]
points = st.dictionaries(text, text | whole | st.booleans(), max_size=3)
added = st.builds(
    AddEntry, **always, points=st.lists(points, max_size=3).map(tuple), by=text, why=text, round=whole
)
results = st.builds(FoundResult, whole, st.none() | whole, st.none() | seconds, st.none() | text)
failures = st.builds(
    FailedAttempt, whole, st.none() | st.sampled_from(Reason), st.none() | text, st.none() | whole
)
evidence = [
    st.builds(FoundEntry, **always, runs=st.dictionaries(text, results, max_size=3)),
    st.builds(EndedEntry, **always, runs=st.dictionaries(text, failures, max_size=3)),
]
sent = st.builds(SentCode, text, st.lists(text, max_size=2).map(tuple), st.none() | text)
placed = {**always, "place": st.builds(TreePlace, text, text, text, text), "run_ids": run_ids}
elsewhere = [
    st.builds(AssignedEntry, **placed, code=sent, home=text, accepted=st.booleans()),
    st.builds(RecalledEntry, **placed),
    st.builds(ReleasedEntry, **placed),
    st.builds(ShareEntry, **always, share=st.builds(AssignedShare, run_ids, text, text, whole)),
    st.builds(
        InstanceEntry,
        **always,
        token=text,
        price_per_hour=st.none() | seconds,
        region=text,
        instance_type=text,
        spot=st.booleans(),
        ended=st.none() | seconds,
    ),
]


@given(st.one_of(submitted, added, *decided, *evidence, *elsewhere))
def test_an_entry_is_read_as_it_was_written(entry: LedgerEntry) -> None:
    again = parse_entry(json.loads(dump_json(entry.to_json())), entry.number)
    assert again == entry
    assert again.to_json() == entry.to_json()


def test_an_entry_of_a_kind_that_is_not_known_stays_as_it_is() -> None:
    record = {"kind": "from 2031", "time": 1, "runs": ["a"]}
    assert parse_entry(record).to_json() == record

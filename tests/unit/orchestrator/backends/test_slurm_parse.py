from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.backends.slurm.parse import (
    array_of,
    array_size,
    join_elements,
    least,
    queue_entries,
    ranges,
    sacct_jobs,
    settings,
    status_of,
    submit_limits,
    submitted_id,
)
from orchestrator.core.types import JobState, Reason

# What squeue and sacct of Slurm 22.05 print.
QUEUE = """\
20826000_[2-5]|PENDING|||Resources
20826000_0|RUNNING|cpu1|orchestrate f25411014963 0001-0001|None
20826000_1|COMPLETING|cpu2|orchestrate f25411014963 0001-0001|None
20826001_0|PENDING||orchestrate 3a4f4d8c0b85 0001-0001|BeginTime
20826003+1|RUNNING|cpu1|heterogeneous|None
20826004+[0-1]_5|WHAT|||
20826002|FAILED|cpu1|somebody | else|NonZeroExitCode
"""
ACCOUNTS = """\
20826000_[2-5]|PENDING|None assigned
20826000_0|COMPLETED|cpu1
20826000_1|CANCELLED by 1000|cpu2
20826001_0|NODE_FAIL|cpu1
20826003+1.batch|RUNNING|cpu1
"""

STATES = {
    "PENDING": (JobState.QUEUED, None),
    "REQUEUE_HOLD": (JobState.QUEUED, None),
    "RUNNING": (JobState.RUNNING, None),
    "COMPLETING": (JobState.RUNNING, None),
    "SUSPENDED": (JobState.RUNNING, None),
    "COMPLETED": (JobState.ENDED, None),
    "FAILED": (JobState.ENDED, None),
    "CANCELLED by 1000": (JobState.ENDED, Reason.STOPPED),
    "CANCELLED+": (JobState.ENDED, Reason.STOPPED),
    "TIMEOUT": (JobState.ENDED, Reason.TIME_LIMIT),
    "PREEMPTED": (JobState.ENDED, Reason.PREEMPTED),
    "NODE_FAIL": (JobState.ENDED, Reason.NODE_FAILURE),
    "OUT_OF_MEMORY": (JobState.ENDED, Reason.OUT_OF_MEMORY),
    "": (JobState.UNKNOWN, None),
    "A_WORD_OF_TOMORROW": (JobState.UNKNOWN, None),
}

texts = some.text(some.characters(exclude_characters="\n"), max_size=30)


@pytest.mark.parametrize(("said", "expected"), STATES.items())
def test_a_state_is_known_by_its_first_word_and_kept_as_said(
    said: str, expected: tuple[JobState, Reason | None]
) -> None:
    status = status_of(said)
    assert (status.state, status.reason) == expected
    assert status.text == said


def test_the_queue_with_reasons_and_places() -> None:
    entries = {entry.job_id: entry for entry in queue_entries(QUEUE)}
    assert entries["20826000_0"].status.place == "cpu1"
    assert entries["20826000_0"].status.text == "RUNNING"
    assert entries["20826000_1"].comment == "orchestrate f25411014963 0001-0001"
    assert entries["20826001_0"].status.text == "PENDING (BeginTime)"
    assert entries["20826002"].status.state is JobState.ENDED, "a bar in a comment hides no state"


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("PENDING||c|JobHeldUser", "scontrol release 7_1"),
        ("PENDING||c|JobHeldAdmin", "scontrol release 7_1"),
        ("PENDING||c|JobHoldMaxRequeue", "scontrol release 7_1"),
        ("PENDING||c|launch failed requeued held", "scontrol release 7_1"),
        ("PENDING||c|job requeued in held state", "scontrol release 7_1"),
        ("SPECIAL_EXIT||c|None", "scontrol release 7_1"),
        ("PENDING||c|Priority", None),
        ("RUNNING|n|c|JobHeldUser", None),
    ],
)
def test_a_held_job_has_the_command_that_releases_it(said: str, release: str | None) -> None:
    assert queue_entries(f"7_1|{said}")[0].status.release == release


def test_accounts() -> None:
    found = sacct_jobs(ACCOUNTS)
    assert found["20826000_0"].state is JobState.ENDED
    assert found["20826000_1"].text == "CANCELLED by 1000"
    assert found["20826001_0"].reason is Reason.NODE_FAILURE
    assert found["20826000_[2-5]"].place == ""


@given(some.lists(some.sampled_from([*QUEUE.split("\n"), *ACCOUNTS.split("\n")]) | texts))
def test_foreign_lines_are_passed_over_and_take_nothing_from_ours(lines: list[str]) -> None:
    ours = "77_3|RUNNING|cpu1|orchestrate f25411014963 0001-0001|None"
    entries = queue_entries("\n".join([*lines, ours, *lines]))
    assert [entry.status.state for entry in entries if entry.job_id == "77_3"][:1] == [JobState.RUNNING]
    assert sacct_jobs("\n".join([*lines, "77_3|COMPLETED|cpu1", *lines]))["77_3"].state is JobState.ENDED


@given(texts)
def test_no_word_of_a_foreign_line_counts_as_an_end(text: str) -> None:
    known = {word.split(" ")[0].rstrip("+") for word in STATES}
    if text.split(" ")[0].rstrip("+") not in known:
        assert not status_of(f"X{text}").state.final


def test_settings_and_limits() -> None:
    printed = "MaxArraySize            = 10\nBad line\nMailProg = /bin/mail = x\n\nSlurmctldHost[0] = a(b)\n"
    assert settings(printed) == {
        "MaxArraySize": "10",
        "MailProg": "/bin/mail = x",
        "SlurmctldHost[0]": "a(b)",
    }
    assert least(["", "20", "N/A", "7", "-1"]) == 7
    assert least(["", "UNLIMITED"]) is None
    assert array_size({}) == 1001
    assert array_size({"MaxArraySize": "10"}) == 10, "indices 0 to 9"
    tasks = {"MaxArraySize": "100001", "SchedulerParameters": "bf_interval=1,max_array_tasks=500"}
    assert array_size(tasks) == 500
    assert submit_limits("lab|20\nother|7\n") == {"lab": 20, "other": 7}
    assert submit_limits("lab|20\nlab|\nlab|7\n") == {"lab": None}, "in one partition there is no limit"
    assert submit_limits("") == {}
    assert submit_limits("lab|20|short|normal,short\n") == {"lab": 20}
    assert array_of("20826000_3") == array_of("20826000") == "20826000"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("123\n", "123"),
        ("123;east\n", "123"),
        ("Dear users,\n2026\nmaintenance on 24\n\n123;east \n5 hours left\n", "123"),
        ("Submitted batch job 123\n", None),
        ("", None),
    ],
)
def test_the_id_of_a_submission_among_what_a_site_prints(printed: str, expected: str | None) -> None:
    assert submitted_id(printed) == expected


@given(some.sets(some.integers(0, 40), min_size=1))
def test_ranges_hold_just_these_numbers(numbers: set[int]) -> None:
    found: list[int] = []
    for part in ranges(sorted(numbers)).split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(numbers)


def test_elements_of_an_array_are_named_together() -> None:
    ids = ["77_4", "9", "77_0", "77_1", "78_0", "77_2", "123+1"]
    assert join_elements(ids) == ["77_[0-2,4]", "78_[0]", "9", "123+1"]

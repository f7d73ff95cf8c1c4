"""How a grid's values become a program's arguments."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.trainers.command.checking import check
from jobs.trainers.command.training import command_line
from jobs.training.context import BadConfigError
from orchestrator.config.command import program_file
from orchestrator.config.trainers import COMMAND
from orchestrator.core.types import Run

values = st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text(), max_size=2)


def run(command: Any, number: int = 0, **overrides: Any) -> Run:
    return Run(f"{number:016x}", "command", {"command": command, **overrides}, seed=7, threads=2)


@given(values)
def test_a_value_is_one_argument_whatever_stands_in_it(value: Any) -> None:
    argv = command_line(run([sys.executable, "{key}", "--key={key}", "{key}{seed}"], key=value))
    text = value if isinstance(value, str) else json.dumps(value)
    assert argv == [sys.executable, text, f"--key={text}", f"{text}7"]


def test_seed_and_threads_are_always_there() -> None:
    assert command_line(run([sys.executable, "{seed}", "{threads}"]))[1:] == ["7", "2"]


def test_a_value_is_not_filled_again() -> None:
    assert command_line(run([sys.executable, "{a}"], a="{seed}"))[1:] == ["{seed}"]


@pytest.mark.parametrize("text", ['{"json": 1}', "{}", "{ x }", "a{", "${HOME", "{1}"])
def test_other_braces_stay(text: str) -> None:
    assert command_line(run([sys.executable, text]))[1:] == [text]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (None, "expected a list"),
        ("python train.py", "is 'python train.py'; expected a list"),
        ([], "expected a list"),
        (["no-such-program"], "found no program 'no-such-program'"),
        (["/etc/passwd"], "found no program"),
        ([sys.executable, "{lr}"], "asks for 'lr', and the run has: seed, size, threads"),
    ],
)
def test_what_cannot_start_is_refused(command: Any, message: str) -> None:
    with pytest.raises(BadConfigError, match=message.replace("[", r"\[")):
        command_line(run(command, size=3))


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ({"command": "python train.py --lr={lr}"}, 'command: [python, train.py, "--lr={lr}"]'),
        ({"script": "train.py"}, "command: [python, train.py]"),
        ({"command": 'sh -c "a b'}, 'command: [python, train.py, --seed, "{seed}"]'),
        ({}, 'command: [python, train.py, --seed, "{seed}"]'),
    ],
)
def test_what_is_no_list_is_shown_as_one(keys: dict[str, Any], meant: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        command_line(Run("0" * 16, "command", keys, seed=7, threads=2))
    assert caught.value.hint == f"write {meant}"


def test_check_names_each_fault_once() -> None:
    runs = [run([sys.executable, "{lr}"], 1), run([sys.executable, "{lr}"], 2), run([sys.executable], 3)]
    (problem,) = check(runs)
    assert (problem.run_id, problem.key) == (runs[0].run_id, "command")


@pytest.mark.parametrize("length", [math.nan, math.inf, -5, 0, 0.5])
def test_a_length_that_no_run_can_have_is_refused(length: float) -> None:
    runs = [
        run([sys.executable, "-c", ""], number, **{key: length})
        for key in COMMAND.frames
        for number in (1, 2)
    ]
    messages = {problem.key: problem.message for problem in check(runs) if problem.blocks}
    assert messages == {key: f"{key}: found {length}, expected a number from 1" for key in COMMAND.frames}


def test_other_values_of_these_keys_are_the_programs_own() -> None:
    lengths = (1, 1e6, None, "short", False)
    assert not any(problem.blocks for problem in check([run(["true"], steps=one) for one in lengths]))


@given(st.text(st.sampled_from("ab '\"\\;|&()<>\n\t$#=-./"), max_size=40))
def test_any_code_of_a_shell_is_looked_into_without_harm(code: str) -> None:
    """A run starts it all the same: what is no file name is not asked for."""
    found = program_file(["sh", "-c", code])
    assert found is None or found.strip()


def test_an_empty_word_of_a_shell_is_no_program() -> None:
    assert program_file(["sh", "-c", "trap '' TERM; exec python train.py"]) is None
    assert program_file(["sh", "-c", "python train.py ''"]) == "train.py"

"""What the values of a grid mean: YAML 1.2 scalars, and texts that Hydra reads as several values."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.config.grid import parse_grid
from orchestrator.config.grid.hydra_sweeps import SweepTextError, sweep_values
from orchestrator.config.grid.model import same_value
from orchestrator.config.sweep import runs_of
from orchestrator.config.yaml_files.scalars import resolve
from orchestrator.core.errors import GridError, OrchestrateError
from orchestrator.core.types import Sweep

HEAD = "name: speed\ntrainer: benchmarl\n"


def axis(text: str) -> list[Any]:
    """The values of the one key in ``matrix``."""
    grid = parse_grid(f"{HEAD}matrix:\n  key: {text}\n", "grid.yaml")
    return [step[0] for step in grid.axes[0].steps]


@pytest.mark.parametrize(
    "text", ["60000", "60_000", "6e4", "6.0e4", "6E+4", "0xEA60", "0o165140", "+60000", "600.0e2"]
)
def test_spellings_of_one_integer(text: str) -> None:
    assert resolve(text) == 60000
    assert type(resolve(text)) is int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.0", 1.0),
        ("2.5e-5", 2.5e-5),
        ("1_0.5", 10.5),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1.", 1.0),
        ("1e300", 1e300),
    ],
)
def test_floats_stay_floats(text: str, value: float) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is float


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "off", "y", "20:00:00", "2026-01-01", "1__0", "_1", "1_", "0b1", "0x", "1e", "e4",
     "1.2.3", "=", "Yes", "nan", "inf", "tRUE", "1 000"],
)  # fmt: skip
def test_what_other_yaml_makes_numbers_or_truth_of_is_text(text: str) -> None:
    assert resolve(text) == text


def test_words() -> None:
    assert [resolve(text) for text in ("true", "True", "FALSE", "null", "~", "")] == [
        True,
        True,
        False,
        None,
        None,
        None,
    ]
    assert math.isnan(resolve(".nan"))


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000, "-9223372036854775809", "1e999", "0x" + "f" * 17])
def test_numbers_beyond_every_machine_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"64 bits|too large"):
        resolve(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_survives(number: int) -> None:
    assert resolve(str(number)) == number
    assert resolve(f"{number:_}") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_survives(number: float) -> None:
    assert same_value(resolve(repr(number))) == same_value(number)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("range(3)", [0, 1, 2]),
        ("range(1,10,3)", [1, 4, 7]),
        ("range(0,1,0.25)", [0.0, 0.25, 0.5, 0.75]),
        ("choice(a,b,'c d')", ["a", "b", "c d"]),
        ("a,b", ["a", "b"]),
        ("1,2.5,true,null", [1, 2.5, True, None]),
        ("6e4,12e4", [60000, 120000]),
        ("6.0e4,1", [60000, 1]),
        ("6e4,2.0", [60000.0, 2.0]),
        ("[64,64],[128,128]", [[64, 64], [128, 128]]),
        ("sort(3,1,2)", [1, 2, 3]),
        ("sort(3,1,2,reverse=true)", [3, 2, 1]),
        ("'a,b'", ["a,b"]),
        ("tag(x,choice(a,b))", ["a", "b"]),
    ],
)
def test_texts_that_hydra_reads_as_several_values(text: str, values: list[Any]) -> None:
    assert sweep_values(text) == values


@pytest.mark.parametrize(
    "text", ["mappo", "vmas/navigation", "relu(x)", "(a)", "a b", "${x}", "20:00:00", "f()"]
)
def test_texts_that_stand_for_themselves(text: str) -> None:
    assert sweep_values(text) is None


@pytest.mark.parametrize(
    "text", ["interval(0,1)", "glob(*)", "rnage(3)", "range(0,5", "choice()", "range(3,0)", "range(0,3,0)",
             "range(10000000000)", "a,", "hello, world!", "range(1,2,-1)", "Range(3)",
             "range(0,nan)", "range(nan)", "range(0,5,nan)", "range(0,inf)", "sort(range(nan,2))",
             "choice(1e999999,99999999999999999999)", f"range({'9' * 4400})", f"choice({'9' * 4400})",
             f"1,{'9' * 4400}", "choice(" + "[" * 5000]
)  # fmt: skip
def test_texts_that_look_like_sweeps_and_are_none(text: str) -> None:
    with pytest.raises(SweepTextError) as refused:
        sweep_values(text)
    assert len(str(refused.value)) < 600


def test_shuffle_is_the_same_every_time() -> None:
    first = axis("shuffle(range(20))")
    assert sorted(first) == list(range(20)) != first
    assert axis("shuffle(range(20))") == first


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=30) | st.from_regex(r"(range|choice|sort)\(([0-9.e,-]|nan|inf){0,30}\)", fullmatch=True)
)
@example("range(")
@example("choice(a,'b)")
@example("a,\n,b")
def test_any_text_is_values_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(SweepTextError):
        values = sweep_values(text)
        assert values is None or len(values) > 0


def test_lists_hold_values_as_they_are() -> None:
    assert axis('["a,b", "range(3)", [64, 64], {a: 1}, null, 1.0, 6e4]') == [
        "a,b", "range(3)", [64, 64], {"a": 1}, None, 1.0, 60000,
    ]  # fmt: skip


def test_one_value_is_an_axis_of_one() -> None:
    assert axis("mappo") == ["mappo"]
    assert axis("7") == [7]


def test_quotes_make_text_in_base() -> None:
    grid = parse_grid(f'{HEAD}base: {{a: "range(3)", b: "1", c: "no, never", d: \'6e4\'}}', "grid.yaml")
    assert grid.base == {"a": "range(3)", "b": "1", "c": "no, never", "d": "6e4"}


def test_truth_is_not_one() -> None:
    assert same_value(True) != same_value(1)
    assert same_value(1.0) == same_value(1)
    assert same_value({"a": [1.0], "b": 2}) == same_value({"b": 2, "a": [1]})
    grid = parse_grid(f"{HEAD}matrix: {{a: [true, 1]}}\nexclude: [{{a: 1.0}}]", "grid.yaml")
    assert [run.overrides["a"] for run in runs_of(grid).runs] == [True]


@pytest.mark.parametrize(
    ("text", "mem", "time"),
    [("mem: 4000", "4000", None), ("mem: 4g", "4G", None), ("time: 2:00:00", None, "2:00:00"),
     ("time: 90, nodes: 1", None, "90"),
     ("time: 1-12", None, "1-12"), ("time: 1-12:30:00", None, "1-12:30:00")],
)  # fmt: skip
def test_resources_take_slurms_syntax(text: str, mem: str | None, time: str | None) -> None:
    resources = runs_of(
        parse_grid(f"{HEAD}base: {{threads: 2}}\nresources: {{{text}}}", "grid.yaml")
    ).resources
    assert (resources.mem, resources.time, resources.cpus_per_task) == (mem, time, 2)


@pytest.mark.parametrize(
    "text",
    ["mem: 4X", "mem: -4G", "mem: 1.5G", "mem: true", "time: 0", "time: 1:2:3:4", "time: -5", "time: 1h",
     "gpus: -1", "gpus: true", "cpus_per_task: 0", "cpus_per_task: 1.0", "cpus_per_task: '{seed} - 1'",
     "cpus_per_task: '{a}'", "cpus_per_task: '{b}'", "cpus_per_task: {seed}", "mem: '{a}G'", "gpus: '{a}'",
     "nodes: 0", "nodes: two", "nodes: 2", "nodes: '{seed} + 2'"],
)  # fmt: skip
def test_resources_refuse_the_rest(text: str) -> None:
    with pytest.raises(GridError):
        runs_of(parse_grid(f"{HEAD}base: {{seed: 0, a: x}}\nresources: {{{text}}}", "grid.yaml"))


def test_nodes_are_for_trainers_that_know_several_and_no_part_of_a_run() -> None:
    def swept(resources: str) -> Sweep:
        text = f"name: x\ntrainer: command\nbase: {{command: [a], n: 3}}\nresources: {{{resources}}}"
        return runs_of(parse_grid(text, "grid.yaml"))

    asked = swept("nodes: '{n} + 1'")
    assert asked.resources.nodes == 4
    assert asked.runs == swept("").runs
    with pytest.raises(GridError, match="the trainer benchmarl trains on one node") as caught:
        runs_of(parse_grid(f"{HEAD}base: {{a: 1}}\nresources: {{nodes: 2}}", "grid.yaml"))
    assert (caught.value.line, caught.value.hint) == (
        HEAD.count("\n") + 2,
        "remove nodes, or train with a program of your own for several: trainer: command",
    )


@pytest.mark.parametrize(
    ("trainer", "keys", "cores"),
    [
        ("impala", "mode: parallel, actors: 4, learners: 2", 6),
        ("impala", "mode: parallel, actors: 4", 8),
        ("ppo", "mode: parallel, actors: 4", 4),
    ],
)
def test_processes_have_a_core_each_on_one_node_or_two(trainer: str, keys: str, cores: int) -> None:
    text = f"name: x\ntrainer: {trainer}\nbase: {{task: bucket_brigade/hard, {keys}}}"
    assert runs_of(parse_grid(text, "grid.yaml")).resources.cpus_per_task == cores
    both = runs_of(parse_grid(f"{text}\nresources: {{nodes: 2}}", "grid.yaml")).resources
    assert (both.nodes, both.cpus_per_task) == (2, cores // 2)


def test_processes_that_share_memory_have_one_node_and_a_core_each() -> None:
    text = "name: x\ntrainer: a2c\nbase: {task: bucket_brigade/hard, mode: asynchronous, actors: 4}"
    assert runs_of(parse_grid(text, "grid.yaml")).resources.cpus_per_task == 4
    with pytest.raises(
        OrchestrateError, match="found 2, and mode asynchronous of the trainer a2c trains on one"
    ):
        runs_of(parse_grid(f"{text}\nresources: {{nodes: 2}}", "grid.yaml"))

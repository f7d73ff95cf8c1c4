"""Expansion: deterministic, in the order written, without duplicates; one run however it is spelled."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.config.trainers import TrainerSpec, get_trainer
from orchestrator.core.errors import GridError, OrchestrateError
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Resources, Run, Sweep
from orchestrator.rundir import SweepDir

HEAD = "name: speed\ntrainer: benchmarl\n"
HOSTILE = [
    "; rm -rf ~",
    "$(touch /tmp/x)",
    "../../../etc/passwd",
    "a'b\"c\\d",
    "line\nbreak\ttab",
    "snowman ☃ and 😀",
    " leading and trailing ",
    "x" * 300,
    "-rf",
    "",
    "~",
    "null",
    "${oc.env:HOME}",
    "a,b",
    "\u2028\u202e\x7f",
]

keys = st.from_regex(r"[a-z]{1,8}(\.[a-z_]{1,8})?", fullmatch=True).filter(
    lambda key: key not in ("seed", "threads", "target")
)
scalars = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.booleans(),
    st.none(),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
)
values = st.one_of(scalars, st.lists(scalars, max_size=3))
distinct = st.lists(values, min_size=1, max_size=3, unique_by=lambda value: _same(value))
matrices = st.dictionaries(keys, distinct, min_size=1, max_size=3)


def _same(value: Any) -> str:
    if isinstance(value, list):
        return str([_same(item) for item in value])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(("number", float(value) + 0.0)) if number else str((type(value).__name__, value))


def spell(value: Any) -> str:
    """A value in YAML, every odd character escaped."""
    if isinstance(value, str):
        return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(spell, value)) + "]"
    return json.dumps(value)


def section(name: str, entries: dict[str, Any]) -> str:
    return (
        f"{name}: {{" + ", ".join(f"{spell(key)}: {spell(value)}" for key, value in entries.items()) + "}\n"
    )


def sweep_of(text: str) -> Sweep:
    return runs_of(parse_grid(HEAD + text, "grid.yaml"))


def ids(sweep: Sweep) -> list[str]:
    return [run.run_id for run in sweep.runs]


@settings(deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_expansion_is_deterministic_order_independent_and_without_duplicates(
    matrix: Any, random: Any
) -> None:
    first = sweep_of(section("matrix", matrix))
    assert ids(first) == ids(sweep_of(section("matrix", matrix)))
    assert len(set(ids(first))) == len(first.runs)
    size = 1
    for column in matrix.values():
        size *= len(column)
    assert len(first.runs) == size
    shuffled = list(matrix.items())
    random.shuffle(shuffled)
    assert sorted(ids(sweep_of(section("matrix", dict(shuffled))))) == sorted(ids(first))


@settings(deadline=None)
@given(matrices)
def test_every_value_arrives_as_written(matrix: Any) -> None:
    for run in sweep_of(section("matrix", matrix)).runs:
        for key, value in run.overrides.items():
            assert _same(value) in map(_same, matrix[key])
        assert parse(Run, json.loads(json.dumps(plain(run)))) == run


@given(st.dictionaries(keys, scalars, min_size=1, max_size=4))
def test_a_key_means_the_same_in_base_and_in_matrix(point: Any) -> None:
    listed = {key: [value] for key, value in point.items()}
    assert ids(sweep_of(section("base", point))) == ids(sweep_of(section("matrix", listed)))


def test_the_last_key_varies_fastest_and_zip_after_matrix() -> None:
    sweep = sweep_of("zip: {c: [x, y], d: [u, v]}\nmatrix:\n  b: [1, 2]\n  a: [3, 4]\n")
    points = [tuple(run.point[key] for key in "bacd") for run in sweep.runs]
    assert points == [
        (1, 3, "x", "u"), (1, 3, "y", "v"), (1, 4, "x", "u"), (1, 4, "y", "v"),
        (2, 3, "x", "u"), (2, 3, "y", "v"), (2, 4, "x", "u"), (2, 4, "y", "v"),
    ]  # fmt: skip
    assert sweep.keys == ("b", "a", "c", "d")


@pytest.mark.parametrize("frames", ["60000", "60_000", "6e4", "6.0e4", "60000.0", "0xEA60"])
def test_an_id_does_not_depend_on_the_spelling_of_numbers(frames: str) -> None:
    (run,) = sweep_of(f"base: {{experiment.max_n_frames: {frames}, task: vmas/navigation}}").runs
    # Written down: an id that changes orphans every result there is.
    assert run.run_id == "bb9b774529cb21d8"


def test_an_id_is_the_same_in_another_process_and_another_place(tmp_path: Path) -> None:
    text = section("matrix", {"algorithm": ["mappo", "iql"], "note": HOSTILE, "seed": [0, 1]})
    (tmp_path / "grid.yaml").write_text(HEAD + text)
    code = (
        "from orchestrator.config.sweep import load_sweep; from pathlib import Path\n"
        "print(*(run.run_id for run in load_sweep(Path('grid.yaml')).runs))"
    )
    root = str(Path(__file__).parents[4])
    env = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ids(sweep_of(text))


def test_what_decides_and_what_does_not() -> None:
    def one(text: str) -> str:
        return ids(sweep_of("base: {" + text + "}"))[0]

    assert one("a: 1, experiment.loggers: [csv]") == one("a: 1, experiment.render: true") == one("a: 1")
    assert (
        len(
            {
                one("a: 1"),
                one("a: 2"),
                one("a: '1'"),
                one("a: true"),
                one("a: 1, seed: 1"),
                one("a: 1, threads: 2"),
            }
        )
        == 6
    )


@pytest.mark.parametrize(
    ("point", "gpu"),
    [
        ({"experiment.train_device": "cuda:1"}, True),
        ({"++experiment.sampling_device": "cuda"}, True),
        ({"experiment": "gpu_offline"}, True),
        ({"experiment": "debug", "experiment.train_device": "cpu"}, False),
        ({"experiment.project_name": "cuda"}, False),
    ],
)
def test_runs_that_need_a_gpu(point: dict[str, str], gpu: bool) -> None:
    (run,) = sweep_of(section("base", point)).runs
    assert get_trainer("benchmarl").needs_gpu(run) is gpu


def test_hostile_values_stay_values(results: Path) -> None:
    sweep = sweep_of(section("matrix", {"note": HOSTILE}))
    assert [run.overrides["note"] for run in sweep.runs] == HOSTILE
    sweep_dir = SweepDir(results, sweep.name)
    for run in sweep.runs:
        assert set(run.run_id) <= set("0123456789abcdef")
        assert sweep_dir.run(run.run_id).path.parent == results / "speed" / "runs"


@pytest.mark.parametrize(
    "name",
    [
        *(text for text in HOSTILE if text != "null"),
        ".",
        "..",
        ".hidden",
        "a/b",
        "a b",
        "-x",
        "x\n",
        "nul\u0301",
        "x" * 101,
        "name.",
    ],
)
def test_hostile_sweep_names_are_refused(name: str) -> None:
    with pytest.raises(GridError) as caught:
        parse_grid(f"name: {spell(name)}\ntrainer: benchmarl\nbase: {{seed: 0}}\n", "grid.yaml")
    assert caught.value.line == 1


def test_exclude_takes_lists_of_values() -> None:
    text = "matrix: {algorithm: [x, y], seed: range(3)}\n"
    left = sweep_of(text + "exclude: [{algorithm: x, seed: [1, 2]}]\n")
    assert sorted((run.point["algorithm"], run.seed) for run in left.runs) == [
        ("x", 0),
        ("y", 0),
        ("y", 1),
        ("y", 2),
    ]
    with pytest.raises(GridError, match="seed is never 7"):
        sweep_of(text + "exclude: [{algorithm: x, seed: [1, 7]}]\n")
    with pytest.raises(GridError, match="an empty list"):
        sweep_of(text + "exclude: [{seed: []}]\n")


@pytest.mark.parametrize("section", ["zip", "matrix"])
def test_lists_over_several_keys_are_not_multiplied(section: str) -> None:
    steps, gone = list(range(20)), list(range(0, 20, 2))
    text = f"{section}: {{{', '.join(f'{key}: {steps}' for key in 'abc')}}}\n"
    some = f"exclude: [{{{', '.join(f'{key}: {gone}' for key in 'abc')}}}]\n"
    grid = parse_grid(f"{HEAD}base: {{seed: 0}}\n{text}{some}", "grid.yaml")
    assert len(grid.exclude) == 1
    if section == "zip":
        assert [run.point["a"] for run in runs_of(grid).runs] == list(range(1, 20, 2))


def test_every_value_of_a_list_in_exclude_must_be_one_of_its_key() -> None:
    text = "base: {seed: 0}\nzip: {a: [1, 2, 3], b: [x, y, x]}\n"
    with pytest.raises(GridError, match="b is never z"):
        sweep_of(text + "exclude: [{a: [1, 2], b: [x, y, z]}]\n")
    assert [run.point["a"] for run in sweep_of(text + "exclude: [{a: [1, 3], b: [x, y]}]\n").runs] == [2]


def test_a_list_that_is_a_value_is_one_in_exclude() -> None:
    text = "base: {x: 1}\nmatrix: {layers: [[1, 2], 1, 2], seed: [0]}\n"
    assert [run.point["layers"] for run in sweep_of(text + "exclude: [{layers: [1, 2]}]\n").runs] == [1, 2]
    zipped = "base: {seed: 0}\nzip: {a: [1, 2, 3], b: [x, y, x]}\n"
    assert [run.point["a"] for run in sweep_of(zipped + "exclude: [{a: [1, 2], b: x}]\n").runs] == [2, 3]
    with pytest.raises(GridError, match="never has a=1, b=y together"):
        sweep_of(zipped + "exclude: [{a: [1, 3], b: y}]\n")


def test_exclude_takes_away_what_agrees_and_include_adds_one_point() -> None:
    sweep = sweep_of(
        "base: {frames: 10}\nmatrix: {algorithm: [mappo, iql], device: [cpu, cuda], seed: range(2)}\n"
        "exclude: [{algorithm: iql, device: cuda}, {seed: 1, device: cuda}]\n"
        "include: [{algorithm: ippo, device: cpu, seed: 7, frames: 20}]\n"
    )
    points = [
        (p["algorithm"], p["device"], p["seed"], p["frames"]) for p in (run.point for run in sweep.runs)
    ]
    assert points == [
        ("mappo", "cpu", 0, 10), ("mappo", "cpu", 1, 10), ("mappo", "cuda", 0, 10),
        ("iql", "cpu", 0, 10), ("iql", "cpu", 1, 10), ("ippo", "cpu", 7, 20),
    ]  # fmt: skip


def test_compare_runs_every_point_on_every_target() -> None:
    text = "base: {seed: 0}\nmatrix: {a: [1, 2]}\ninclude: [{a: 3}]\ntargets: [local, cluster]\n"
    shared, compared = sweep_of(text), sweep_of(text + "compare: true\nexclude: [{a: 1, target: cluster}]\n")
    assert [run.target for run in shared.runs] == [None] * 3
    assert [(run.overrides["a"], run.target) for run in compared.runs] == [
        (1, "local"), (2, "local"), (2, "cluster"), (3, "local"), (3, "cluster"),
    ]  # fmt: skip
    assert not set(ids(shared)) & set(ids(compared))


def test_threads_ask_for_their_cores() -> None:
    assert sweep_of("matrix: {threads: [1, 4, 2]}").resources.cpus_per_task == 4
    assert sweep_of("matrix: {threads: [1, 2]}\nresources: {cpus_per_task: 8}").resources.cpus_per_task == 8


def test_resources_may_be_of_a_runs_own_keys() -> None:
    text = 'resources: {cpus_per_task: "{actors} * {threads} + 1", mem: "{actors}G", gpus: "{seed}"}'
    sweep = sweep_of(f"matrix: {{actors: [2, 1], threads: [1, 3]}}\n{text}")
    assert [sweep.needs_of(run) for run in sweep.runs] == [
        Resources(3, 0, "2G"),
        Resources(7, 0, "2G"),
        Resources(2, 0, "1G"),
        Resources(4, 0, "1G"),
    ]
    assert sweep.resources == Resources(7, 0, "2G"), "the largest of each"
    threads = sweep_of('matrix: {threads: [1, 4], a: [2]}\nresources: {cpus_per_task: "{a}"}')
    assert [threads.needs_of(run).cpus_per_task for run in threads.runs] == [2, 4], "a core for each thread"


def test_a_trainer_says_what_its_runs_occupy_and_the_grid_overrules_it() -> None:
    def occupied(run: Run) -> Resources:
        return Resources(run.threads * run.overrides["processes"], gpus=1)

    def needs(text: str) -> list[Resources]:
        grid = parse_grid(f"name: s\ntrainer: command\nmatrix: {{processes: [1, 2]}}\n{text}", "grid.yaml")
        sweep = runs_of(replace(grid, trainer=replace(grid.trainer, resources=occupied)))
        return [sweep.needs_of(run) for run in sweep.runs]

    assert needs("base: {threads: 2}") == [Resources(2, 1), Resources(4, 1)]
    assert needs("resources: {cpus_per_task: 8, mem: 1G}") == [Resources(8, 1, "1G")] * 2
    with pytest.raises(
        OrchestrateError, match=r"trainer command cannot say what the run .* occupies: KeyError"
    ):
        replace(get_trainer("command"), resources=occupied).resources_of(Run("r", "command", {}))


def test_a_run_in_several_processes_has_a_core_for_each_thread_of_each() -> None:
    text = "name: s\ntrainer: ppo\nbase: {mode: parallel, threads: 2}\nmatrix: {actors: [4, '8']}\n"
    for nodes, cores in (1, [8, 16]), (4, [2, 4]):
        sweep = runs_of(parse_grid(f"{text}resources: {{nodes: {nodes}}}", "grid.yaml"))
        assert [sweep.needs_of(run).cpus_per_task for run in sweep.runs] == cores


class OnSomeNodes(TrainerSpec):
    """A trainer of another package, of which some runs can be trained on several nodes."""

    several_nodes = True

    def refuses_nodes(self, run: Run, nodes: int) -> str:
        return "" if run.overrides["nodes"] == nodes else f"{run.overrides['nodes']} are named"


@pytest.mark.parametrize(
    ("keys", "message"),
    [("{nodes: 3}", "found 2, and 3 are named"), ("{a: 1}", "trainer mine cannot say .*: KeyError: 'nodes'")],
)
def test_a_trainer_of_one_s_own_is_asked_of_runs_that_it_has(keys: str, message: str) -> None:
    grid = parse_grid(f"name: s\ntrainer: command\nbase: {keys}\nresources: {{nodes: 2}}", "grid.yaml")
    with pytest.raises(OrchestrateError, match=message):
        runs_of(replace(grid, trainer=OnSomeNodes("mine", train="mine:train", check="mine:check")))


@pytest.mark.parametrize(
    ("trainer", "keys", "message"),
    [
        ("ppo", "{mode: parallel, actors: 3}", "actors: 3 is no multiple of it: write actors: 2"),
        ("ppo", "{seed: 0}", "mode sequential of the trainer ppo trains on one node"),
        ("ppo", "{mode: parallel, actors: few}", "actors: found 'few', expected a whole number"),
        ("impala", "{mode: parallel, actors: 1}", "actors: 1 is no multiple of it: write actors: 2"),
        (
            "impala",
            "{mode: parallel, actors: 4, learners: 3}",
            "learners: 3 is no multiple of it: write learners: 2",
        ),
        ("a2c", "{mode: asynchronous, actors: 2}", "mode asynchronous of the trainer a2c trains on one node"),
    ],
)
def test_actors_that_do_not_fit_the_nodes_are_refused(trainer: str, keys: str, message: str) -> None:
    grid = f"name: s\ntrainer: {trainer}\nbase: {keys}\nresources: {{nodes: 2}}"
    with pytest.raises(OrchestrateError, match=message):
        runs_of(parse_grid(grid, "grid.yaml"))


def test_a_preset_is_the_keys_that_it_stands_for() -> None:
    def of(text: str) -> Sweep:
        return runs_of(parse_grid(f"name: s\ntrainer: ppo\n{text}", "grid.yaml"))

    preset = of("base: {envs: 64}\nmatrix: {preset: [laptop, 28-core]}")
    keys = "{envs: 64, mode: parallel, actors: 4, batch_size: 512}"
    assert preset.runs[0] == of(f"base: {keys}").runs[0]
    assert preset.runs[1].overrides == {"mode": "parallel", "actors": 28, "envs": 64, "batch_size": 3584}
    assert preset.keys == ("mode", "actors", "envs", "batch_size")
    modes = of("base: {preset: laptop}\nmatrix: {mode: [sequential, parallel]}")
    assert [run.overrides.get("actors") for run in modes.runs] == [None, 4]
    assert [run.overrides["envs"] for run in modes.runs] == [32, 32]
    with pytest.raises(GridError, match=r"grid.yaml:3:8: preset: found 'huge', expected one of laptop"):
        of("base: {preset: huge}")
    for theirs, near in ("highend", "28-core"), ("parallel", "actors: 7, envs: 112"), ("ryzen7", "laptop"):
        with pytest.raises(GridError) as caught:
            of(f"base: {{preset: {theirs}}}")
        assert near in (caught.value.hint or "")


def test_ten_thousand_points_expand_quickly() -> None:
    text = (
        "base: {task: vmas/navigation, experiment.max_n_frames: 6e4}\n"
        "matrix: {algorithm: [mappo, iql], experiment.lr: 'range(0.001,0.051,0.001)', seed: range(100)}\n"
        "exclude: [{algorithm: iql, seed: 99}]\n"
    )
    began = time.process_time()
    assert len(sweep_of(text).runs) == 9_950
    assert time.process_time() - began < 2


def test_a_grid_that_is_not_there_is_looked_for_in_its_folder_and_in_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".hidden.yaml", "other.yaml", "sweeps/speed.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(GridError) as caught:
        load_sweep(Path("speed.yaml"))
    assert caught.value.hint == "the nearest are: sweeps/speed.yaml, other.yaml"


def test_files_that_are_no_grids(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: speed\nbase: {note: caf\xe9}\n")
    (tmp_path / "bom.yaml").write_text("\ufeff" + HEAD + "base: {seed: 0}")
    with pytest.raises(GridError, match=r"latin\.yaml:2:17: found the byte 0xe9"):
        load_sweep(tmp_path / "latin.yaml")
    with pytest.raises(GridError, match="there is no such file") as caught:
        load_sweep(tmp_path / "none.yaml")
    assert "bom.yaml" in str(caught.value.hint)
    with pytest.raises(GridError, match="is a folder"):
        load_sweep(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    for special in (tmp_path / "pipe.yaml", Path("/dev/null")):
        with pytest.raises(GridError, match="is no plain file, expected a grid file"):
            load_sweep(special)
    assert len(load_sweep(tmp_path / "bom.yaml").runs) == 1


def test_a_grid_from_the_pipe_of_a_shell() -> None:
    end, other = os.pipe()
    os.write(other, f"{HEAD}base: {{seed: 0}}\n".encode())
    os.close(other)
    try:
        assert len(load_sweep(Path(f"/dev/fd/{end}")).runs) == 1
    finally:
        os.close(end)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_grid_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(GridError):
        sweep_of(text)


def test_nesting_without_end_is_an_error_not_a_crash() -> None:
    for opening in ("[", "{a: "):
        with pytest.raises(GridError):
            sweep_of("base: {a: " + opening * 100_000)

"""Keys of some runs, grids that extend others, anchors: the same runs as by hand, or one clear error."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.config.check import check_sweep
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import load_sweep, runs_of
from orchestrator.core.errors import GridError
from orchestrator.core.types import Sweep

HEAD = "name: own\ntrainer: benchmarl\n"


def sweep_of(text: str) -> Sweep:
    return runs_of(parse_grid(HEAD + text, "grid.yaml"))


def points(sweep: Sweep) -> list[dict[str, Any]]:
    return [run.point for run in sweep.runs]


def by_hand(*wanted: dict[str, Any]) -> list[str]:
    """The ids of these points, each written as a grid of one run."""
    return [sweep_of(f"base: {json.dumps(point)}").runs[0].run_id for point in wanted]


def test_a_rule_sets_keys_of_the_runs_that_agree_and_nothing_else_of_what_they_are() -> None:
    sweep = sweep_of(
        "base: {experiment.lr: 1, task: t}\nmatrix: {algorithm: [mappo, ippo, iql], seed: [0, 1]}\n"
        "for:\n"
        "- {algorithm: [mappo, ippo], set: {experiment.lr: 2, minibatches: 4}}\n"
        "- {algorithm: mappo, seed: 1, set: {++experiment.lr: 3}}\n"
        "include: [{algorithm: mappo, seed: 7, minibatches: 8}]\n"
    )
    wanted = [
        {"algorithm": "mappo", "experiment.lr": 2, "minibatches": 4, "seed": 0},
        {"algorithm": "mappo", "++experiment.lr": 3, "minibatches": 4, "seed": 1},
        {"algorithm": "ippo", "experiment.lr": 2, "minibatches": 4, "seed": 0},
        {"algorithm": "ippo", "experiment.lr": 2, "minibatches": 4, "seed": 1},
        {"algorithm": "iql", "experiment.lr": 1, "seed": 0},
        {"algorithm": "iql", "experiment.lr": 1, "seed": 1},
        {"algorithm": "mappo", "experiment.lr": 2, "minibatches": 8, "seed": 7},
    ]
    wanted = [{"task": "t", **point} for point in wanted]
    assert points(sweep) == wanted
    assert [run.run_id for run in sweep.runs] == by_hand(*wanted)


def test_a_rule_may_hold_for_a_target_and_set_threads() -> None:
    sweep = sweep_of(
        "matrix: {a: [1, 2]}\ntargets: [local, cluster]\ncompare: true\n"
        "for: [{target: cluster, a: 2, set: {threads: 4}}]"
    )
    assert [(run.target, run.threads) for run in sweep.runs] == [
        *(("local", 1), ("cluster", 1)),
        *(("local", 1), ("cluster", 4)),
    ]
    assert [sweep.needs_of(run).cpus_per_task for run in sweep.runs] == [1, 1, 1, 4]


names, numbers = st.sampled_from("abcd"), st.integers(0, 2)
conditions = st.dictionaries(
    names, st.lists(numbers, min_size=1, max_size=2, unique=True), min_size=1, max_size=2
)
rules = st.lists(
    st.tuples(conditions, st.dictionaries(st.sampled_from("xyz"), numbers, min_size=1)), max_size=4
)


def agrees(point: dict[str, Any], when: dict[str, list[int]]) -> bool:
    return all(point[key] in values for key, values in when.items())


@settings(max_examples=30, deadline=None)
@given(rules)
def test_rules_are_what_a_plain_loop_makes_of_them(chosen: list[tuple[Any, Any]]) -> None:
    plain = [{"x": 9, "d": 0, "a": a, "b": b, "c": c} for a, b, c in itertools.product(range(3), repeat=3)]
    plain += [{"x": 9, "a": 0, "b": 0, "c": 9, "d": d} for d in (1, 2)]
    chosen = [(when, values) for when, values in chosen if any(agrees(point, when) for point in plain)]
    written = ", ".join(json.dumps({**when, "set": values}) for when, values in chosen)
    sweep = sweep_of(
        "base: {x: 9, d: 0}\nmatrix: {a: [0, 1, 2], b: [0, 1, 2]}\nzip: {c: [0, 1, 2]}\n"
        f"include: [{{a: 0, b: 0, c: 9, d: 1}}, {{a: 0, b: 0, c: 9, d: 2}}]\nfor: [{written}]\n"
    )
    wanted = [{**point, "seed": 0} for point in plain]
    for before, point in zip(plain, wanted, strict=True):
        for when, values in chosen:
            if agrees(before, when):
                point.update(values)
    assert points(sweep) == wanted


WHOLE = {
    "base": "{x: 1, text: '1', nothing: , long: \"a, b # é \\U0001F600\", ratio: 1.0, '<<': 5, '7': ~}",
    "matrix": '{a: [1, 2], b: "range(0, 3)", mode: [no, 20:00:00, 0x10]}',
    "zip": "{c: [u, v], d: [[64, 64], {e: 1_000}]}",
    "for": "[{a: 1, set: {w: 2}}, {a: [1, 2], c: u, set: {y: [[1, {z: ''}]]}}]",
    "exclude": "[{a: 1, b: 2}]",
    "include": "[{a: 3, b: 0, mode: no, c: u, d: w}]",
    "resources": "{time: 2:00:00, mem: 4G}",
}
pieces = st.lists(st.sampled_from(sorted(WHOLE)), unique=True)


@settings(max_examples=20, deadline=None)
@given(pieces)
def test_a_grid_in_two_files_is_the_grid_in_one(tmp_path_factory: Any, moved: list[str]) -> None:
    folder = tmp_path_factory.mktemp("grids")
    (folder / "other.yaml").write_text("".join(f"{name}: {WHOLE[name]}\n" for name in moved) or "base:\n")
    rest = "".join(f"{name}: {text}\n" for name, text in WHOLE.items() if name not in moved)
    (folder / "grid.yaml").write_text(f"{HEAD}extends: other.yaml\n{rest}")
    found = load_sweep(folder / "grid.yaml")
    whole = sweep_of("".join(f"{name}: {text}\n" for name, text in WHOLE.items()))
    assert found.runs == whole.runs
    assert found.resources == whole.resources
    again = runs_of(parse_grid(found.grid_text, "elsewhere/0001.yaml"))
    assert again.runs == whole.runs, found.grid_text
    assert again.resources == whole.resources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_grid_says_itself_comes_before_what_it_inherits(folder: Path) -> None:
    (folder / "far.yaml").write_text(
        "base: {x: 1, y: 1}\ntargets: [cluster]\nresources: {mem: 1G, gpus: 1}\n"
    )
    (folder / "near.yaml").write_text(
        "extends: far.yaml\nname: near\ntrainer: benchmarl\nbase: {y: 2, +z: 2}\n"
        "matrix: {a: [1], seed: [0]}\n"
        "for: [{a: 1, set: {w: 1, z: 7}}, {a: 1, set: {z: 7}}, {a: 5, set: {q: 1}}, {b: 1, set: {q: 1}}]\n"
        "exclude: [{a: 5}, {b: 1}]\ninclude: [{a: 9, seed: 9}]\nresources: {gpus: 2}\n"
    )
    (folder / "grid.yaml").write_text(
        "extends: [near.yaml]\nname: own\nmatrix: {seed: [4, 5], x: [3], z: [8]}\n"
        "include: []\nexclude: [{seed: 5}]\n"
    )
    sweep = load_sweep(Path("grid.yaml"))
    assert points(sweep) == [{"a": 1, "seed": 4, "x": 3, "y": 2, "z": 8, "w": 1}]
    assert (sweep.name, sweep.targets, sweep.resources.gpus, sweep.resources.mem) == (
        "own",
        ("cluster",),
        2,
        "1G",
    )
    assert not re.search("q|extends|anchors|'5'", sweep.grid_text.partition("\n")[2]), sweep.grid_text
    (folder / "grid.yaml").write_text("extends: near.yaml\n")
    with pytest.raises(GridError, match="the grid has no name") as caught:
        load_sweep(Path("grid.yaml"))
    assert caught.value.hint == "a name is not inherited: add one"


def test_plug_ins_of_an_inherited_grid_are_found_from_its_own_folder(folder: Path) -> None:
    (folder / "shared" / "deep").mkdir(parents=True)
    (folder / "mine").mkdir()
    (folder / "shared/deep/base.yaml").write_text(
        "trainer: benchmarl\nbase: {a: 1}\nplugins: [./games, ../models, installed]\n"
    )
    (folder / "mine/grid.yaml").write_text("name: own\nextends: ../shared/deep/base.yaml\n")
    sweep = load_sweep(Path("mine/grid.yaml"))
    wanted = [str(folder / "shared/deep/games"), str(folder / "shared/models"), None]
    assert [plugin.folder for plugin in sweep.plugins] == wanted
    assert parse_grid(sweep.grid_text, "mine/other.yaml").plugins == sweep.plugins


def test_a_check_names_the_file_and_the_rule_that_a_value_comes_from(folder: Path) -> None:
    (folder / "base.yaml").write_text("trainer: command\nbase: {command: [no-such-program]}\n")
    (folder / "grid.yaml").write_text(
        "name: own\nextends: base.yaml\nmatrix: {a: [1, 2]}\n"
        "for:\n- a: 2\n  set: {command: [no-such-either]}\n"
    )
    problems = check_sweep(load_sweep(Path("grid.yaml"))).problems
    assert {str(problem).split()[0] for problem in problems} == {"base.yaml:2:8:", "grid.yaml:6:9:"}


def test_anchors_and_merge_keys_stand_for_what_they_name() -> None:
    sweep = sweep_of(
        "anchors: {one: &one {x: 1, y: 1}, two: &two {y: 2, z: 2}, list: &list [3, 4]}\n"
        "base: {<<: [*one, *two], z: 3, '<<': text}\nmatrix: {a: *list, b: &again [5], c: *again}\n"
    )
    plain = sweep_of("base: {x: 1, y: 1, z: 3, '<<': text}\nmatrix: {a: [3, 4], b: [5], c: [5]}\n")
    assert sweep.runs == plain.runs


HOSTILE = {
    "base: *nowhere": "grid.yaml:3:7: found *nowhere",
    "anchors: {a: &a [*a]}": "found *a, and no &a that ends above it",
    "anchors: {&a b: 1}": "found &a on a key",
    "anchors: {b: &b x, *b : 1}": "found an alias as a key",
    "base: {<<: {a: 1}, <<: {b: 1}}": "found << twice",
    "base: {<<: [[a]]}": "<<: found a list, expected a mapping",
    "anchors: {token: &t abc123}\nbase: {a: *t}": "found token, which looks like a secret",
    "anchors: {a: {b: [{password: hunter22}]}}\nbase: {a: 1}": "looks like a secret",
    "base: {a: 1}\nfor: 1": "for: found 1, expected a list of mappings",
    "base: {a: 1}\nfor: [[a]]": "for: found a list",
    "base: {a: 1}\nfor: [{}]": "for: found an empty mapping",
    "base: {a: 1}\nfor: [{a: [], set: {b: 1}}]": "found an empty list for a",
    "base: {a: 1}\nfor: [{a: 1, set: {}}]": "set: found an empty mapping",
    "base: {a: 1}\nfor: [{a: 1, set: }]": "set: found nothing",
    "base: {a: 1}\nfor: [{a: 1, set: {a: 2}}]": "which is the entry's own condition",
    "base: {a: 1}\nfor: [{a: 1, set: {seed: -1}}]": "seed: found -1",
    "base: {a: 1}\nfor: [{a: 1, set: {target: x}}]": "found target as a key",
    "base: {a: 1}\nfor: [{a: 1, set: {experiment.save_folder: x}}]": "which a grid may not set",
    "base: {a: 1}\nfor: [{a: 1, set: {api_token: x}}]": "looks like a secret",
    "base: {a: 1}\nfor: [{a: true, set: {b: 1}}]": "a is never true",
    "base: {a: 1}\nfor: [{a: 1, matrix: {b: [1, 2]}}]": "for: found matrix, and an entry gives",
    "base: {a: 1}\nfor: [{a: 1, set: {b: 1}, zip: {c: [1]}}]": "for: found zip, and an entry gives",
    "base: {a: 1}\nextends: [1]": "extends: found 1, expected the name",
    "base: {a: 1}\nextends: ''": "extends: found",
    "base: {a: 1}\nextends: nope.yaml": "extends: found nope.yaml, and there is no such file",
    'base: {a: 1}\nextends: "a\\tb"': "there is no such file",
    f"base: {{a: 1}}\nextends: {'x' * 5000}": "there is no such file",
    "base: {a: 1}\nextends: .": "is a folder, expected a grid file",
    "base: {a: 1}\nextends: pipe": "is no plain file",
    "base: {a: 1}\nextends: bytes.yaml": "bytes.yaml:1:1: found the byte 0xff",
    "base: {a: 1}\nextends: grid.yaml": "which extends this file",
    "base: {a: 1}\nextends: loop.yaml": "loop.yaml:1:10: extends: found sub/../loop.yaml, which extends",
    "base: {a: 1}\nextends: two.yaml": "two.yaml:2:1: found bsae, expected one of",
    "base: {a: 1}\nextends: list.yaml": "list.yaml:1:7: base: found a list, expected a mapping",
    "base: {a: 1}\nextends: typed.yaml": "typed.yaml:1:14: seed: found x, expected a whole number",
    "base: {a: 1}\nextends: secret.yaml": "secret.yaml:1:18: found password, which looks like a secret",
    "base: {a: 1}\nextends: many.yaml": "extends: found more than 50 files",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_grids_end_in_one_line(folder: Path, text: str) -> None:
    (folder / "grid.yaml").write_text(HEAD + text + "\n")
    (folder / "bytes.yaml").write_bytes(b"\xff\xfe")
    (folder / "loop.yaml").write_text("extends: sub/../loop.yaml\n")
    (folder / "sub").mkdir()
    (folder / "two.yaml").write_text("base: {b: 1}\nbsae: {c: 1}\n")
    (folder / "list.yaml").write_text("base: [1]\n")
    (folder / "typed.yaml").write_text("base: {seed: x}\n")
    (folder / "secret.yaml").write_text("base: {password: hunter22}\n")
    (folder / "empty.yaml").write_text("base:\n")
    (folder / "many.yaml").write_text(f"extends: [{', '.join(['empty.yaml'] * 60)}]\n")
    os.mkfifo(folder / "pipe")
    with pytest.raises(GridError, match=re.escape(HOSTILE[text])) as caught:
        load_sweep(Path("grid.yaml"))
    assert "\n" not in str(caught.value)


def bombs() -> Iterator[str]:
    doubled = "".join(f"  b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12))
    yield f"anchors:\n  b0: &b0 [1, 2]\n{doubled}base: {{a: *b11}}\n"
    chain = "".join(f"  c{n}: &c{n} [[[[*c{n - 1}]]]]\n" for n in range(1, 300))
    yield f"anchors:\n  c0: &c0 [1]\n{chain}base: {{a: *c299}}\n"


@pytest.mark.parametrize("text", tuple(bombs()), ids=["wide", "deep"])
def test_a_bomb_of_aliases_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(GridError, match=r"aliases stand for more than|nested more than 20 deep"):
        sweep_of(text)
    assert time.process_time() - began < 2


snippets = st.sampled_from(
    ["base", "for", "extends", "anchors", "set", "matrix", ": ", "[", "]", "{", "}", ", ", "\n", "\n  ", "- ",
     "*a", "&a ", "<<", "a", "1", "other.yaml", "'", "range(2)", "null"]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(snippets, max_size=25).map("".join))
def test_any_text_of_these_sections_is_a_grid_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(GridError):
        sweep_of(text)
    with contextlib.suppress(GridError):
        sweep_of(f"matrix: {{a: [1, 2]}}\nfor: [{{{text}}}]")

from __future__ import annotations

import pytest

from orchestrator.core.errors import NotFoundError
from orchestrator.core.labels import run_labels
from orchestrator.rundir import IndexRow
from orchestrator.status.select_runs import one_run, select_runs

ROWS = [
    IndexRow(
        f"{number:016x}", True, {"algorithm": algorithm, "experiment.lr": lr, "render": False, "seed": seed}
    )
    for number, (algorithm, lr, seed) in enumerate(
        [("mappo", 1e-4, 0), ("mappo", 1e-4, 1), ("iql", 1e-4, 0), ("iql", 5.0, 0)], start=0xAB0
    )
]


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("algorithm=mappo", 2),
        ("algorithm=mappo,seed=1", 1),
        ("lr=0.0001", 3),
        ("experiment.lr=1e-4", 3),
        ("lr=5", 1),
        ("render=false", 4),
        ("algorithm=nope", 0),
        ("nokey=1", 0),
        ("0000000000000ab", 4),
        ("0000000000000ab1", 1),
        ("", 0),
    ],
)
def test_selectors(selector: str, count: int) -> None:
    assert len(select_runs(ROWS, selector)) == count


def test_a_name_that_fits_several_says_which() -> None:
    with pytest.raises(NotFoundError, match=r"fits 2 runs \(0000000000000ab0, 0000000000000ab1\)"):
        one_run(ROWS, "algorithm=mappo")
    with pytest.raises(NotFoundError, match="no run fits"):
        one_run(ROWS, "zz")


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("algorithm=mappo", "name one by more keys: algorithm=mappo,seed=0, or by its id: 0000000000000ab0"),
        ("algorithm=iql", "name one by more keys: algorithm=iql,lr=0.0001, or by its id: 0000000000000ab2"),
        ("0000", "name one by more keys: algorithm=mappo,lr=0.0001,seed=0, or by its id: 0000000000000ab0"),
        ("algorithm=mapo", "did you mean algorithm=mappo?"),
        ("algorithm=dqn", "algorithm is one of: mappo, iql"),
        ("algoritm=mappo", "did you mean algorithm=mappo?"),
        ("colour=red", "runs have the keys algorithm, lr, render, seed"),
        ("algorithm=iql,seed=1", "no run has all of these values"),
        ("zz", "`orchestrate status SWEEP` lists ids and keys"),
    ],
)
def test_the_hint_says_what_to_type(selector: str, hint: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        one_run(ROWS, selector)
    assert (caught.value.hint or "").startswith(hint)


ODD = [
    IndexRow(f"{number:016x}", True, {"flag": flag, "net.layers": layers, "size": size, "seed": 0})
    for number, (flag, layers, size) in enumerate(
        [(True, [64, 64], 1), (None, [128], "x=1,y=2"), (None, [], "x=1"), (None, {"a": [1, 2]}, "")]
    )
]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("flag=true,net.layers=[64, 64],size=1,seed=0", 0),
        ("layers=[64,64],seed=0", 0),
        ("layers=[128],size=x=1,y=2,seed=0", 1),
        ("size=x=1", 2),
        ("flag=null,layers=[]", 2),
        ('layers={"a": [1, 2]},seed=0', 3),
        ('seed=0,size=""', 3),
    ],
)
def test_values_are_typed_as_tables_show_them(selector: str, found: int) -> None:
    assert one_run(ODD, selector) == ODD[found]


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("flag=maybe", "flag is one of: true, null"),
        ("layers=[64, 46],seed=0", "did you mean layers=[64, 64]?"),
        ("layers=[64, 64],sead=0", "did you mean seed=0?"),
        ("size=x=1,y=2,flag=true", "no run has all of these values; `orchestrate status odd` lists"),
    ],
)
def test_hints_know_values_with_commas(selector: str, hint: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        one_run(ODD, selector, "odd")
    assert (caught.value.hint or "").startswith(hint)


def test_runs_that_no_key_tells_apart_are_named_by_id() -> None:
    twins = [IndexRow(f"{number}" * 16, True, {"task": "a,b", "seed": 0}) for number in (1, 2)]
    with pytest.raises(NotFoundError) as caught:
        one_run(twins, "seed=0")
    assert caught.value.hint == "name one by its id: 11111111"


def test_labels_show_only_what_differs() -> None:
    assert run_labels([row.point for row in ROWS])[3] == "iql lr=5.0 seed=0"
    assert run_labels([{"a": 1, "b": "x"}]) == ["a=1 x"]
    assert run_labels([{"a.lr": 1, "b.lr": 2}, {"a.lr": 2, "b.lr": 1}, {"a.lr": 1, "b.lr": 1}]) == [
        "a.lr=1 b.lr=2",
        "a.lr=2 b.lr=1",
        "a.lr=1 b.lr=1",
    ]


def test_a_key_that_benchmarl_has_twice_is_short_where_one_of_them_varies() -> None:
    on, off = "experiment.on_policy_n_envs_per_worker", "experiment.off_policy_n_envs_per_worker"
    one = [{on: number} for number in (60, 600)]
    assert run_labels(one) == ["n_envs=60", "n_envs=600"]
    both = [{on: number, off: other} for number in (60, 600) for other in (10, 20)]
    assert run_labels(both)[0] == "on_policy_n_envs_per_worker=60 off_policy_n_envs_per_worker=10"
    rows = [IndexRow(f"{number:016x}", True, point) for number, point in enumerate(both)]
    assert len(select_runs(rows, "on_policy_n_envs_per_worker=60")) == 2
    assert len(select_runs(rows, "n_envs=60")) == 2
    assert run_labels([{"on_policy_": 1}, {"on_policy_": 2}]) == ["on_policy_=1", "on_policy_=2"]


def test_a_key_that_is_null_is_not_one_that_is_absent() -> None:
    assert run_labels([{"flag": None, "seed": 0}, {"seed": 0}]) == ["flag=null", ""]


def test_keys_that_advance_together_are_all_named() -> None:
    """Any of them may be the cause of a difference."""
    points = [
        {"algorithm.gamma": gamma, "experiment.lr": lr, "seed": seed}
        for gamma, lr in ((0.9, 0.001), (0.99, 0.003))
        for seed in (0, 1)
    ]
    assert run_labels(points) == [
        "gamma=0.9 lr=0.001 seed=0",
        "gamma=0.9 lr=0.001 seed=1",
        "gamma=0.99 lr=0.003 seed=0",
        "gamma=0.99 lr=0.003 seed=1",
    ]
    devices = [{"train": device, "sample": device} for device in ("cpu", "cuda")]
    assert run_labels(devices) == ["train=cpu sample=cpu", "train=cuda sample=cuda"]
    assert run_labels([{"a": 1, "b": 1}, {"a": 2, "b": 2}]) == ["a=1 b=1", "a=2 b=2"]


def test_of_a_key_that_benchmarl_has_twice_one_is_enough_while_both_agree() -> None:
    on, off = "experiment.on_policy_n_envs_per_worker", "experiment.off_policy_n_envs_per_worker"
    assert run_labels([{on: number, off: number} for number in (60, 600)]) == ["n_envs=60", "n_envs=600"]
    assert run_labels([{on: number, off: 2 * number} for number in (60, 600)])[0] == (
        "on_policy_n_envs_per_worker=60 off_policy_n_envs_per_worker=120"
    )


def test_the_name_of_a_sweep_stands_for_what_is_the_same_in_all_of_it() -> None:
    points = [
        {"sweep": sweep, "lr": lr, "algorithm": algorithm}
        for sweep, lr in (("old", 0.1), ("new", 0.2))
        for algorithm in ("mappo", "iql")
    ]
    assert run_labels(points) == ["old mappo", "old iql", "new mappo", "new iql"]


def test_text_that_two_keys_share_is_named() -> None:
    points = [{"train": a, "sample": b} for a in ("cpu", "cuda") for b in ("cpu", "cuda")]
    assert run_labels(points)[1] == "train=cpu sample=cuda"

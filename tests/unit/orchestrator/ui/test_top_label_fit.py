from __future__ import annotations

from itertools import product

import pytest
from rich.cells import cell_len

from orchestrator.ui.top.label_fit import fitted

LABELS = [
    f"{algorithm} level=1 sd={sd} task=t/{task} seed={seed}"
    for algorithm, sd, task, seed in product("ab", (0.1, 0.2), ("one", "two"), range(3))
]


def test_labels_that_fit_are_not_changed() -> None:
    assert fitted(LABELS, 60) == ("", {label: label for label in LABELS})
    assert fitted([], 5) == ("", {})


@pytest.mark.parametrize("width", [12, 16, 24, 28])
def test_labels_that_are_too_long_stay_different_and_share_the_title(width: int) -> None:
    shared, texts = fitted(LABELS, width)
    assert shared.split("  ")[0] == "level=1"
    assert len({*texts.values()}) == len(LABELS)
    assert max(map(cell_len, texts.values())) <= width


def test_the_names_of_keys_go_before_values_do() -> None:
    title, texts = fitted(LABELS, 16)
    assert texts[LABELS[0]] == "a 0.1 t/one 0"
    assert title == "level=1  sd, task, seed"


def test_names_of_keys_stay_where_values_alone_are_alike() -> None:
    labels = ["long_key=1 seed=0", "other_key=1 seed=0"]
    assert len({*fitted(labels, 8)[1].values()}) == 2


def test_a_single_label_keeps_its_ends() -> None:
    assert fitted(["a level=1 task=t/one seed=0"], 8)[1] == {"a level=1 task=t/one seed=0": "a 1 …e 0"}


def test_a_list_is_a_part_as_a_whole() -> None:
    labels = [f"layers=[{width}, 64] algorithm=mappo" for width in (32, 64)]
    title, texts = fitted(labels, 16)
    assert title == "algorithm=mappo"
    assert [*texts.values()] == ["layers=[32, 64]", "layers=[64, 64]"]


def test_lists_of_the_same_items_stay_different() -> None:
    labels = [f"v={value} algorithm=mappo" for value in ("[1, 2, 2, 3]", "[1, 2, 3]")]
    assert [*fitted(labels, 16)[1].values()] == ["v=[1, 2, 2, 3]", "v=[1, 2, 3]"]
    assert [*fitted(labels, 12)[1].values()] == ["[1, 2, 2, 3]", "[1, 2, 3]"]


def test_text_with_spaces_and_equals_signs_stays_with_its_key() -> None:
    labels = [f'mappo note={word} or b seed=0 of=["x=1", "y={word}"]' for word in ("one", "two")]
    title, texts = fitted(labels, 30)
    assert title == "mappo seed=0  note, of"
    assert [*texts.values()] == ['one or b ["x=1", "y=one"]', 'two or b ["x=1", "y=two"]']


def test_labels_that_would_be_alike_without_what_they_share_stay_whole() -> None:
    assert fitted(["alpha beta", "beta alpha"], 9)[0] == ""
    assert len({*fitted(["alpha beta", "beta alpha"], 9)[1].values()}) == 2

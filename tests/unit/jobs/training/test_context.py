"""The interface between worker and trainer."""

from __future__ import annotations

import pytest

from jobs.training.context import EXACTNESS, Outcome


@pytest.mark.parametrize("word", EXACTNESS)
def test_an_outcome_takes_the_words_of_exactness(word: str) -> None:
    assert Outcome(1, 1, word).exactness == word


@pytest.mark.parametrize("word", ["very", "", "Exact", None])
def test_an_outcome_refuses_other_words(word: str) -> None:
    with pytest.raises(
        ValueError, match=r"^exactness is .*; expected one of \['exact', 'no progress lost', "
    ):
        Outcome(1, 1, word)

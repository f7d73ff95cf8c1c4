"""Which version of a run counts, of this tree's and of its copies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rundir.versions import RunVersion, version_that_counts

VERSIONS = st.builds(RunVersion, st.booleans(), st.integers(0, 4), st.integers(0, 3))
OTHERS = st.lists(VERSIONS, max_size=4)


@given(VERSIONS, OTHERS, st.integers(0, 4), st.booleans())
def test_a_result_beats_none_and_the_first_of_two_stays(
    own: RunVersion, others: list[RunVersion], retried: int, held: bool
) -> None:
    number = version_that_counts(own, others, retried, held=held)
    versions = [own, *others]
    assert number == 0 or versions[number].attempt > retried
    if held or own.done:
        assert number == 0
        return
    done = [one for one, found in enumerate(versions) if found.done and (one == 0 or found.attempt > retried)]
    if done:
        assert number == done[0]
    else:
        valid = [found for one, found in enumerate(versions) if one == 0 or found.attempt > retried]
        assert versions[number].frames == max(found.frames for found in valid)


@given(VERSIONS, OTHERS, VERSIONS)
def test_a_further_source_never_replaces_a_result(
    own: RunVersion, others: list[RunVersion], later: RunVersion
) -> None:
    before = version_that_counts(own, others, 0, held=False)
    if [own, *others][before].done:
        assert version_that_counts(own, [*others, later], 0, held=False) == before


def test_equal_versions_are_read_in_the_sweep_s_folder() -> None:
    assert version_that_counts(RunVersion(False, 1, 5), [RunVersion(False, 1, 5)], 0, held=False) == 0

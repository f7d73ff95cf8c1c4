"""Where a results tree is, by the words of a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.locations import parse_place
from orchestrator.core.errors import OrchestrateError


@pytest.fixture
def profiles(own_world: Path) -> Path:
    folder = own_world / ".config" / "orchestrate" / "profiles"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("ssh: lab-login\nfolder: $WORK/orchestrate\n")
    return folder


def test_this_machine() -> None:
    place = parse_place("local")
    assert (place.host, place.folders) == (None, ())


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("me@host:results", "me@host", "results"),
        ("host:~/a b/results", "host", "~/a b/results"),
        ("host:$WORK/x:y", "host", "$WORK/x:y"),
        ("host:/", "host", "/"),
    ],
)
def test_a_machine_and_a_path(text: str, host: str, path: str) -> None:
    place = parse_place(text)
    assert (place.host, place.folders) == (host, (path,))


def test_a_profile_says_where_its_tree_is(profiles: Path) -> None:
    for text in ("lab", str(profiles / "lab.yaml")):
        place = parse_place(text)
        assert (place.host, place.folders) == ("lab-login", ("$WORK/orchestrate/results",))
        assert place.profile is not None
        assert place.profile.name == "lab"


def test_a_cluster_of_this_machine_has_its_tree_here() -> None:
    assert parse_place("cpu").host is None


def test_any_other_name_is_ssh_s() -> None:
    place = parse_place("my-cluster")
    assert place.host == "my-cluster"
    assert place.folders == ("~/sky_workdir/results", "~/orchestrate/results", "~/results")


@pytest.mark.parametrize(
    "text", ["", "host:", "-oProxyCommand=x:y", "a b:c", "a b", "no/such.yaml", "x\n:y", ":x"]
)
def test_what_names_no_place(text: str) -> None:
    with pytest.raises(OrchestrateError):
        parse_place(text)


@given(st.text(max_size=40))
def test_a_name_for_ssh_is_never_an_option(text: str) -> None:
    try:
        place = parse_place(text)
    except OrchestrateError:
        return
    assert place.host is None or not place.host.startswith("-")

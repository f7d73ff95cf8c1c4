"""What a sync makes of names: those of sources, of rsync's lists, of manifests."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    DamagedFileError,
    HostError,
    OrchestrateError,
    StorageError,
    UnreachableError,
)
from orchestrator.core.machine.ssh import Host
from orchestrator.rundir import RunDir
from orchestrator.rundir.attempts.absent_files import mark_absent, read_absent
from orchestrator.rundir.copies.synced import is_brought, is_plain, kind_of
from orchestrator.rundir.copy_origin import read_copy
from orchestrator.sync.request import kinds
from orchestrator.sync.rsync import Listing, error_of
from orchestrator.sync.source import Source, find_source
from orchestrator.sync.verify import check, may_be_listed, staged_result
from orchestrator.sync.wandb import without_login

RUN_ID = "0123456789abcdef"


@given(st.text(max_size=60))
def test_a_path_that_is_taken_stays_below(text: str) -> None:
    base = Path("/base")
    if is_plain(text):
        joined = Path(base / text)
        assert joined.is_relative_to(base)
        assert ".." not in joined.parts
        assert joined != base
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)


@given(
    st.lists(st.sampled_from(["..", ".", "", "a", "~", "etc", "-rf"]), min_size=1, max_size=5).map("/".join)
)
def test_paths_that_lead_up_or_away_are_not_taken(text: str) -> None:
    plain = is_plain(text)
    assert plain == (str(PurePosixPath(text)) == text and ".." not in text.split("/") and text[0] not in "/.")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_characters="\0/\n\r\\", codec="utf-8"), min_size=1, max_size=20),
        st.integers(0, 2**40),
        max_size=5,
    )
)
def test_a_list_is_read_as_it_was_written(files: dict[str, int]) -> None:
    listing = Listing()
    for name, size in files.items():
        listing.take(b">>f+++++++++ %d 2026/11/21-12:03:04 " % size + name.encode())
    listing.take(b">cd+++++++++ 4096 2026/11/21-12:03:04 folder/")
    listing.take(b">.f          7 2026/11/21-12:03:04 known")
    listing.take(b'skipping non-regular file "odd"')
    listing.take(b"anything else")
    assert [(entry.path, entry.size) for entry in listing.entries[:-2]] == list(files.items())
    assert all(entry.new and not entry.folder for entry in listing.entries[:-2])
    folder, known = listing.entries[-2:]
    assert (folder.path, folder.folder, known.new) == ("folder", True, False)
    assert listing.special == ["odd"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("run.json", ""),
        ("retired-3.json", ""),
        ("attempts/1/claim", ""),
        ("attempts/12/end.json", ""),
        ("attempts/1/metrics.jsonl", "metrics"),
        ("attempts/1/checkpoints/x.pt", "checkpoints"),
        ("attempts/1/events.out.tfevents.1.host", "tensorboard"),
        ("attempts/1/wandb/offline-run-1/run-1.wandb", "wandb"),
        ("attempts/1/wandb.tar", "wandb"),
        ("attempts/1/log.txt", "logs"),
        ("attempts/1/scratch/x", None),
        ("attempts/x/log.txt", None),
        ("notes/log.txt", None),
        ("log.txt", None),
    ],
)
def test_kinds_of_files(path: str, kind: str | None) -> None:
    assert kind_of(PurePosixPath(path)) == kind


@pytest.mark.parametrize(
    ("path", "brought"),
    [
        ("grids/0001.yaml", True),
        ("code/0123456789abcdef/tree/.gitignore", True),
        ("code/.draft.tmp/tree/x", False),
        (f"runs/{RUN_ID}/run.json", True),
        (f"runs/{RUN_ID}/result.json", False),
        (f"runs/{RUN_ID}/.absent.json", False),
        (f"runs/{RUN_ID}/attempts/1/result.json", True),
        (f"runs/{RUN_ID}/attempts/1/.x.0123.tmp", False),
        (f"runs/{RUN_ID}/attempts/1/.partial/x", False),
        ("journals/1.mail", False),
        ("journals/1.jsonl", True),
        (".lock", False),
        (".synced/state.json", False),
        ("sources/x/grids/0001.yaml", False),
        ("heard/x.json", False),
        ("uploads.jsonl", False),
        ("index.tsv", False),
        ("notes.md", True),
    ],
)
def test_what_is_for_others_to_have(path: str, brought: bool) -> None:
    assert is_brought(PurePosixPath(path)) == brought


def staged(tmp_path: Path, result: object) -> RunDir:
    run = RunDir(tmp_path / RUN_ID)
    run.path.mkdir(exist_ok=True)
    run.result_path.write_text(json.dumps(result))
    return run


@given(path=st.text(min_size=1, max_size=30).map("attempts/{}".format), size=st.integers(-5, 5))
def test_a_manifest_is_of_files_below_or_none(
    tmp_path_factory: pytest.TempPathFactory, path: str, size: int
) -> None:
    folder = tmp_path_factory.mktemp("staged")
    item = {"path": path, "sha256": "", "bytes": size, "required": True}
    run = staged(folder, {"run_id": RUN_ID, "attempt": 1, "manifest": [item]})
    try:
        result = staged_result(run)
    except DamagedFileError:
        assert size < 0 or not may_be_listed(path)
    else:
        assert size >= 0
        assert is_plain(path)
        assert check(run, result.manifest).absent


@pytest.mark.parametrize(
    ("path", "listable"),
    [
        ("attempts/1/metrics.jsonl", True),
        ("attempts/1/checkpoints/ünd so.pt", True),
        (f"attempts/1/{'n' * 255}", True),
        (f"attempts/1/{'ü' * 128}", False),
        ("attempts/1/" + "/".join(["n" * 200] * 5), False),
        ("attempts/1/half a character: \ud800", False),
        ("attempts/1/a byte: \udc80", False),
        ("attempts/1/.hidden", False),
        ("attempts/1/.x.0123.tmp", False),
        ("attempts/1/../../x", False),
        ("attempts", False),
        ("result.json", False),
        ("run.json", False),
        ("retired-1.json", False),
        (".absent.json", False),
        ("notes", False),
    ],
)
def test_what_a_result_may_list(path: str, listable: bool) -> None:
    assert may_be_listed(path) == listable


def test_a_mark_that_is_none_is_the_fault_of_its_run(tmp_path: Path) -> None:
    run = staged(tmp_path, {"run_id": RUN_ID, "attempt": 1, "manifest": []})
    (run.path / ".absent.json").write_text("[" * 100_000)
    with pytest.raises(DamagedFileError, match="nested too deeply"):
        staged_result(run)


@pytest.mark.parametrize(
    "result",
    [
        [],
        {},
        {"run_id": "f" * 16, "attempt": 1, "manifest": []},
        {"run_id": RUN_ID, "attempt": "1", "manifest": []},
        {"run_id": RUN_ID, "attempt": True, "manifest": []},
        {"run_id": RUN_ID, "attempt": -1, "manifest": []},
        {"run_id": RUN_ID, "attempt": 10**300, "manifest": []},
        {"run_id": RUN_ID, "attempt": 1, "manifest": [{"path": "x"}]},
    ],
)
def test_what_is_no_result(tmp_path: Path, result: object) -> None:
    with pytest.raises(DamagedFileError):
        staged_result(staged(tmp_path, result))


def test_two_sources_never_share_a_name() -> None:
    roots = ("/a/results", "/b/results", "/a/results2")
    sources = [Source(root, host) for root in roots for host in (None, Host("x"), Host("me@x"), Host("y"))]
    names = {source.name for source in sources}
    assert len(names) == len(sources)
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)


def test_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_source("./a:b") == Source(str(tmp_path / "a:b"))
    with pytest.raises(OrchestrateError, match="no such folder"):
        find_source("./none")


@pytest.mark.parametrize("mark", ["{}", "[]", '{"source": "x", "time": 1}'])
def test_a_damaged_mark_of_a_copy_is_named(tmp_path: Path, mark: str) -> None:
    path = tmp_path / ".synced" / "copy.json"
    path.parent.mkdir()
    path.write_text(mark)
    with pytest.raises(DamagedFileError, match=r"copy\.json: is not the mark of a copy"):
        read_copy(tmp_path)


def test_kinds_that_there_are() -> None:
    assert kinds(" metrics, logs,") == {"metrics", "logs"}
    with pytest.raises(OrchestrateError, match="found 'metric'"):
        kinds("metrics,metric")
    for text in ("", " , "):
        with pytest.raises(OrchestrateError, match="expected some of metrics"):
            kinds(text)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://me:secret@wandb.example.org:8080/x@y", "https://wandb.example.org:8080/x@y"),
        ("https://api.wandb.ai", "https://api.wandb.ai"),
        ("my-team", "my-team"),
        ("", ""),
    ],
)
def test_no_login_goes_on_record_with_an_upload(url: str, kept: str) -> None:
    assert without_login(url) == kept


def test_files_that_are_elsewhere(tmp_path: Path) -> None:
    assert read_absent(tmp_path).files == frozenset()
    mark_absent(tmp_path, "there", ["b", "a"])
    assert (read_absent(tmp_path).where, read_absent(tmp_path).files) == ("there", {"a", "b"})
    mark_absent(tmp_path, "there", [])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".absent.json").write_text("[]")
    with pytest.raises(DamagedFileError):
        read_absent(tmp_path)


@pytest.mark.parametrize(
    ("code", "said", "kind", "words"),
    [
        (12, "rsync: connection unexpectedly closed (0 bytes)", UnreachableError, "was cut"),
        (255, "ssh: connect to host x port 22: Connection refused", UnreachableError, "cannot be reached"),
        (2, "protocol version mismatch -- is your shell clean?", HostError, "prints text"),
        (127, "bash: line 1: rsync: command not found", HostError, "no program 'rsync' there"),
        (11, 'write failed on "x": No space left on device (28)', StorageError, "disk is full"),
        (11, "mkdir failed: Disk quota exceeded (122)", StorageError, "full"),
        (23, 'rsync: [receiver] mkstemp "x" failed: Permission denied (13)', StorageError, "permission"),
        (23, "mkstemp failed: Read-only file system (30)", StorageError, "read-only"),
        (1, "rsync: --outbuf=L: unknown option", OrchestrateError, "too old"),
        (13, "", OrchestrateError, "rsync ended with 13"),
    ],
)
def test_what_rsync_complains_of(code: int, said: str, kind: type[OrchestrateError], words: str) -> None:
    error = error_of(Source("/x", Host("far")), code, said)
    assert type(error) is kind
    assert words in str(error)
    assert error.hint


def test_a_cloud_is_no_source_but_its_store_is(tmp_path: Path) -> None:
    profile = tmp_path / "l4.yaml"
    profile.write_text("backend: skypilot\n")
    with pytest.raises(OrchestrateError, match="fetched into their sweep") as caught:
        find_source(str(profile))
    assert "orchestrate status" in str(caught.value.hint)
    store = tmp_path / "store"
    store.mkdir()
    profile.write_text(f"backend: skypilot\nstore: {store}\n")
    assert find_source(str(profile)).root == str(store)

"""Offline logs of W&B from a machine that nobody vouches for: what is taken over, and what is not."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.wandb.offline_logs import join, take_over, write
from orchestrator.core.errors import DamagedFileError

RUN = "offline-run-20260101_000000-a"
OWN = {"run_id": "ours", "entity": "us"}
SAME_FOLDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def proto() -> Any:
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2


def history(step: int, value: float = 0.0) -> Any:
    record = proto().Record()
    record.history.step.num = step
    record.history.item.add(key="x", value_json=str(value))
    return record


def of_run(**fields: Any) -> Any:
    return proto().Record(run=proto().RunRecord(run_id="theirs", project="p", **fields))


def store(path: Path, records: Iterable[Any]) -> Path:
    from wandb.sdk.internal.datastore import DataStore

    path.parent.mkdir(parents=True, exist_ok=True)
    file = DataStore()
    file.open_for_write(str(path))
    for record in records:
        file.write(record)
    file.close()
    return path


def attempt(folder: Path, records: Iterable[Any]) -> Path:
    store(folder / RUN / "run-a.wandb", records)
    return folder


def kept(path: Path) -> Iterator[Any]:
    from wandb.sdk.internal.datastore import DataStore

    file = DataStore()
    file.open_for_scan(str(path))
    while (data := file.scan_data()) is not None:
        yield proto().Record.FromString(data)
    file._fp.close()  # type: ignore[union-attr]


def steps(pieces: list[tuple[Path, int | None]], folder: Path, finished: bool = False) -> list[Any]:
    joined = join(pieces, folder, OWN, finished)
    return [(item.history.step.num, float(item.history.item[0].value_json)) for item in joined.steps]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, link, size
    return found


HOSTILE = [
    member("wandb/settings", size=4),
    member(f"wandb/{RUN}/files/config.yaml", size=4),
    member(f"wandb/{RUN}/files/media/../../../../escaped", size=4),
    member(f"wandb/{RUN}/files/media/images/../../../escaped", size=4),
    member(f"wandb/../wandb/{RUN}/files/media/up", size=4),
    member(f"/wandb/{RUN}/files/media/absolute", size=4),
    member(f"wandb//etc/{RUN}/run-b.wandb", size=4),
    member(f"wandb/{RUN}/files/media/.hidden", size=4),
    member(f"wandb/{RUN}/files/media/new\nline", size=4),
    member(f"wandb/{RUN}/files/media/escape\x1b[2J", size=4),
    member(f"wandb/{RUN}/files/media/link", tarfile.SYMTYPE, "/etc/passwd"),
    member(f"wandb/{RUN}/files/media/hard", tarfile.LNKTYPE, "/etc/passwd"),
    member(f"wandb/{RUN}/files/media/pipe", tarfile.FIFOTYPE),
    member(f"wandb/{RUN}/files/media/device", tarfile.CHRTYPE),
    member(f"wandb/{RUN}/files/media/folder", tarfile.SYMTYPE, "/tmp"),
    member(f"wandb/{RUN}/files/media/folder/escaped", size=4),
    member("wandb/offline-run-b", tarfile.SYMTYPE, "/tmp"),
    member("wandb/offline-run-b/run-b.wandb", size=4),
    member(f"wandb/{RUN}/files/media/images/fine (1).png", size=4),
]


def test_of_an_archive_only_plain_files_with_plain_names_are_taken(tmp_path: Path) -> None:
    archive = tmp_path / "wandb.tar"
    with tarfile.open(archive, "w") as made:
        for item in HOSTILE:
            made.addfile(item, io.BytesIO(b"data") if item.size else None)
    here = tmp_path / "here"

    logs = take_over(archive, here / "logs", here / "files")

    assert [path.relative_to(here).as_posix() for path in logs] == ["logs/offline-run-b.wandb"]
    assert sorted(
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()
    ) == [
        "here/files/media/folder/escaped",  # in a folder of that name, made here
        "here/files/media/images/fine (1).png",
        "here/logs/offline-run-b.wandb",
        "wandb.tar",
    ]
    assert not any(path.is_symlink() for path in here.rglob("*"))


def test_of_a_folder_no_link_is_followed_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    secret = tmp_path / "secret" / RUN
    attempt(tmp_path / "secret", [of_run()])
    (secret / "files" / "media").mkdir(parents=True)
    (secret / "files" / "media" / "private.png").write_bytes(b"secret")
    source = tmp_path / "wandb"
    media = source / RUN / "files" / "media"
    media.mkdir(parents=True)
    (source / "offline-run-linked").symlink_to(secret)
    (source / RUN / "run-a.wandb").symlink_to(secret / "run-a.wandb")
    (media / "file.png").symlink_to(secret / "files" / "media" / "private.png")
    (media / "folder").symlink_to(secret)
    os.mkfifo(media / "pipe")
    assert take_over(source, tmp_path / "logs", tmp_path / "files") == []
    assert not (tmp_path / "logs").exists()
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"\x1f\x8b" + bytes(600)])
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "wandb.tar").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"wandb.tar: (is not an archive|holds no W&B run)"):
        join([(tmp_path / "wandb.tar", None)], tmp_path / "here", OWN, finished=True)


def test_a_log_says_what_the_run_is_and_nothing_else(tmp_path: Path) -> None:
    """Not where it goes, not which other run it is, not what else of this machine is to be sent."""
    everything = proto()
    records = [
        of_run(
            entity="theirs", sweep_id="s", display_name="name", tags=["t"], storage_id="other", forked=True
        ),
        everything.Record(files=everything.FilesRecord(files=[everything.FilesItem(path="../../.netrc")])),
        everything.Record(files=everything.FilesRecord(files=[everything.FilesItem(path="/etc/passwd")])),
        everything.Record(artifact=everything.ArtifactRecord(name="a", finalize=True)),
        everything.Record(use_artifact=everything.UseArtifactRecord(name="a")),
        everything.Record(tbrecord=everything.TBRecord(log_dir="/home", save=True)),
        everything.Record(alert=everything.AlertRecord(title="t")),
        everything.Record(output_raw=everything.OutputRawRecord(line="text")),
        everything.Record(request=everything.Request(), control=everything.Control(always_send=True)),
        everything.Record(config=everything.ConfigRecord()),
        history(0),
        everything.Record(exit=everything.RunExitRecord(exit_code=3)),
    ]
    joined = join([(attempt(tmp_path / "wandb", records), None)], tmp_path / "here", OWN, finished=True)
    write(joined, tmp_path / "joined.wandb", finished=True)

    found = list(kept(tmp_path / "joined.wandb"))
    assert [record.WhichOneof("record_type") for record in found] == [
        *("run", "config", "history", "summary", "files", "exit")
    ]
    run = found[0].run
    assert {name.name for name, _ in run.ListFields()} == {
        *("run_id", "entity", "project", "display_name", "tags", "config", "start_time")
    }
    assert (run.run_id, run.entity, run.project, run.display_name) == ("ours", "us", "p", "name")
    assert not found[4].files.files
    assert found[5].exit.exit_code == 0


Steps = st.lists(
    st.tuples(st.sets(st.integers(0, 12)), st.none() | st.integers(-1, 12)), min_size=1, max_size=4
)


@SAME_FOLDER
@given(parts=Steps)
def test_a_step_is_the_newest_attempts_that_has_it_and_stands(
    parts: list[tuple[set[int], int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("join")
    pieces = []
    expected: dict[int, float] = {}
    for number, (logged, until) in enumerate(parts):
        records = [of_run(), *(history(step, number) for step in sorted(logged))]
        pieces.append((attempt(folder / f"{number}", records), until))
        expected |= {step: float(number) for step in logged if until is None or step <= until}
    assert steps(pieces, folder / "here") == sorted(expected.items())


@SAME_FOLDER
@given(data=st.data())
def test_a_log_that_was_cut_or_changed_never_tells_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It tells the steps before, or that it is damaged. A length that was changed is as if it were cut."""
    folder = tmp_path_factory.mktemp("damage")
    [log] = attempt(folder / "wandb", [of_run(), *(history(step, step) for step in range(20))]).rglob(
        "*.wandb"
    )
    whole = steps([(folder / "wandb", None)], folder / "whole", finished=True)
    content = log.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    cut = data.draw(st.booleans())
    log.write_bytes(
        content[:place] if cut else content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
    )
    for finished in (True, False):
        try:
            found = steps([(folder / "wandb", None)], folder / f"{finished}", finished)
        except DamagedFileError:
            continue
        assert found == whole[: len(found)]


@pytest.mark.parametrize("finished", [True, False])
def test_a_record_that_was_changed_is_found_out(tmp_path: Path, finished: bool) -> None:
    records = [of_run(), *(history(step, step) for step in range(20))]
    [log] = attempt(tmp_path / "wandb", records).rglob("*.wandb")
    content = log.read_bytes()
    place = content.index(b"_step") if b"_step" in content else len(content) // 2
    log.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    with pytest.raises(DamagedFileError, match="holds a damaged log of W&B"):
        steps([(tmp_path / "wandb", None)], tmp_path / "out", finished)

"""Metric files of other loggers, read while they grow, as their own writers leave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from orchestrator.core.metric_files.binary import EventFile, WandbFile
from orchestrator.core.metric_files.folder import MetricFolder
from orchestrator.core.metric_files.names import FoundRow
from orchestrator.core.metric_files.points import GrowingFile, Parser
from orchestrator.core.metric_files.tables import CsvFile, JsonLines


def folder_of(path: Path, **declared: str) -> MetricFolder:
    return MetricFolder(path, {name.removesuffix("_"): value for name, value in declared.items()})


def rows_at_end(folder: MetricFolder) -> list[tuple[int, dict[str, float]]]:
    folder.ended()
    found: list[FoundRow] = folder.last_rows()
    while folder.behind:
        found += folder.last_rows()
    return [(row.frames, dict(row.values)) for row in found]


def write_events(folder: Path, steps: list[int], value: float = 1.0) -> None:
    writer = EventFileWriter(str(folder))
    for step in steps:
        simple = summary_pb2.Summary.Value(tag="losses/td", simple_value=0.5)
        for summary in (
            scalar_pb("charts/episodic_return", value * step),
            summary_pb2.Summary(value=[simple]),
        ):
            writer.add_event(event_pb2.Event(wall_time=1000.0 + step, step=step, summary=summary))
        writer.add_event(event_pb2.Event(wall_time=1.0, step=step, summary=text_pb("notes", "words")))
    writer.close()


def test_tensorboard_is_read_by_its_steps_with_the_known_return(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_events(tmp_path / "runs" / "one", [100, 200])
    expected = {"losses/td": 0.5}
    assert rows_at_end(folder) == [
        (step, {"charts/episodic_return": float(step), "return": float(step), **expected})
        for step in (100, 200)
    ]


def test_wandbs_offline_history_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    place = tmp_path / "wandb" / "offline-run-1"
    place.mkdir(parents=True)
    folder = folder_of(tmp_path)
    store = DataStore()
    store.open_for_write(str(place / "run-1.wandb"))
    for step in range(1, 4):
        record = wandb_internal_pb2.Record()
        items = {"_step": step, "loss": 0.5, "eval": {"return": step}, "long": "x" * 30_000, "name": "text"}
        for key, value in items.items():
            item = record.history.item.add()
            item.key, item.value_json = key, json.dumps(value)
        store.write(record)
    store.close()
    rows = rows_at_end(folder)
    assert rows == [
        (step, {"loss": 0.5, "eval.return": float(step), "eval/return": float(step)}) for step in (1, 2, 3)
    ]


def test_a_table_is_followed_and_read_again_where_a_column_is_added(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    path = tmp_path / "progress.csv"
    path.write_text("time/total_timesteps,rollout/ep_rew_mean\n100,1.5\n200,2.5\n30")
    assert [(row.frames, row.values["return"]) for row in folder.rows()] == [(100, 1.5), (200, 2.5)]
    # Stable-Baselines3 writes the file anew when there are new keys.
    path.write_text("time/total_timesteps,rollout/ep_rew_mean,train/loss\n100,1.5,\n200,2.5,\n300,3.5,0.1\n")
    [row] = folder.rows()
    assert (row.frames, row.values) == (300, {**row.values, "train/loss": 0.1, "return": 3.5})
    assert not folder.ended()
    assert folder.last_rows() == []


def test_the_best_format_counts_at_the_end(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (tmp_path / "monitor.csv").write_text('#{"t_start": 1.0}\nr,l,t\n1.0,10,0.1\n2.0,15,0.2\n')
    assert [(row.frames, row.values["return"]) for row in folder.rows()] == [(10, 1.0), (25, 2.0)]
    write_events(tmp_path / "logs", [100])
    assert folder.ended()  # what was read is to be replaced
    assert [row.frames for row in folder.last_rows()] == [100]


def test_the_grid_names_format_file_frames_and_return(tmp_path: Path) -> None:
    folders = {
        "log.jsonl": folder_of(tmp_path, from_="jsonl", frames="env/steps", return_="score"),
        "out/own.csv": folder_of(tmp_path, from_="out/*.csv", return_="score"),
    }
    write_events(tmp_path, [100])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "own.csv").write_text("score;other\n7;1\n8;2")
    (tmp_path / "log.jsonl").write_text(
        '{"env": {"steps": 5}, "score": 3, "no": true}\n{"score": 4}\n[]\ntorn'
    )
    read = {name: rows_at_end(folder) for name, folder in folders.items()}
    assert read["log.jsonl"] == [
        (5, {"env/steps": 5.0, "score": 3.0, "return": 3.0}),
        (5, {"score": 4.0, "return": 4.0}),
    ]
    assert read["out/own.csv"] == [
        (1, {"score": 7.0, "other": 1.0, "return": 7.0}),
        (2, {"score": 8.0, "other": 2.0, "return": 8.0}),
    ]


def test_files_that_the_program_did_not_write_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("step,reward\n1,1\n")
    (tmp_path / "other.csv").write_text("step,reward\n1,1\n")
    folder = folder_of(tmp_path)
    (tmp_path / "link.csv").symlink_to(tmp_path / "data.csv")
    (tmp_path / "config.csv").write_text("lr,gamma\n0.1,0.9\n")
    assert rows_at_end(folder) == []
    assert "config.csv" in folder.looked_for()
    assert "data.csv" not in folder.looked_for()


@pytest.mark.parametrize(
    ("appended", "frames"),
    [([400, 500], [100, 200, 300, 400, 500]), ([200, 250], [100, 200, 250]), ([100, 150], [100, 150])],
    ids=["goes on", "goes back", "begins anew"],
)
def test_rows_of_earlier_attempts_count_as_far_as_they_are_continued(
    tmp_path: Path, appended: list[int], frames: list[int]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,reward\n" + "".join(f"{step},1\n" for step in (100, 200, 300)))
    folder = folder_of(tmp_path)
    assert folder.rows() == []
    with path.open("a") as file:
        file.writelines(f"{step},2\n" for step in appended)
    rows = folder.rows()
    assert [row.frames for row in rows] == frames
    assert rows[-1].values["return"] == 2


@pytest.mark.parametrize(
    ("name", "parser"),
    [("e.tfevents.1", EventFile), ("r.wandb", WandbFile), ("a.csv", CsvFile), ("b", JsonLines)],
)
@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200))
def test_no_content_of_a_file_raises(
    tmp_path_factory: pytest.TempPathFactory, name: str, parser: type[Parser], content: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(content)
    file = GrowingFile(path, parser, 0)
    while file.behind:
        file.read(ended=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 5))
def test_a_log_cut_anywhere_gives_each_point_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], number: int
) -> None:
    place = tmp_path_factory.mktemp("cut")
    write_events(place / "whole", [10 * step for step in range(1, number + 1)])
    [whole] = (place / "whole").iterdir()
    content, path = whole.read_bytes(), place / "events.tfevents"
    file, points, at = GrowingFile(path, EventFile, 0), [], 0
    for size in [*pieces, len(content)]:
        with path.open("ab") as growing:
            growing.write(content[at : at + size])
        at += size
        points += file.read(ended=False)
    values = [(point.step, name, value) for point in points for name, value in point.values.items()]
    assert values == [
        (10 * step, name, value)
        for step in range(1, number + 1)
        for name, value in (("charts/episodic_return", 10.0 * step), ("losses/td", 0.5))
    ]


def test_a_file_that_vanishes_ends_no_look(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_events(tmp_path / "runs", [100])
    folder.ended()
    for path in (tmp_path / "runs").iterdir():
        path.unlink()
    folder.last_rows()
    assert not folder.behind

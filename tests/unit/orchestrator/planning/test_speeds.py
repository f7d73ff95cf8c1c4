"""The table of speeds: filled from results, rebuilt when damaged, and what it says about planned runs."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.synthetic import finished_sweep, matrix_runs, write_journal
from orchestrator.config.trainers import get_trainer
from orchestrator.planning.throughput.lookup import SpeedTable
from orchestrator.planning.throughput.model import (
    RunKind,
    Speed,
    TrainingPlace,
    kind_of,
    length_of,
    same_model,
)
from orchestrator.planning.throughput.record import take_up
from orchestrator.planning.throughput.table import load_table, reported
from orchestrator.rundir import SweepDir
from orchestrator.rundir.copies.synced import is_brought
from orchestrator.rundir.records.ledger_entries import submissions
from orchestrator.rundir.records.submitted import SubmissionCost
from tests.helpers import enter

MATRIX = {"task": ["vmas/navigation"], "algorithm": ["mappo", "iql"], "seed": [0, 1, 2]}
HERE = TrainingPlace("cpu", "Example CPU 3000")


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    sweep = finished_sweep(results, "speed", MATRIX, iterations=4)
    write_journal(sweep)
    return sweep


def kind(algorithm: str = "mappo", task: str = "vmas/navigation", settings: str = "{}") -> RunKind:
    return RunKind("benchmarl", task, algorithm, settings)


def speed(
    fps: float, of: RunKind | None = None, place: TrainingPlace = HERE, source: str = "", runs: int = 3
) -> Speed:
    return Speed(of or kind(), place, fps, fps, fps, runs=runs, source=source)


def result_speed(sweep: SweepDir, number: int = 0) -> float:
    result = sweep.run(sweep.run_ids()[number]).result()
    assert result is not None
    return result.speed.end_to_end_fps or 0.0


def test_every_finished_run_is_in_the_table(sweep: SweepDir) -> None:
    table = load_table(sweep.results)
    measured = [one for one in table.speeds if not one.source]
    assert sum(one.runs for one in measured) == 6
    assert {one.kind.algorithm for one in measured} == {"mappo", "iql"}
    by_run = take_up(sweep).runs
    assert by_run[sweep.run_ids()[0]].end_to_end_fps == result_speed(sweep)
    basis = table.find(kind_of(matrix_runs(MATRIX)[0]), TrainingPlace(None, "Example CPU 3000"))
    assert basis is not None
    assert basis.runs == 3
    assert basis.low < basis.end_to_end_fps < basis.high
    assert "same configuration" in basis.words


def test_only_what_is_new_is_read(sweep: SweepDir, monkeypatch: pytest.MonkeyPatch) -> None:
    take_up(sweep)
    before = sweep.speeds.read_bytes()
    changed, *others = (sweep.run(run_id).result_path for run_id in sweep.run_ids())
    for path in others:
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    data = json.loads(changed.read_text())
    data["speed"]["end_to_end_fps"] = 77.0
    changed.write_text(json.dumps(data))
    found = take_up(sweep).runs
    assert found[changed.parent.name].end_to_end_fps == 77.0
    assert len(found) == 6
    assert sweep.speeds.read_bytes() != before


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"version": 2}', b'{"version": 1}', b'{"version": 2, "runs": {"a": [1]}}', b"\xff", b"[]"],
)
def test_a_damaged_file_is_made_anew(sweep: SweepDir, damage: bytes) -> None:
    whole = take_up(sweep)
    sweep.speeds.write_bytes(damage)
    assert take_up(sweep) == whole
    assert json.loads(sweep.speeds.read_text())["version"] == 3


def test_a_retired_result_leaves_and_a_damaged_one_is_left_out(sweep: SweepDir) -> None:
    take_up(sweep)
    first, second, *_ = sweep.run_ids()
    sweep.run(first).result_path.unlink()
    sweep.run(second).result_path.write_bytes(b"{")
    assert sorted(take_up(sweep).runs) == sweep.run_ids()[2:]


@pytest.mark.parametrize(
    "change",
    [
        {"speed": {"end_to_end_fps": "nan"}},
        {"speed": {"end_to_end_fps": -5.0}},
        {"speed": {"end_to_end_fps": 1e400}},
        {"speed": {"end_to_end_fps": [1]}},
        {"speed": None},
        {"frames": -1},
        {"frames": "many"},
        {"started": "today"},
        {"host": None},
        {"host": {"gpu_model": ["L4"]}},
        {"attempt": []},
    ],
)
def test_no_result_whatever_it_says_makes_a_speed_that_is_none(
    sweep: SweepDir, change: dict[str, Any]
) -> None:
    path = sweep.run(sweep.run_ids()[0]).result_path
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert sorted(take_up(sweep).runs) == sweep.run_ids()[1:]
    assert take_up(sweep) == take_up(sweep)


def test_a_machines_name_is_text_and_no_more(sweep: SweepDir) -> None:
    run_id = sweep.run_ids()[0]
    path = sweep.run(run_id).result_path
    result = json.loads(path.read_text())
    result["host"] |= {"cpu_model": "\x1b[2J", "gpu_model": "L4\x07"}
    path.write_text(json.dumps(result))
    place = take_up(sweep).runs[run_id].place
    assert place.cpu == "\\x1b[2J"
    assert place.gpu == "L4\\x07"


def test_a_job_of_another_version_is_no_reason_to_stop(sweep: SweepDir) -> None:
    token = sweep.read_journals()[0].token
    job = {"token": token, "run_ids": [], "new": 1}
    enter(sweep, "submission", {"time": 1.0, "jobs": [job], "job_ids": {}, "skipped": {}})
    assert len(take_up(sweep).runs) == 6


def test_each_tree_makes_its_own() -> None:
    assert not is_brought(PurePosixPath("speeds.json"))


def test_one_writer_at_a_time_and_the_others_know_all_the_same(sweep: SweepDir) -> None:
    with open(sweep.path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(take_up(sweep).runs) == 6
        assert not sweep.speeds.exists()
    take_up(sweep)
    assert sweep.speeds.exists()


def test_what_only_says_how_long_a_run_is_does_not_make_it_another_kind() -> None:
    spec = get_trainer("benchmarl")
    point = {"task": "vmas/navigation", "algorithm": "mappo", "experiment.lr": 0.1}
    short, long, other = (
        spec.identify({**point, **more}, seed, 1)
        for seed, more in enumerate(
            ({"experiment.max_n_frames": 6_000}, {"experiment.max_n_frames": 60_000}, {"experiment.lr": 0.2})
        )
    )
    assert kind_of(short) == kind_of(long)
    assert kind_of(short) != kind_of(other)
    assert (spec.frames_of(short), spec.frames_of(other)) == (6_000, 3_000_000)
    assert spec.frames_of(spec.identify({"experiment.max_n_iters": 5}, 0, 1)) is None


def timed_sweep(results: Path, minutes: list[float]) -> SweepDir:
    return finished_sweep(
        results, "timed", {"task": ["t"], "algorithm": ["mappo"], "minutes": minutes}, iterations=4
    )


def test_a_minute_and_half_an_hour_share_their_speed(results: Path) -> None:
    timed_sweep(results, [1, 30])
    table = load_table(results)
    [planned] = matrix_runs({"task": ["t"], "algorithm": ["mappo"], "minutes": [5]})
    basis = table.find(kind_of(planned), HERE)
    assert basis is not None
    assert basis.runs == 2
    assert "2 finished runs of the same configuration" in basis.words
    # As synthetic results have it: 94 % of the wall time is collecting and learning.
    assert basis.wall_per_training == pytest.approx(1 / 0.94)


def test_a_length_is_known_by_runs_that_were_to_be_as_long(results: Path) -> None:
    sweep = timed_sweep(results, [1, 30])
    counted = {"task": ["t"], "algorithm": ["mappo"], "experiment.max_n_iters": [4]}
    finished_sweep(results, "counted", counted, iterations=4)
    table, [iterations] = load_table(results), matrix_runs(counted)
    assert table.frames_of(kind_of(iterations), length_of(iterations)) == 24_000
    [more] = matrix_runs({**counted, "experiment.max_n_iters": [400]})
    assert kind_of(more) == kind_of(iterations)
    assert table.frames_of(kind_of(more), length_of(more)) is None
    assert load_table(sweep.results).speeds == table.speeds


def test_a_cloud_machine_on_demand_and_as_spot_is_the_same_hardware() -> None:
    measured = speed(500.0, place=TrainingPlace("demand", "Some Xeon", "", 1, "aws m6i.large"))
    table = SpeedTable([measured])
    spot = table.find(kind(), TrainingPlace("spot", None, "", 1, "aws m6i.large"))
    other = table.find(kind(), TrainingPlace("spot", None, "", 1, "aws m6i.xlarge"))
    assert spot is not None
    assert other is not None
    assert "other hardware" not in spot.words
    assert "on other hardware (Some Xeon)" in other.words
    assert spot.high / spot.low < other.high / other.low


def test_the_machine_of_a_job_is_known_by_its_submission(sweep: SweepDir) -> None:
    [entry] = submissions(sweep.read_ledger())
    sweep.amend_ledger(replace(entry, cost=SubmissionCost(machine="aws m6i.large")))
    assert {one.place.machine for one in take_up(sweep).runs.values()} == {"aws m6i.large"}


def test_usual_lengths_are_those_of_the_configuration_files() -> None:
    spec = importlib.util.find_spec("benchmarl")
    assert spec is not None
    assert spec.origin is not None
    trainer = get_trainer("benchmarl")
    base = Path(spec.origin).parent / "conf" / "experiment" / "base_experiment.yaml"
    theirs = yaml.safe_load(base.read_text().replace("_000", "000"))
    usual = trainer.frames_of(trainer.identify({}, 0, 1))
    assert usual == theirs["max_n_frames"]
    for preset in (Path(__file__).parents[4] / "jobs" / "conf" / "experiment").glob("*.yaml"):
        own = yaml.safe_load(preset.read_text())
        run = trainer.identify({"experiment": preset.stem}, 0, 1)
        assert trainer.frames_of(run) == own.get("max_n_frames", usual), preset


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA L4", "L4", True),
        ("NVIDIA L4", "l4:1", True),
        ("NVIDIA L40S", "L4", False),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB", True),
        ("NVIDIA A100-SXM4-40GB", "A100-80GB", False),
        ("NVIDIA GeForce RTX 5070 Ti", "RTX5070Ti", True),
        ("a GPU", "L4", False),
        ("Intel(R) Core(TM) i7-14700K", "i7-14700K", True),
        ("Intel(R) Core(TM) i7-14700", "i7-14700K", False),
        ("AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) CPU @ 2.20GHz", False),
    ],
)
def test_names_of_one_model(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) == same_model(other, one) == same


def test_the_nearest_counts_and_what_is_farther_is_less_certain() -> None:
    elsewhere = TrainingPlace("far", "Other CPU")
    other_settings = kind(settings='{"experiment.lr": 1}')
    here, settings, far = speed(100.0), speed(200.0, other_settings), speed(300.0, place=elsewhere)
    found = [
        SpeedTable(known).find(kind(), HERE) for known in ([here, settings, far], [settings, far], [far])
    ]
    widths = []
    for basis, fps in zip(found, (100.0, 200.0, 300.0), strict=True):
        assert basis is not None
        assert basis.end_to_end_fps == fps
        widths.append(basis.high / basis.low)
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < widths[2]


def test_measured_beats_reported_and_a_gpu_says_nothing_about_a_cpu() -> None:
    on_gpu = TrainingPlace(None, None, "L4")
    told = speed(1000.0, RunKind("", "vmas/*", "mappo", ""), on_gpu, source="a friend")
    measured = speed(500.0, place=TrainingPlace("l4", None, "NVIDIA L4"))
    basis = SpeedTable([told, measured]).find(kind(), TrainingPlace("l4", None, "L4"))
    assert basis is not None
    assert (basis.end_to_end_fps, basis.reported) == (500.0, False)
    alone = SpeedTable([told]).find(kind(), TrainingPlace("other", None, "L4"))
    assert alone is not None
    assert alone.reported
    assert "shipped figure, not measured here: a friend" in alone.words
    assert SpeedTable([told, measured]).find(kind(), TrainingPlace("cpu", "Example CPU 3000", "")) is None


def test_nothing_known_is_nothing_said() -> None:
    assert SpeedTable([]).find(kind(), HERE) is None
    assert SpeedTable([speed(9.0, RunKind("command", "", "command", "{}"))]).find(kind(), HERE) is None


def test_the_shipped_figures_name_their_source() -> None:
    shipped = reported()
    assert all(one.source and one.runs == 0 and one.low <= one.end_to_end_fps <= one.high for one in shipped)
    own = RunKind("ppo", "bucket_brigade/hard", "ppo", "{}")
    on_cpu = SpeedTable(shipped).find(own, TrainingPlace("local", "Some CPU"))
    assert on_cpu is not None
    assert on_cpu.end_to_end_fps == 85_000
    assert on_cpu.low < 60_000 < 100_000 < on_cpu.high


def test_figures_of_the_own_trainer_come_before_claims_about_other_programs() -> None:
    shipped = SpeedTable(reported())

    def fps(trainer: str, cpu: str) -> float | None:
        basis = shipped.find(RunKind(trainer, "procgen/coinrun", "ppo", "{}"), TrainingPlace(None, cpu))
        return basis and basis.end_to_end_fps

    desktop, other = "Core(TM) i7-14700K", "Some CPU"
    assert (fps("ppo", desktop), fps("ppo", other)) == (904, 904)  # benchmarks/README.md
    assert (fps("command", desktop), fps("command", other)) == (5000, 1750)


places = st.builds(
    TrainingPlace,
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([None, "one", "two"]),
    st.sampled_from(["", "L4", "NVIDIA L4", "T4"]),
    st.integers(1, 3),
)
kinds = st.builds(
    RunKind,
    st.just("t"),
    st.sampled_from("xy"),
    st.sampled_from("pq"),
    st.sampled_from(["{}", "{1}"]),
    st.integers(1, 2),
)


@given(
    st.lists(
        st.tuples(
            kinds,
            places,
            st.floats(0.01, 1e6),
            st.floats(0, 0.9),
            st.integers(1, 5),
            st.sampled_from(["", "s"]),
        ),
        max_size=8,
    ),
    kinds,
    places,
)
def test_whatever_is_known_the_range_holds_the_figure(
    rows: list[tuple[RunKind, TrainingPlace, float, float, int, str]], asked: RunKind, where: TrainingPlace
) -> None:
    speeds = [
        Speed(of, place, fps, fps * (1 - spread), fps * (1 + spread), None, 10, 0 if source else runs, source)
        for of, place, fps, spread, runs, source in rows
    ]
    basis = SpeedTable(speeds).find(asked, where)
    if basis is not None:
        assert 0 < basis.low < basis.end_to_end_fps < basis.high < float("inf")
        assert basis.words
    elif where.gpu:
        assert not any(place.gpu and not source for _, place, *_, source in rows)
    else:
        assert not any(not place.gpu and not source for _, place, *_, source in rows)

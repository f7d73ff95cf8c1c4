"""What plain BenchMARL left, beside a sweep: its values, its names, what is damaged, and the commands."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from typer.testing import CliRunner

from benchmarks.synthetic import EVAL, create_sweep, finish, matrix_runs, training_rows
from orchestrator.analysis.collect import Collected, collect
from orchestrator.analysis.foreign import read_outputs
from orchestrator.analysis.marl_eval_export import export
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.rundir import Row, SweepDir
from orchestrator.ui.cli import app
from tests.foreign_runs import experiments, unpack

LR = "experiment.lr"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("unpacked"))


@pytest.fixture
def their(unpacked: Path, tmp_path: Path) -> Path:
    """Their folder, to be damaged at will."""
    return Path(shutil.copytree(unpacked, tmp_path / "their"))


@pytest.fixture
def sweep(results: Path) -> SweepDir:
    """A finished sweep of ours with the same frames as theirs."""
    matrix: dict[str, Sequence[Any]] = {
        "task": ["vmas/navigation"],
        "algorithm": ["mappo"],
        LR: [5e-5, 1e-3],
        "seed": range(2),
    }
    sweep = create_sweep(results, "speed", runs := matrix_runs(matrix))
    for run in runs:
        rows = [
            Row(one.iteration, 120 * (one.iteration + 1), 1.0, one.metrics) for one in training_rows(run, 3)
        ]
        finish(sweep.run(run.run_id), run, rows)
    return sweep


def read(folder: Path | str) -> Collected:
    return collect([], others=[read_outputs(str(folder))])


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def keyed(collected: Collected, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(collected.runs.select(columns).rows())


def logger(experiment: Path) -> Path:
    return experiment / experiment.name / "scalars"


def write_events(folder: Path, texts: dict[str, str], steps: int = 3) -> None:
    writer = EventFileWriter(str(folder))
    for name, text in texts.items():
        writer.add_event(event_pb2.Event(wall_time=1.0, step=0, summary=text_pb(name, text)))
    for step in range(100, 100 * steps + 1, 100):
        summary = scalar_pb("charts/episodic_return", step / 10)
        writer.add_event(event_pb2.Event(wall_time=1000.0 + step, step=step, summary=summary))
    writer.close()


def test_runs_logged_to_tensorboard_stand_beside_a_sweep(tmp_path: Path, sweep: SweepDir) -> None:
    logs = tmp_path / "logs"
    table = "|param|value|\n|-|-|\n|env_id|CartPole-v1|\n|exp_name|ppo|\n|widths|{{1, 2}}|\n"
    table += "|learning_rate|{}|\n|seed|{}|"
    for rate, seed, steps in ((0.1, 1, 3), (0.1, 2, 3), (0.2, 1, 3), (0.2, 1, 2)):
        text = {"hyperparameters/text_summary": table.format(rate, seed)}
        write_events(logs / f"CartPole-v1__ppo__{seed}__{steps}{rate}", text, steps)
    write_events(logs / "CartPole-v1__ppo__2__30.1/hparams", {}, 1)
    read_back = read(logs)
    assert keyed(read_back, "env_id", "learning_rate", "seed", "frames", "final_return", "train_time") == [
        ("CartPole-v1", rate, seed, 300, 30.0, 200.0) for rate, seed in ((0.1, 1), (0.1, 2), (0.2, 1))
    ]
    assert "exp_name" not in read_back.keys
    assert [warning for warning in read_back.warnings if "counted once" in warning]
    run("collect", sweep.name, "--results", sweep.path.parent, "--with", logs)
    merged = pl.read_parquet(sweep.table_parquet)
    assert sorted(merged["trainer"].unique()) == ["benchmarl", "command"]
    assert merged.filter(pl.col("sweep") == "logs")["learning_rate"].sort().to_list() == [0.1, 0.1, 0.2]
    shutil.rmtree(logs)
    write_events(logs / "Hopper-v4__sac__7__1700000000", {})
    write_events(logs / "tb/PPO_seed3", {}, 1)
    for name in ("PPO_12", "hidden_64"):
        write_events(logs / "sb3" / name, {}, 1)
    write_events(logs / "empty", {}, 0)
    (logs / "cut").mkdir()
    (logs / "cut/events.out.tfevents.1").write_bytes(b"abc" * 9)
    found = {tuple(point.items()) for point in read(logs).points.values()}
    named = (("env_id", "Hopper-v4"), ("exp_name", "sac"), ("seed", 7))
    assert found == {
        named,
        (("folder", "tb/PPO"), ("seed", 3)),
        (("folder", "sb3/PPO"), ("seed", 12)),
        (("folder", "sb3/hidden_64"),),
    }
    assert sorted(read(logs).problems) == [
        f"logs: {name} is left out: it has no values" for name in ("cut", "empty")
    ]


# What is read


def test_every_experiment_is_a_run_told_apart_by_what_differs(unpacked: Path) -> None:
    collected = read(unpacked)
    assert not (*collected.problems, *collected.warnings, *collected.missing)
    assert keyed(collected, "algorithm", LR, "seed") == [
        ("iql", 5e-05, 0),
        ("iql", 5e-05, 1),
        *(("mappo", lr, seed) for lr in (5e-05, 5e-4, 1e-3) for seed in (0, 1)),
    ]
    for name, value in {
        "sweep": "benchmarl",
        "trainer": "benchmarl",
        "task": "vmas/navigation",
        "state": "done",
        "in_grid": True,
        "frames": 360,
        "iterations": 3,
        "environments": 4,
        "device": "cpu",
        "threads": None,
        "hostname": None,
        "code_id": None,
        "versions": None,
    }.items():
        assert collected.runs[name].unique().to_list() == [value], name
    for name in (
        "wall_time",
        "training_fps",
        "end_to_end_fps",
        "seconds_per_iteration",
        "collection_seconds",
    ):
        assert (collected.runs[name] > 0).all(), name


def test_metrics_are_named_and_placed_as_ours(unpacked: Path) -> None:
    """Compared with the file for marl-eval, which BenchMARL writes by other code than its CSV files."""
    metrics = read(unpacked).metrics
    names = set(metrics["name"])
    assert {EVAL, "collection/reward/episode_reward_mean", "timers/training_time"} < names
    assert {
        "collection/agents/info/pos_rew",
        "train/agents/loss_objective",
        "eval/reward/episode_len_mean",
    } < names
    for folder in experiments(unpacked):
        run_id = folder.name.partition("__")[2]
        ((seeds,),) = (
            list(algorithms.values())
            for tasks in json.loads((folder / f"{folder.name}.json").read_text()).values()
            for algorithms in tasks.values()
        )
        (steps,) = seeds.values()
        own = metrics.filter((pl.col("run_id") == run_id) & (pl.col("name") == EVAL))
        assert own["frames"].to_list() == [120, 240, 360]
        for number, value in enumerate(own["value"], start=1):
            returns = steps[f"step_{number}"]["return"]
            assert value == pytest.approx(sum(returns) / len(returns))


def test_their_value_of_a_key_of_ours_stands_in_its_column(unpacked: Path, results: Path) -> None:
    ours: dict[str, Sequence[Any]] = {
        "experiment.gamma": [0.9],
        "experiment.loggers": [["csv"]],
        "algorithm": ["mappo"],
        "mine": [1],
    }
    sweep = create_sweep(results, "speed", matrix_runs(ours))
    runs = collect([sweep], others=[read_outputs(str(unpacked))]).runs.filter(pl.col("sweep") == "benchmarl")
    assert runs["experiment.gamma"].to_list() == [0.99] * 8
    assert runs["experiment.loggers"].to_list() == ['["csv"]'] * 8
    assert runs["mine"].to_list() == [None] * 8
    assert read(unpacked).keys[:3] == ("algorithm", "task", LR)


def test_groups_of_agents_are_found_in_the_names_of_files(their: Path) -> None:
    one = experiments(their)[0]
    for path in logger(one).glob("*agents*"):
        path.unlink()
    expected = {
        "eval_adversary_reward_episode_reward_mean": "eval/adversary/reward/episode_reward_mean",
        "eval_adversary_0_reward_episode_reward_mean": "eval/adversary_0/reward/episode_reward_mean",
        "collection_adversary_0_info_pos_rew": "collection/adversary_0/info/pos_rew",
        "train_adversary_0_grad_norm_loss": "train/adversary_0/grad_norm_loss",
        "train_adversary_loss": "train/adversary/loss",
        "collection_info_done_rate": "collection/info/done_rate",
        "something_else": "something_else",
    }
    for stem in expected:
        (logger(one) / f"{stem}.csv").write_text("0,1.0\n")
    assert set(expected.values()) < set(read(one).metrics["name"])


def test_without_a_csv_logger_the_file_for_marl_eval_tells_the_evaluations(
    unpacked: Path, their: Path
) -> None:
    whole = read(unpacked)
    for folder in experiments(their):
        shutil.rmtree(folder / folder.name)
    for alone in (read(their / "multirun"), read(their / "script")):
        assert alone.problems == ()
        both = whole.metrics.join(alone.metrics, on=["run_id", "name", "frames"])
        assert len(both) == len(alone.metrics) == 4 * 3 * 6
        assert both["value"].to_list() == pytest.approx(both["value_right"].to_list(), abs=1e-6)
        assert alone.runs["wall_time"].is_null().all()
        assert alone.metrics["wall_time"].is_null().all()
    # The configuration is Hydra's where there is a record of it, and unknown else.
    assert LR in read(their / "multirun").keys
    assert LR not in read(their / "script").keys


def test_a_folder_tells_settings_apart_that_nothing_else_does(their: Path) -> None:
    for number, folder in enumerate(experiments(their / "script")):
        shutil.rmtree(folder / folder.name)
        place = their / "script" / f"setting-{number % 2}"
        place.mkdir(exist_ok=True)
        path = folder / f"{folder.name}.json"
        path.write_text(path.read_text().replace("seed_1", "seed_0"))
        folder.rename(place / folder.name)
    collected = read(their / "script")
    assert keyed(collected, "algorithm", "folder", "seed") == [
        (algorithm, folder, 0) for algorithm in ("iql", "mappo") for folder in ("setting-0", "setting-1")
    ]


def test_loose_files_and_one_experiment_alone_are_found_too(unpacked: Path, tmp_path: Path) -> None:
    one = experiments(unpacked)[0]
    assert len(read(one).runs) == 1
    assert len(read(one / one.name).runs) == 1
    shutil.copy(one / f"{one.name}.json", tmp_path)
    assert read(tmp_path).runs["frames"].to_list() == [360]


def test_copies_and_repetitions_count_once(their: Path) -> None:
    first, second = experiments(their / "script")[:2]
    shutil.copytree(first, their / "copies" / first.name)
    (logger(their / "copies" / first.name) / "counters_total_frames.csv").write_text("0,120.0\n")
    assert len(read(their).runs) == 8
    repeated = second.name[:-17] + "27_01_01-00_00_00"
    shutil.copytree(second, their / "again" / repeated)
    (their / "again" / repeated / second.name).rename(their / "again" / repeated / repeated)
    collected = read(their)
    assert len(collected.runs) == 8
    assert collected.warnings == (f"counted once: {repeated} repeats {second.name}, with the same seed",)


def test_a_training_that_was_restored_goes_on_where_it_was_saved(their: Path) -> None:
    folder = experiments(their)[0]
    with (logger(folder) / "eval_reward_episode_reward_mean.csv").open("a") as file:
        file.write("1,70.0\n2,71.0\n")
    for name in ("counters_total_frames", "timers_total_time"):
        with (logger(folder) / f"{name}.csv").open("a") as file:
            file.write("1,240.0\n2,360.0\n3,480.0\n")
    metrics = read(folder).metrics
    own = metrics.filter(pl.col("name") == EVAL)
    assert own["value"].to_list()[1:] == [70.0, 71.0]
    assert own["frames"].to_list() == [120, 240, 360]
    assert metrics["frames"].max() == 480


def test_what_was_logged_after_the_checkpoint_of_a_restored_training_never_happened(their: Path) -> None:
    folder = experiments(their)[0]
    with (logger(folder) / "counters_total_frames.csv").open("a") as file:
        file.write("1,240.0\n")
    assert read(folder).metrics["frames"].max() == 240


@pytest.mark.parametrize("kind", ["max_n_frames", "max_n_iters"])
def test_a_training_that_stopped_early_is_not_done(their: Path, kind: str) -> None:
    asked = {"max_n_frames": "multirun", "max_n_iters": "script"}[kind]
    folder = experiments(their / asked)[0]
    for path in logger(folder).glob("*.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    collected = read(their / asked)
    (item,) = collected.missing
    assert item.run_id == folder.name.partition("__")[2]
    assert item.why.startswith("interrupted: stopped early, or still trains: ")
    assert len(collected.runs) == 4


@pytest.mark.parametrize(
    ("frames", "iterations", "batch", "why"),
    [
        (3_000_000, 3, 120, ""),  # people give iterations, and leave BenchMARL's default of frames
        (360, 100, 120, ""),
        (3_000_000, 4, 90, ""),  # a batch holds more than was asked for
        (3_000_000, 4, 120, "3 of 4 iterations"),
        (400, 100, 120, "360 of 400 frames"),
        (None, 4, 120, "3 of 4 iterations"),
        (None, None, 120, ""),
        (-1, "x", 120, ""),
    ],
)
def test_a_training_is_done_at_the_first_of_its_bounds(
    their: Path, frames: Any, iterations: Any, batch: int, why: str
) -> None:
    folder = experiments(their / "script")[0]
    path = folder / folder.name / "texts" / "hparams0.txt"
    told = {
        "max_n_frames": frames,
        "max_n_iters": iterations,
        "on_policy_collected_frames_per_batch": batch,
        "off_policy_collected_frames_per_batch": batch,
    }
    text = path.read_text()
    for key, value in told.items():
        text, changed = re.subn(rf"'{key}': [^,}}]+", f"'{key}': {value!r}", text)
        assert changed == 1, key
    path.write_text(text)
    found = [item.why for item in read(folder).missing]
    assert found == ([f"interrupted: stopped early, or still trains: {why}"] if why else [])


def test_seconds_that_one_run_lacks_are_in_no_step_for_marl_eval(their: Path) -> None:
    def times() -> set[float | None]:
        tasks = export(read(their), {}, again="").data["vmas"]
        steps = [run.values() for seeds in tasks["navigation"].values() for run in seeds.values()]
        return {step.get("elapsed_time") for run in steps for step in run}

    assert None not in times()
    one = experiments(their)[3]
    (logger(one) / "timers_total_time.csv").write_text("0,inf\n1,nan\n2,3.0\n")
    assert times() == {None}
    assert read(one).metrics["wall_time"].unique().sort().to_list() == [None, 3.0]


# What is damaged or hostile


class _Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_opened(their: Path, tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    data = pickle.dumps(_Payload(harm))
    for folder in experiments(their):
        (folder / "config.pkl").write_bytes(data)
        (folder / "checkpoints").mkdir(exist_ok=True)
        (folder / "checkpoints" / "checkpoint_360.pt").write_bytes(data)
    assert len(read(their).runs) == 8
    assert not harm.exists()
    pickle.loads(data)
    assert harm.exists()


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name.format(name=folder.name)).write_bytes(content)

    return damage


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name.format(name=folder.name)).unlink()


def _pipe(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name.format(name=folder.name)
        path.unlink()
        os.mkfifo(path)

    return damage


def _both(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for one in damages:
            one(folder)

    return damage


SCALARS, TEXTS, JSON = "{name}/scalars/", "{name}/texts/hparams0.txt", "{name}.json"
FRAMES = f"{SCALARS}counters_total_frames.csv"
# What each leaves of the run: whether it is still there, and what is said.
DAMAGES: dict[str, tuple[Callable[[Path], None], bool, str]] = {
    "a metric is no table": (
        _write(f"{SCALARS}eval_reward_episode_len_mean.csv", b"0,1\nx\n1,2\n"),
        True,
        "line 2",
    ),
    "a metric is no text": (
        _write(f"{SCALARS}eval_reward_episode_len_mean.csv", b"\xff\n"),
        True,
        "cannot be read",
    ),
    "a metric is a pipe": (_pipe(f"{SCALARS}eval_reward_episode_len_mean.csv"), True, "is not a file"),
    "no frames": (_remove(FRAMES), True, "is missing"),
    "frames that are none": (_write(FRAMES, b"0,nan\n1,inf\n"), True, "invalid number of frames"),
    "frames beyond counting": (_write(FRAMES, b"0,1e200\n"), True, "invalid number of frames"),
    "steps beyond counting": (_write(FRAMES, b"9" * 30 + b",1\n"), True, "line 1"),
    "nothing to go by": (_both(_remove(FRAMES), _remove(JSON)), False, "it has no values"),
    "no values": (_both(_write(FRAMES, b""), _write(JSON, b"{}")), False, "is not BenchMARL's file"),
    "several runs in one": (
        _both(_remove(FRAMES), _write(JSON, b'{"vmas": {"a": {}, "b": {}}}')),
        False,
        "is not BenchMARL's file",
    ),
    "deep": (_both(_remove(FRAMES), _write(JSON, b"[" * 100_000)), False, "nested too deeply"),
    "numbers as text": (
        _both(
            _remove(FRAMES),
            _write(JSON, b'{"a": {"b": {"c": {"seed_0": {"step_1": {"step_count": "x", "return": [1]}}}}}}'),
        ),
        False,
        "is not BenchMARL's file",
    ),
    "evaluations beyond counting": (
        _both(
            _remove(FRAMES),
            _write(
                JSON, b'{"a": {"b": {"c": {"seed_0": {"step_1": {"step_count": 1e300, "return": [1]}}}}}}'
            ),
        ),
        False,
        "too much",
    ),
    "a seed that is none": (
        _both(_remove(TEXTS), _write(JSON, b'{"a": {"b": {"c": {"seed_x": {"step_1": {}}}}}}')),
        False,
        "it has no task, algorithm and seed",
    ),
    "a pipe": (_both(_remove(TEXTS), _pipe(JSON)), False, "is not a file"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_damaged_is_named_and_the_rest_goes_on(their: Path, kind: str) -> None:
    damage, stays, said = DAMAGES[kind]
    folder = experiments(their / "script")[1]
    damage(folder)
    collected = read(their / "script")
    assert len(collected.runs) == 3 + stays
    assert (folder.name.partition("__")[2] in set(collected.runs["run_id"])) is stays
    assert any(said in problem for problem in collected.problems), collected.problems
    assert all(problem.startswith("script: ") and folder.name in problem for problem in collected.problems)


@pytest.mark.parametrize(
    "noted",
    [
        "experiment_config: __import__('os').system('touch harm')",
        "experiment_config: {'lr': " + "[" * 5000 + "]" * 5000 + "}",
        "seed: 99999999999999999999999999\nexperiment_config: [1]",
        "algorithm_name: ['a']\nmodel_name: 7\ntask_config: {1: 2, 'x': {1, 2}, 'y': 1" + "0" * 30 + "}",
        "\0",
    ],
)
def test_a_hostile_note_of_the_configuration_does_no_harm(
    their: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = experiments(their / "script")[0]
    (folder / folder.name / "texts" / "hparams0.txt").write_text(noted)
    collected = read(their / "script")
    assert len(collected.runs) == 4
    assert not (tmp_path / "harm").exists()
    collected.runs.write_csv()


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("experiment: &a [1]\ntask: [*a, *a]\n", "aliases"),
        ("experiment: !!python/object/apply:os.system ['touch harm']\n", "is not YAML"),
        ("experiment: {\n", "is not YAML"),
        ("[" * 3000, "config.yaml"),
        ("7\n", ""),
    ],
)
def test_a_hostile_record_of_hydra_does_no_harm(
    their: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yaml: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = experiments(their / "multirun")[0]
    (folder.parent / ".hydra" / "config.yaml").write_text(yaml)
    collected = read(their / "multirun")
    assert len(collected.runs) == 4
    assert any(said in problem for problem in collected.problems) if said else not collected.problems
    assert not (tmp_path / "harm").exists()


def test_names_that_are_not_utf8_are_spelled_out(sweep: SweepDir, their: Path) -> None:
    odd = os.fsdecode(b"\xff-")
    root = their.rename(their.with_name(f"{odd}their")) / "script"
    first, second, third, fourth = experiments(root)
    moved = first.rename(root / f"{odd}{first.name}")
    (moved / first.name).rename(moved / moved.name)
    (moved / f"{first.name}.json").rename(moved / f"{moved.name}.json")
    (logger(moved) / f"eval_{odd}.csv").write_text("0,1.0\n")
    (logger(moved) / f"{odd}.csv").write_text("x\n\n")
    # A folder alone tells these two apart, and half a character is a task's name.
    for number, folder in enumerate((third, fourth)):
        shutil.rmtree(folder / folder.name)
        path = folder / f"{folder.name}.json"
        path.write_text(path.read_text().replace("seed_1", "seed_0").replace("navigation", "\\ud800"))
        place = root / f"{odd}{number}"
        place.mkdir()
        folder.rename(place / folder.name)
    again = second.name[:-17] + "27_01_01-00_00_00"
    shutil.copytree(second, root / f"{odd}{again}")
    (root / f"{odd}{again}" / second.name).rename(root / f"{odd}{again}" / f"{odd}{again}")

    output = run("collect", "speed", "--results", sweep.results, "--with", root.parent)
    assert "problem" in output
    runs = pl.read_parquet(sweep.table_parquet).filter(pl.col("sweep") != "speed")
    assert runs["sweep"].unique().to_list() == [r"\xff-their"]
    assert r"eval/\xff-" in set(pl.read_parquet(sweep.metrics_parquet)["name"])
    assert r"vmas/\ud800" in set(runs["task"])
    collected = read(root.parent)
    for text in (*collected.problems, *collected.warnings, *map(str, runs["folder"])):
        assert text.encode()
    assert any(r"\xff-" in text for text in collected.warnings)
    with pytest.raises(NotFoundError, match=r"\\xff"):
        read(their.with_name(f"{odd}absent"))


def test_a_link_that_leads_up_is_not_followed(their: Path) -> None:
    (their / "script" / "up").symlink_to(their, target_is_directory=True)
    assert len(read(their).runs) == 8


def test_nothing_to_merge_is_an_error_that_says_what_was_expected(
    tmp_path: Path, sweep: SweepDir, their: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        NotFoundError, match=r"no results of BenchMARL or TensorBoard in .*/empty/: .*navigation_mlp__"
    ):
        read(tmp_path / "empty")
    with pytest.raises(NotFoundError, match="does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="is a file"):
        read(sweep.index_path)
    with pytest.raises(NotFoundError) as ours:
        read(sweep.path)
    assert (
        ours.value.hint
        == f"this is a sweep of this program: orchestrate collect speed --results {sweep.results}"
    )
    with pytest.raises(OrchestrateError, match="a sweep named speed already"):
        read_outputs(f"speed={their}", {"speed"})
    assert read_outputs(str(their), {"their", "their-2"}).name == "their-3"


# The commands


def test_collect_merges_them_into_the_sweeps_tables(sweep: SweepDir, unpacked: Path) -> None:
    output = run("collect", "speed", "--results", sweep.results, "--with", f"lab={unpacked}")
    for group in ("speed mappo lr=5e-05", "speed mappo lr=0.001", "lab mappo lr=0.001", "lab iql lr=5e-05"):
        assert group in output
    runs = pl.read_parquet(sweep.table_parquet)
    assert runs.group_by("sweep").len().sort("sweep").rows() == [("lab", 8), ("speed", 4)]
    assert set(pl.read_parquet(sweep.metrics_parquet)["sweep"]) == {"lab", "speed"}
    navigation = json.loads(sweep.marl_eval.read_text())["vmas"]["navigation"]
    assert {seed for seeds in navigation.values() for seed in seeds} == {"seed_0", "seed_1"}
    assert sum(len(seeds) for seeds in navigation.values()) == 12
    assert "12 of 12 runs is the best evaluation in training" in output
    again = json.loads(run("collect", "speed", "--results", sweep.results, "--json"))
    assert again["marl_eval"]["runs"] == 4
    assert str(sweep.marl_eval) in again["files"]
    assert set(pl.read_parquet(sweep.table_parquet)["sweep"]) == {"speed"}


def test_the_report_shows_them_side_by_side(sweep: SweepDir, unpacked: Path) -> None:
    run("report", "speed", "--results", sweep.results, "--with", f"lab={unpacked / 'multirun'}")
    page = (sweep.report / "index.html").read_text()
    assert 'id="sweeps"' in page
    assert "Sweeps side by side" in page
    assert 'aria-label="Table of comparisons by sweep"' in page
    assert "P(&gt; speed)" in page
    assert "<td>lab</td>" in page
    assert "speed lr=0.001" in page
    assert "lab lr=0.001" in page


def test_compare_sets_ours_against_theirs(sweep: SweepDir, unpacked: Path) -> None:
    theirs = f"lab={unpacked / 'multirun'}"
    output = run("compare", "speed", "--results", sweep.results, "--with", theirs, "--by", "sweep", "--json")
    compared = json.loads(output)
    assert {"speed", "lab"} <= set(json.dumps(compared["verdict"]).replace('"', " ").split())


def test_names_of_others_reach_no_terminal_as_commands(sweep: SweepDir, their: Path) -> None:
    escape = "\x1b]0;owned\x07"
    script = their / "script"
    stopped, damaged, repeated = experiments(script)[:3]
    for path in logger(stopped).glob("*.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    path = stopped / stopped.name / "texts" / "hparams0.txt"
    path.write_text(re.sub(r"'lr': [^,}]+", lambda _: f"'lr': '{escape}fast'", path.read_text()))
    (logger(damaged) / f"{escape}.csv").write_text("x\n\n")
    again = f"{escape}{repeated.name[:-17]}27_01_01-00_00_00"
    shutil.copytree(repeated, script / again)
    (script / again / repeated.name).rename(script / again / again)
    theirs = f"{escape}lab={script}"
    for command in (["collect", "speed"], ["compare", "speed", "--by", "sweep"]):
        output = run(*command, "--results", sweep.results, "--with", theirs)
        assert "\x1b]" not in output
        assert "problem" in output
        assert r"\x1b]0;owned" in output
        # As labels spell it.
        assert command[0] == "compare" or r"\u001b]0;owned\u0007fast" in output


def test_a_wrong_folder_is_an_error_before_anything_is_written(sweep: SweepDir, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["collect", "speed", "--results", str(sweep.results), "--with", str(tmp_path / "absent")]
    )
    assert isinstance(result.exception, NotFoundError)
    assert not sweep.table_parquet.exists()

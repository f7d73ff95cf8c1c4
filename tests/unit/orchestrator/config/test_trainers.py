from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from orchestrator.config.code import identity
from orchestrator.config.code.identity import code_id
from orchestrator.config.trainers import TrainerSpec, get_trainer, registry, returns_of
from orchestrator.config.trainers.benchmarl import BENCHMARL
from tests.helpers import ROOT

MINE = TrainerSpec("mine", train="mine:train", check="mine:check")


def test_a_code_id_follows_the_sources_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text("steps = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    spec = TrainerSpec("mine", train="", check="", source=("some_trainer.loop",), packages=("pytest",))

    def fresh(spec: TrainerSpec = spec) -> str:
        code_id.cache_clear()
        return code_id(spec)

    before = fresh()
    (package / "other.py").write_text("unrelated = True\n")
    shutil.rmtree(package / "__pycache__", ignore_errors=True)
    assert fresh() == before
    assert fresh(replace(spec, packages=("pytest", "hypothesis"))) != before
    (package / "loop.py").write_text('"""Say what it is."""\n\nimport math\n\nsteps = 1  # for now\n')
    assert fresh() == before
    (package / "loop.py").rename(package / "iterations.py")
    assert fresh(replace(spec, source=("some_trainer.iterations",))) == before
    (package / "loop.py").write_text("steps = 2\n")
    assert fresh() != before


def test_a_code_id_follows_the_yaml_files_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presets = tmp_path / "some_presets" / "conf" / "experiment"
    presets.mkdir(parents=True)
    (tmp_path / "some_presets" / "__init__.py").write_text("")
    (presets / "gpu.yaml").write_text("train_device: cuda\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    spec = TrainerSpec("mine", train="", check="", source=("some_presets.conf",))

    code_id.cache_clear()
    before = code_id(spec)
    (presets / "notes.txt").write_text("unrelated")
    code_id.cache_clear()
    assert code_id(spec) == before
    (presets / "gpu.yaml").write_text("train_device: cpu\n")
    code_id.cache_clear()
    assert code_id(spec) != before


@pytest.mark.parametrize("file", ["my_own/__init__.py", "my_own.py"])
def test_a_trainer_in_a_package_itself_or_in_a_single_module_has_its_sources(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / file
    source.parent.mkdir(exist_ok=True)
    source.write_text("def train(context): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    spec = TrainerSpec("mine", train="my_own:train", check="my_own:check")
    assert list(identity.sources(spec)) == [source]
    code_id.cache_clear()
    before = code_id(spec)
    (tmp_path / "grid.yaml").write_text("name: beside it\n")
    source.write_text("def train(context): return 2\n")
    code_id.cache_clear()
    assert code_id(spec) != before
    assert list(identity.sources(spec)) == [source]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names that were looked up among the installed packages, where `mine` is a trainer."""
    points = EntryPoints([EntryPoint("mine", f"{__name__}:MINE", "orchestrate.trainers")])
    asked: list[str] = []

    def find(**keys: str) -> EntryPoints:
        asked.append(keys.get("name", "all"))
        return points.select(**keys)

    cached = (get_trainer, returns_of, registry.can_evaluate)
    monkeypatch.setattr("orchestrator.config.plug_ins.entry_points", find)
    for function in cached:
        function.cache_clear()
    yield asked
    for function in cached:
        function.cache_clear()


def test_a_table_of_many_runs_looks_a_trainer_up_once(lookups: list[str]) -> None:
    assert {returns_of("mine") for _ in range(100)} == {MINE.returns}
    assert not any(registry.can_evaluate("mine") for _ in range(100))
    assert lookups == ["mine"]
    lookups.clear()
    assert len({returns_of("gone") for _ in range(100)}) == 1
    assert not any(registry.can_evaluate("gone") for _ in range(100))
    assert len(lookups) < 10


def test_benchmarls_code_id_covers_every_preset() -> None:
    presets = set((ROOT / "jobs" / "conf").rglob("*.yaml"))
    assert len(presets) >= 4
    assert presets <= set(identity.sources(BENCHMARL))


# What a trainer's process imports of the rooms in which trainers lie, and no result depends on.
DECIDES_NOTHING = {
    *("jobs.hydra.checking", "jobs.hydra.config_files", "jobs.hydra.spelling", "jobs.trainers.amounts"),
    *("jobs.trainers.actor_critic.memory", "jobs.trainers.benchmarl.configuration.spelling"),
    *("jobs.trainers.benchmarl.configuration.lone_files", "jobs.trainers.benchmarl.configuration.people"),
}


@pytest.mark.nightly(but=["benchmarl"])
@pytest.mark.parametrize("name", ["benchmarl", "ppo", "impala", "a2c"])
def test_a_code_id_covers_all_that_training_imports(name: str) -> None:
    module = get_trainer(name).train.partition(":")[0]
    families = [
        f"jobs.trainers.actor_critic.environments.{one}"
        for one in ("bucket_brigade", "gymnasium_envs", "procgen")
    ]
    program = (
        f"import sys, {', '.join([module, *(families if name != 'benchmarl' else [])])}\n"
        "own = ('jobs.hydra', 'jobs.trainers', 'jobs.training')\n"
        "print('\\n'.join(name for name in sys.modules if name.startswith(own)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    covered = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in identity.sources(get_trainer(name))
    }
    left = {
        loaded
        for loaded in set(answer.stdout.split()) - covered
        if not loaded.startswith(("jobs.training.records", "jobs.training.processes"))
    }
    assert left <= DECIDES_NOTHING
    assert len(covered) > 40


def test_an_edit_changes_the_code_id_if_it_decides_results(tmp_path: Path) -> None:
    """The modules of processes of one run were missed by lists kept by hand."""
    for package in ("jobs", "orchestrator"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    deciding = [
        *(
            f"jobs/trainers/actor_critic/processes/{name}.py"
            for name in ("launch", "children", "shared_memory")
        ),
        *("jobs/trainers/actor_critic/trainer.py", "jobs/trainers/actor_critic/environments/procgen.py"),
        *("jobs/trainers/ppo/config.py", "jobs/training/loop.py", "jobs/hydra/values.py"),
        "orchestrator/core/hydra_text.py",
    ]
    others = [
        *(
            "orchestrator/ui/cli/watch/status.py",
            "orchestrator/config/grid/parse.py",
            "jobs/worker/worker.py",
        ),
        *("jobs/training/records/loggers.py", "jobs/hydra/spelling.py", "jobs/trainers/a2c/training.py"),
    ]
    program = (
        "import sys\n"
        "from orchestrator.config.code.identity import code_id\n"
        "from orchestrator.config.trainers import get_trainer\n"
        "for name in sys.argv[1:]:\n"
        "    code_id.cache_clear()\n"
        "    before = code_id(get_trainer('ppo'))\n"
        "    open(name, 'a').write('\\nedited = True\\n')\n"
        "    code_id.cache_clear()\n"
        "    print(name, code_id(get_trainer('ppo')) != before)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, *deciding, *others],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    changed = dict(line.split() for line in answer.stdout.splitlines())
    assert changed == dict.fromkeys(deciding, "True") | dict.fromkeys(others, "False")


def test_a_trainer_of_ones_own_is_followed_through_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_learner"
    (package / "nets").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "nets" / "__init__.py").write_text("from .mlp import Mlp\n")
    (package / "nets" / "mlp.py").write_text("class Mlp: ...\n")
    (package / "nets" / "sizes.yaml").write_text("width: 8\n")
    (package / "learner.py").write_text(
        "def train(context):\n    from . import nets\n    import jobs.training.loop\n"
    )
    (package / "plots.py").write_text("from some_learner import learner\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    (package / "nets" / "up").symlink_to("..")  # a walk through it would not end
    found = identity.sources(TrainerSpec("mine", train="some_learner.learner:train", check=""))
    own = {file.relative_to(package).as_posix() for file in found if package in file.parents}
    assert own == {"__init__.py", "learner.py", "nets/__init__.py", "nets/mlp.py", "nets/sizes.yaml"}
    assert ROOT / "jobs" / "training" / "parts.py" in found
    assert ROOT / "jobs" / "training" / "records" / "loggers.py" not in found

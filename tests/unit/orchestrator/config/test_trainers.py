from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.code import identity
from orchestrator.config.code.identity import code_id
from orchestrator.config.trainers import BENCHMARL, COMMAND, TrainerSpec


@pytest.mark.parametrize("spec", [BENCHMARL, COMMAND], ids=lambda spec: spec.name)
def test_a_code_id_needs_every_source_it_names(spec: TrainerSpec) -> None:
    for module in spec.source:
        assert list(identity._sources(module)), module


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


def test_benchmarls_code_id_covers_every_preset() -> None:
    covered = {file for module in BENCHMARL.source for file in identity._sources(module)}
    presets = set((Path(__file__).parents[4] / "jobs" / "conf").rglob("*.yaml"))
    assert len(presets) >= 4
    assert presets <= covered


def test_benchmarls_code_id_covers_all_that_training_loads() -> None:
    """Of the modules that compose and train, only those that word errors may be left out."""
    program = (
        "import sys, jobs.trainers.benchmarl.experiment\n"
        "own = ('jobs.hydra.', 'jobs.trainers.benchmarl.')\n"
        "print('\\n'.join(name for name in sys.modules if name.startswith(own)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = answer.stdout.split()
    assert "jobs.trainers.benchmarl.tasks.kaz" in loaded
    left = {name for name in loaded if not any(f"{name}.".startswith(f"{own}.") for own in BENCHMARL.source)}
    assert left == {
        *(f"jobs.hydra.{name}" for name in ("config_files", "spelling")),
        *(f"jobs.trainers.benchmarl.{name}" for name in ("lone_files", "people", "spelling")),
    }

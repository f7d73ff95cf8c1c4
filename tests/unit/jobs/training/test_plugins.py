"""Plug-ins as a grid names them, and what of them counts as code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jobs.training.context import BadConfigError
from jobs.training.plugins import as_submitted, load_plugins
from orchestrator.config.code.identity import code_id
from orchestrator.config.grid import parse_grid
from orchestrator.config.sweep import runs_of
from orchestrator.config.trainers import is_installed
from orchestrator.config.trainers.benchmarl import BENCHMARL
from orchestrator.config.trainers.command import COMMAND
from orchestrator.core.errors import GridError
from orchestrator.core.records import parse, plain
from orchestrator.core.types import Job, PluginSource, Resources

GRID = "name: g\ntrainer: benchmarl\nplugins: {}\nbase: {{task: vmas/navigation, algorithm: mappo}}\n"


def read(plugins: str, source: str = "grid.yaml") -> tuple[PluginSource, ...]:
    return runs_of(parse_grid(GRID.format(plugins), source)).plugins


def write(folder: Path, name: str, text: str = "") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The folder of a package."""
    folder = tmp_path / "project" / "mine"
    write(folder, "__init__.py", "answer = 42\n")
    write(folder, "conf/task/a/b.yaml", "c: 1\n")
    return folder


def named(folder: Path) -> str:
    code_id.cache_clear()
    return code_id(BENCHMARL.with_plugins([PluginSource("mine", str(folder))]))


def test_a_folder_is_relative_to_the_grid_file_and_a_bare_name_is_installed(tmp_path: Path) -> None:
    grid = str(tmp_path / "sweeps" / "grid.yaml")
    assert read("../mine", grid) == (PluginSource("mine", str(tmp_path / "mine")),)
    assert read("[./mine/, their-marl]", grid) == (
        PluginSource("mine", str(tmp_path / "sweeps" / "mine")),
        PluginSource("their-marl"),
    )
    assert read("[]") == ()


def test_plugins_are_no_part_of_what_a_run_is() -> None:
    without = runs_of(parse_grid(GRID.replace("plugins: {}\n", "").format(), "grid.yaml"))
    one, other = (runs_of(parse_grid(GRID.format(value), "grid.yaml")) for value in ("./mine", "/else/where"))
    assert one.runs == other.runs == without.runs


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("3", "found 3, expected the folder of a package or an installed one's name"),
        ("", "found nothing, expected the folder"),
        ("[./mine, a/mine]", "found mine twice"),
        ("./my-marl", "found the folder 'my-marl', expected a name that Python can import"),
        ("'a b'", "found 'a b', expected the name of an installed plug-in"),
    ],
)
def test_what_names_no_plugin_is_refused_with_its_place(value: str, said: str) -> None:
    with pytest.raises(GridError, match=said) as caught:
        read(value)
    assert caught.value.line == 3


def test_a_trainer_without_a_use_for_plugins_refuses_them() -> None:
    grid = GRID.format("./mine").replace("benchmarl", "command")
    assert not COMMAND.takes_plugins
    with pytest.raises(GridError, match="the trainer command takes none"):
        parse_grid(grid, "grid.yaml")


def test_every_file_of_a_plugin_counts_as_code_and_nothing_else_does(plugin: Path) -> None:
    code_id.cache_clear()
    assert named(plugin) != code_id(BENCHMARL)
    before = named(plugin)
    write(plugin, "__pycache__/mine.pyc", "compiled")
    write(plugin, ".cache/x", "hidden")
    write(plugin.parent, "other.py", "a neighbour")
    assert named(plugin) == before
    for file in (plugin / "conf/task/a/b.yaml", plugin / "__init__.py"):
        file.write_text(file.read_text() + "# more\n")
        assert named(plugin) != before
        before = named(plugin)
    write(plugin, "data/level.csv", "1,2\n")
    assert named(plugin) != before


def test_without_the_plugin_there_is_no_code_of_today(plugin: Path) -> None:
    spec = COMMAND.with_plugins([PluginSource("mine", str(plugin))])
    assert is_installed(spec)
    plugin.rename(plugin.parent / "elsewhere")
    assert not is_installed(spec)
    assert not is_installed(COMMAND.with_plugins([PluginSource("nobodys")]))


def test_a_copy_of_a_plugin_elsewhere_is_the_same_code(plugin: Path, tmp_path: Path) -> None:
    write(plugin, "data/level.csv", "1,2\n")
    copy = tmp_path / "kept" / "mine"
    write(copy, "__init__.py", "answer = 42\n")
    write(copy, "conf/task/a/b.yaml", "c: 1\n")
    os.symlink(plugin / "data", copy / "data")  # as code that is kept with a sweep has what git ignores
    assert named(copy) == named(plugin)


def test_a_job_imports_the_plugin_that_was_kept_with_its_code(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PluginSource("mine", str(plugin))
    assert as_submitted(source) == source  # not in a job
    code = tmp_path / "results" / "s" / "code" / ("0" * 16)
    write(code, "code.json", "{}")
    kept = write(code, "tree/project/mine/__init__.py").parent
    (code / "tree" / "project" / "sweeps").mkdir()
    monkeypatch.setenv("ORCHESTRATE_SUBMIT_DIR", str(tmp_path / "project" / "sweeps"))
    monkeypatch.chdir(code / "tree" / "project" / "sweeps")
    assert as_submitted(source) == PluginSource("mine", str(kept))
    outside = PluginSource("other", str(tmp_path / "other"))
    write(tmp_path / "other", "__init__.py")
    assert as_submitted(outside) == outside
    installed = PluginSource("installed")
    assert as_submitted(installed) == installed


def test_a_job_says_which_plugins_it_needs() -> None:
    plugins = (PluginSource("mine", "/x/mine"), PluginSource("theirs"))
    job = Job("0001-0001", "s", "local", ("r",), 1, Resources(), plugins=plugins)
    assert parse(Job, plain(job)) == job


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            PluginSource("nobodys"),
            "no installed package has it as an entry point of the group 'orchestrate.plug",
        ),
        (PluginSource("gone", "/nowhere/gone"), "/nowhere/gone has no __init__.py"),
        (PluginSource("json", "{plugin}"), "Python has another package of that name"),
        (PluginSource("mine", "{plugin}"), "has no object 'plugin' of the class Plugin"),
    ],
)
def test_a_plugin_that_cannot_be_found_is_told(
    source: PluginSource, said: str, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    if source.folder == "{plugin}":
        folder = plugin.rename(plugin.parent / source.name)
        source = PluginSource(source.name, str(folder))
    spec = BENCHMARL.with_plugins([source])
    with pytest.raises(BadConfigError, match=said):
        load_plugins(spec)

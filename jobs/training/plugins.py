"""Load tasks, models and algorithms from outside this project.

A plug-in is a Python package with an object ``plugin`` of the class :class:`Plugin` and a folder ``conf``. A
grid names the plug-ins of its runs: by the folder of the package or, of an installed one, by the name of its
entry point.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from jobs.training.context import BadConfigError
from orchestrator.config.trainers import PLUGIN_GROUP, TrainerSpec, installed_plugin
from orchestrator.core.types import PluginSource
from orchestrator.rundir import CodeDir

if TYPE_CHECKING:
    from benchmarl.environments import TaskClass
    from benchmarl.experiment import Callback

_OBJECT = "plugin"


@dataclass(frozen=True)
class Plugin:
    """Additions to BenchMARL, by their names in a grid.

    ``tasks``: "family/name" → a subclass of BenchMARL's ``TaskClass`` and the dataclass of its config.
    ``models``: name → a subclass of ``ModelConfig``. ``algorithms``: name → a subclass of
    ``AlgorithmConfig``. Each has a file of values in the package's folder ``conf``, which is laid out like
    BenchMARL's: ``task/family/name.yaml``, ``model/layers/name.yaml``, ``algorithm/name.yaml``.
    ``callbacks``: subclasses of BenchMARL's ``Callback``; every run gets one object of each.
    """

    tasks: Mapping[str, tuple[type[TaskClass], type]] = field(default_factory=dict)
    models: Mapping[str, type] = field(default_factory=dict)
    algorithms: Mapping[str, type] = field(default_factory=dict)
    callbacks: Sequence[type[Callback]] = ()


def load_plugins(spec: TrainerSpec) -> None:
    """Import the trainer's plug-ins and register them with it. Raises :class:`BadConfigError`."""
    for source in spec.plugins:
        plugin, conf = _find(source)
        pkgutil.resolve_name(spec.takes_plugins)(source.name, plugin, conf)


def as_submitted(source: PluginSource) -> PluginSource:
    """Return the plug-in with its folder in the sweep's code snapshot, if the snapshot holds it."""
    submit_dir = os.environ.get("ORCHESTRATE_SUBMIT_DIR")
    if source.folder is None or submit_dir is None:
        return source
    here = os.path.relpath(source.folder, Path(submit_dir).resolve())
    kept = Path(os.path.normpath(Path.cwd() / here))
    return replace(source, folder=str(kept)) if CodeDir.holding(kept) and kept.is_dir() else source


def _find(source: PluginSource) -> tuple[Plugin, Path]:
    """Return the plug-in and the folder of its configs."""
    name, attribute = (source.name, _OBJECT) if source.folder else _entry_point(source.name)
    module = _from_folder(source.name, Path(source.folder)) if source.folder else _imported(source.name, name)
    found = getattr(module, attribute, None)
    assert module.__file__ is not None
    if not isinstance(found, Plugin):
        raise BadConfigError(
            f"plug-in {source.name}: {module.__file__} has no object {attribute!r} of the class Plugin",
            hint="write there: from jobs.training.plugins import Plugin, and plugin = Plugin(tasks={…}, …)",
        )
    return found, Path(module.__file__).parent / "conf"


def _entry_point(name: str) -> tuple[str, str]:
    point = installed_plugin(name)
    if point is None:
        raise BadConfigError(
            f"plug-in {name}: no installed package has it as an entry point of the group {PLUGIN_GROUP!r}",
            hint=f"install its package where the workers run; a folder is written with a slash: ./{name}",
        )
    return point.module, point.attr or _OBJECT


def _from_folder(name: str, folder: Path) -> ModuleType:
    if not (folder / "__init__.py").is_file():
        raise BadConfigError(
            f"plug-in {name}: expected the folder of a Python package, and {folder} has no __init__.py",
            hint="a folder is relative to the grid file; without a slash it is an installed plug-in",
        )
    # Last, so that no neighbour of the folder stands in for what is installed. Not removed again: what the
    # package imports later, and processes that environments start, need it too.
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    module = _imported(name, name)
    if module.__file__ is None or Path(module.__file__).resolve().parent != folder.resolve():
        raise BadConfigError(
            f"plug-in {name}: Python has another package of that name ({module.__file__ or 'a folder'})",
            hint=f"rename {folder}",
        )
    return module


def _imported(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a user's code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [f"{frame.filename}:{frame.lineno}: " for frame in frames if f"/{module}/" in frame.filename]
        where = own[-1] if own else ""
        raise BadConfigError(f"plug-in {name}: {where}{type(error).__name__}: {error}") from error

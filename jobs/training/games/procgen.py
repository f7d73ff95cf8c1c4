"""The games of Procgen, by EnvPool: its libraries loaded without root, and pools of environments.

EnvPool's package imports all its families, with the assets of each; only Procgen's is imported here. It needs
Qt's libraries, which the package PyQt5-Qt5 holds for machines without them.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs.training.config_errors import MissingHereError
from orchestrator.core.machine.installation import install_here

GAMES = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
EASY, HARD = "easy", "hard"
# Each needs those before it.
_QT_LIBRARIES = ("libicudata", "libicuuc", "libicui18n", "libQt5Core", "libQt5Gui")
_PACKAGES = {"envpool": "envpool", "envpool_assets": "envpool-assets", "dm_env": "dm-env", "optree": "optree"}


def make_pool(
    game: str, mode: str, seeds: Sequence[int], num_levels: int, start_level: int, threads: int
) -> Any:
    """Make a pool of environments, one for each seed, with Gymnasium's interface and pictures (H, W, C).

    ``num_levels``: 0 for all. Raises :class:`MissingHereError`.
    """
    return registration().make_gymnasium(
        f"{game.capitalize()}{mode.capitalize()}-v0",
        num_envs=len(seeds),
        num_threads=threads,
        seed=list(seeds),
        num_levels=num_levels,
        start_level=start_level,
        channel_first=False,
    )


@cache
def registration() -> Any:
    """Load EnvPool's Procgen; return the module that makes pools."""
    for name, package in _PACKAGES.items():
        if find_spec(name) is None:
            raise _missing(f"procgen needs {package}, which is not installed")
    _load_qt()
    if "envpool" not in sys.modules:
        sys.modules["envpool"] = _without_families()
    procgen = importlib.import_module("envpool.procgen")
    importlib.import_module("envpool.procgen.registration")
    try:
        procgen.ProcgenEnvSpec  # noqa: B018 (it raises what loading raised)
    except ImportError as error:
        missing = error.__cause__ or error
        raise _missing(f"procgen needs Qt's libraries: {missing}") from error
    return importlib.import_module("envpool.registration")


def _missing(what: str) -> MissingHereError:
    how = f"{install_here('procgen')}, or without the assets of other games, in a clone: make procgen"
    return MissingHereError("task", what, hint=how)


def _without_families() -> ModuleType:
    """Return EnvPool's package as if it imported nothing."""
    spec = find_spec("envpool")
    assert spec is not None
    package = ModuleType("envpool")
    package.__spec__ = spec
    package.__path__ = list(spec.submodule_search_locations or ())
    return package


def _load_qt() -> None:
    """Load Qt's libraries from PyQt5-Qt5, where it is installed, for EnvPool's to find."""
    spec = find_spec("PyQt5")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for name in _QT_LIBRARIES:
            for library in sorted(Path(folder, "Qt5", "lib").glob(f"{name}.so.5*"))[:1]:
                _load(library)


def _load(library: Path) -> None:
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingHereError(
            "task",
            f"procgen: Qt's {library.name} cannot be loaded: {error}",
            hint="install what is missing; on Debian and Ubuntu: apt-get install libgl1 libglib2.0-0",
        ) from error

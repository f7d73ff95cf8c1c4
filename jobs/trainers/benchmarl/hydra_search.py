"""Hydra's search path for BenchMARL's configs and ours, and Hydra's errors in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import benchmarl
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from jobs.hydra.override_text import override_text
from jobs.trainers.benchmarl.registry import config_folders

BENCHMARL_CONF = Path(benchmarl.__file__).parent / "conf"


def search_path() -> str:
    """Return the override by which Hydra finds our presets, tasks and models, and those of plug-ins."""
    return override_text("hydra.searchpath", [f"file://{folder}" for folder in config_folders()])


@contextlib.contextmanager
def hydra_ready() -> Iterator[None]:
    """Point Hydra at BenchMARL's configs; restore the caller's state of Hydra afterwards."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(BENCHMARL_CONF), version_base=None):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def first_line(error: BaseException) -> str:
    """Return the first line of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

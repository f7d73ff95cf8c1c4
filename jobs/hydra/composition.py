"""Compose a configuration from a root folder of Hydra's files and further folders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from jobs.hydra.override_text import override_text


def compose_files(root: Path, lines: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    """Compose ``config.yaml`` of the root folder; ``lines`` are arguments of Hydra's command line.

    ``with_hydra``: keep the ``hydra`` node. Raises errors of Hydra and OmegaConf.
    """
    with _hydra_ready(root):
        return hydra_compose("config", overrides=list(lines), return_hydra_config=with_hydra)


def search_path(folders: Iterable[Path]) -> str:
    """Return the argument by which Hydra finds the configs in these folders as well."""
    return override_text("hydra.searchpath", [f"file://{folder}" for folder in folders])


@contextlib.contextmanager
def _hydra_ready(root: Path) -> Iterator[None]:
    """Point Hydra at a folder of configs; restore the caller's state of Hydra afterwards."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(root), version_base=None):
            yield
    finally:
        GlobalHydra.instance().hydra = before

"""Real outputs of plain BenchMARL 1.5.2: eight trainings of `vmas/navigation`, of three iterations each.

``multirun/`` was written by ``python -m benchmarl.run -m`` (MAPPO, two learning rates, two seeds) and
``script/`` by ``Experiment(...).run()`` (MAPPO and IQL, two seeds), with the csv logger and ``create_json``.
Checkpoints and ``config.pkl`` were left out, and in Hydra's files the folders of the machine were renamed.
"""

from __future__ import annotations

from pathlib import Path

from tests import helpers

_ARCHIVE = Path(__file__).parent / "foreign" / "benchmarl-1.5.2.tar.xz"


def unpack(folder: Path) -> Path:
    """A folder with both, in the new folder ``folder``."""
    helpers.unpack(_ARCHIVE, folder)
    return folder / "benchmarl"


def experiments(folder: Path) -> list[Path]:
    """The folders of the experiments below, oldest first."""
    found = (path.parent for path in folder.rglob("*__*.json"))
    return sorted(found, key=lambda path: path.name[-17:])

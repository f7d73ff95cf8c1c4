"""Files of Hydra in a root folder and in further ones, composed with Hydra and read without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from jobs.hydra.composition import compose_files, search_path
from jobs.hydra.config_files import options_in, values_in


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    files = {
        "root/config.yaml": "defaults: [{algorithm: base}, _self_]\nseed: 0\n",
        "root/algorithm/base.yaml": "lr: 0.1\nclip: 1\n",
        "further/algorithm/mine.yaml": "defaults: [base, _self_]\nlr: 0.2\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "root", tmp_path / "further"


def test_options_of_every_folder_are_composed(folders: tuple[Path, Path]) -> None:
    root, further = folders
    before = GlobalHydra.instance().hydra
    lines = ["seed=3", "algorithm=mine", search_path([further])]
    assert compose_files(root, lines) == {"seed": 3, "algorithm": {"lr": 0.2, "clip": 1}}
    composed = compose_files(root, lines, with_hydra=True)
    assert composed.hydra.runtime.choices.algorithm == "mine"
    assert GlobalHydra.instance().hydra is before


def test_options_and_values_are_read_without_hydra(folders: tuple[Path, Path]) -> None:
    assert options_in(folders[:1], "algorithm") == ("base",)
    assert options_in(folders, "algorithm") == ("base", "mine")
    assert values_in(folders, "algorithm", "mine") == {"lr": 0.2, "clip": 1}

"""The pictures of README.md and docs/: there, small, and made by a command that works."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.synthetic import finished_sweep
from tests.browser import chromium
from tests.helpers import ROOT
from tests.pictures import FOLDER, LARGEST, draw_top, save, shot, small_film


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    made = {path.name for path in FOLDER.iterdir()}
    assert made == {"report.png", "top.png", "film.gif"}
    for page, folder in (("README.md", "docs/pictures/"), ("docs/index.md", "pictures/")):
        assert set(re.findall(rf"\]\({folder}([^)]+)\)", (ROOT / page).read_text())) == made


@pytest.mark.parametrize("name", ["report.png", "top.png", "film.gif"])
def test_pictures_are_small_and_whole(name: str) -> None:
    path = FOLDER / name
    assert path.stat().st_size <= LARGEST
    with Image.open(path) as picture:
        assert len(picture.convert("L").getcolors() or ()) > 5, "empty"


def test_noise_becomes_small_too(tmp_path: Path) -> None:
    noise = Image.effect_noise((600, 400), 90).convert("RGB")
    buffer = io.BytesIO()
    noise.save(buffer, "PNG")
    assert buffer.tell() > LARGEST
    assert save(tmp_path / "noise.png", buffer.getvalue()).stat().st_size <= LARGEST
    frames = [Image.effect_noise((300, 300), 40).convert("RGB") for _ in range(30)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(ValueError, match="is larger than"):
        small_film(tmp_path / "film.gif", tmp_path / "small.gif")


@pytest.mark.browser
def test_the_screen_of_top_is_drawn_from_any_results(tmp_path: Path) -> None:
    finished_sweep(tmp_path, "speed", {"algorithm": ["mappo", "iql"], "seed": [0]})
    size = draw_top(tmp_path, "speed", tmp_path / "top.html")
    drawn = (tmp_path / "top.html").read_text()
    assert "mappo" in drawn
    assert "iql" in drawn
    with chromium(tmp_path / "profile") as browser:
        picture = save(tmp_path / "top.png", shot(browser, tmp_path / "top.html", size))
    with Image.open(picture) as image:
        assert image.size == size

"""The pictures of README.md and docs/: `make pictures` trains sweeps/seeds.yaml, then draws them."""

from __future__ import annotations

import asyncio
import io
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageSequence

from orchestrator.control import fleet
from orchestrator.core.types import RunState
from orchestrator.rundir import RunDir, SweepDir
from orchestrator.ui.top.app import Top
from orchestrator.ui.top.fleet_access import FleetTree
from tests.browser import Browser, chromium
from tests.helpers import ROOT

FOLDER = ROOT / "docs" / "pictures"
# More than this makes a page wait.
LARGEST = 150_000
_PATIENCE_S = 900.0
_REPORT_PX = 1100, 1330
_TOP_PX, _CELLS = 1000, (100, 24)
_FILM_PX, _FILM_FRAMES = 300, 40


def take(results: Path, sweep: str, folder: Path = FOLDER) -> Iterator[Path]:
    """Draw the report, the screen of `top` and a film of the best run; yield each file."""
    statuses = fleet.present(SweepDir(results, sweep)).statuses.values()
    if any(status.state is RunState.STALE for status in statuses):
        raise SystemExit(f"{sweep} was trained by other code: remove its folder, and make pictures")
    folder.mkdir(parents=True, exist_ok=True)
    orchestrate("report", sweep, "--results", results)
    with tempfile.TemporaryDirectory() as temporary, chromium(Path(temporary) / "profile") as browser:
        yield save(
            folder / "report.png", shot(browser, results / sweep / "report" / "index.html", _REPORT_PX)
        )
        screen = Path(temporary) / "top.html"
        with at_work(Path(temporary) / "results") as (tree, working):
            size = draw_top(tree, working, screen)
        yield save(folder / "top.png", shot(browser, screen, size))
        film = Path(temporary) / "film.gif"
        best = max(finished(SweepDir(results, sweep)), key=final_return)
        orchestrate(
            "evaluate", sweep, best.path.name, "--results", results, "--episodes", "1", "--render", film
        )
        yield small_film(film, folder / "film.gif")


@contextmanager
def at_work(results: Path) -> Iterator[tuple[Path, str]]:
    """Train the demo's grid until some runs are done and some are at work; cancel the rest at the end."""
    orchestrate("sweep", ROOT / "sweeps" / "speed.yaml", "--results", results, "--detach", "--yes")
    deadline = time.monotonic() + _PATIENCE_S
    states: list[RunState] = []
    while states.count(RunState.DONE) < 2 or RunState.RUNNING not in states:
        if time.monotonic() > deadline:
            raise TimeoutError("the demo's runs do not start")
        time.sleep(1)
        states = [one.state for one in fleet.present(SweepDir(results, "speed")).statuses.values()]
    try:
        yield results, "speed"
    finally:
        orchestrate("cancel", "speed", "--results", results)


def orchestrate(*arguments: str | Path) -> None:
    command = [sys.executable, "-P", "-m", "orchestrator.ui.cli", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def finished(sweep: SweepDir) -> list[RunDir]:
    return [run for run in map(sweep.run, sweep.run_ids()) if run.result()]


def final_return(run: RunDir) -> float:
    rows = [dict(row.metrics) for row in run.history()]
    return next(
        (row[name] for row in reversed(rows) for name in row if name.endswith("/reward/episode_reward_mean")),
        float("-inf"),
    )


def shot(browser: Browser, page: Path, size: tuple[int, int]) -> bytes:
    """What a person sees first of a page."""
    tab = browser.open(page, *size)
    tab.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => true)")
    return tab.screenshot()


def draw_top(results: Path, sweep: str, file: Path) -> tuple[int, int]:
    """Write the screen of `top` as a page; its size in pixels."""
    app = Top(FleetTree(results, [sweep]))

    async def look() -> str:
        async with app.run_test(size=_CELLS) as pilot:
            deadline = time.monotonic() + _PATIENCE_S
            while not any(sight.runs for sight in app.picture.sights):
                if time.monotonic() > deadline:
                    raise TimeoutError("top has shown nothing")
                await pilot.pause(0.1)
            await pilot.pause()
            return app.export_screenshot(title=f"orchestrate top {sweep}")

    drawing = asyncio.run(look())
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert found, "Textual draws another kind of picture"
    file.write_text(f"<!doctype html><style>body {{margin: 0}} svg {{display: block}}</style>{drawing}")
    return _TOP_PX, math.ceil(_TOP_PX * float(found[2]) / float(found[1]))


def save(path: Path, png: bytes) -> Path:
    """Keep a picture with as many colours as leave it small."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32, 16):
        picture.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return path
    raise ValueError(f"{path} is larger than {LARGEST:,} bytes")


def small_film(film: Path, path: Path) -> Path:
    """Keep part of a film's frames, smaller and with fewer colours."""
    with Image.open(film) as whole:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(whole)]
    step = max(1, len(frames) // _FILM_FRAMES)
    for width in (_FILM_PX, 200, 140):
        height = round(width * frames[0].height / frames[0].width)
        kept = [frame.resize((width, height)).quantize(32) for frame in frames[::step]]
        kept[0].save(path, save_all=True, append_images=kept[1:], duration=100, loop=0, optimize=True)
        if path.stat().st_size <= LARGEST:
            return path
    raise ValueError(f"{path} is larger than {LARGEST:,} bytes")


if __name__ == "__main__":
    for taken in take(Path(sys.argv[1]), sys.argv[2]):
        sys.stdout.write(f"{taken.relative_to(ROOT)}  {taken.stat().st_size:,} bytes\n")

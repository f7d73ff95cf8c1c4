"""The screen of `orchestrate top`, whole, as golden files; read them in the diff."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from orchestrator.core.errors import RefusedError
from orchestrator.core.types import JobState, JobStatus
from orchestrator.ui.top.app import ActionMessage, FleetRefreshed, Top
from tests.fleets import NOON, Stage, StagedFleet, claimed, ended, progress, run_id

GOLDEN = Path(__file__).parents[3] / "golden"
PATIENCE_S = 60.0
pytestmark = pytest.mark.usefixtures("utc")

Script = Callable[[Top, Pilot[None]], Awaitable[None]]
HOSTILE = "[bold]no[/bold] \x1b[31mred\x07 \x9b2J 漢字 " + "long " * 30


def speed() -> Stage:
    """Six runs on a cluster: done, training, failed, waiting."""
    names = ("mappo", "ippo", "iql")
    stage = Stage("speed", [{"algorithm": name, "seed": seed} for name in names for seed in range(2)])
    running = JobStatus(JobState.RUNNING, "RUNNING", place="node1")
    stage.submit("0001-0001.0", [0, 1, 2, 3], running, slots=2)
    stage.submit("0002-0001.0", [4, 5], JobStatus(JobState.QUEUED, "PENDING (Priority)"), on="cpu")
    stage.work(
        "0001-0001.0",
        NOON - 3600,
        claimed(0, NOON - 3590),
        claimed(1, NOON - 3590),
        ended(0, NOON - 1700, summary={"end_to_end_fps": 4321.0, "final_return": 1.5}, frames=1_000_000),
        ended(1, NOON - 1600, "failed", reason="out of memory", message="it wanted more than 4G"),
        claimed(2, NOON - 1500),
        claimed(3, NOON - 1500),
        *(
            progress(
                number,
                NOON - 400 + 10 * at,
                frames=10_000 * at,
                total=1_000_000,
                end_to_end_fps=100.0 * at * number,
                iteration_fps=100.0 * at * number,
            )
            for at in range(1, 40)
            for number in (2, 3)
        ),
    )
    return stage


def strange() -> Stage:
    """A sweep whose names mean harm, on a backend that does not answer."""
    stage = Stage("strange", [{"task": HOSTILE, "seed": 0}, {"task": "plain", "seed": 1}])
    stage.submit("0001-0001.0", [0, 1], JobStatus(JobState.UNKNOWN, f"squeue: {HOSTILE}"), on="far")
    stage.work("0001-0001.0", NOON - 60, ended(0, NOON - 30, "failed", reason="code error", message=HOSTILE))
    return stage


def play(fleet: StagedFleet, script: Script, size: tuple[int, int] = (80, 24)) -> Top:
    """The program, after the script has been played on it."""
    app = Top(fleet, clock=lambda: fleet.now)

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(lambda: app.picture.at is not None)
            await script(app, pilot)

    try:
        asyncio.run(run())
    finally:
        fleet.allow(9)  # a look that waits may end
    return app


async def until(predicate: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def text_of(app: Top) -> str:
    """What is on the screen, by the picture of it that the program itself can make."""
    picture = app.export_screenshot()
    size = app.size
    lines = [[" "] * size.width for _ in range(size.height)]
    pattern = r'<text [^>]* x="([\d.]+)" [^>]*-line-(\d+)\)">([^<]*)</text>'
    for x, line, text in re.findall(pattern, picture):
        column = round(float(x) / 12.2)
        for offset, character in enumerate(html.unescape(text).replace("\xa0", " ")):
            if column + offset < size.width:
                lines[int(line)][column + offset] = character
    return "\n".join("".join(line).rstrip() for line in lines) + "\n"


async def assert_golden(app: Top, name: str, update: bool) -> None:
    """Wait for the screen that is expected: sweeps are read one after another, and each is drawn."""
    path = GOLDEN / f"top_{name}.txt"
    if update:
        path.write_text(text_of(app))
    deadline = time.monotonic() + PATIENCE_S
    while text_of(app) != path.read_text() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert text_of(app) == path.read_text()


def keys(*pressed: str) -> Script:
    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(*pressed)

    return script


@pytest.mark.parametrize(
    ("name", "pressed", "size"),
    [
        ("runs", (), (80, 24)),
        ("runs_wide", (), (130, 16)),
        ("runs_tiny", (), (40, 10)),
        ("jobs", ("2",), (80, 24)),
        ("sweeps", ("3",), (80, 24)),
        ("failures", ("4", "down"), (80, 24)),
        ("help", ("question_mark",), (80, 24)),
        ("cancel", ("c",), (80, 24)),
        ("log", ("l",), (80, 24)),
        ("filter", ("slash", *"mappo", "enter", "s", "s"), (80, 24)),
        ("runs_of_a_job", ("2", "down", "down", "enter"), (80, 24)),
    ],
)
def test_the_whole_screen(
    name: str, pressed: tuple[str, ...], size: tuple[int, int], update_golden: bool
) -> None:
    log = "".join(f"\x1b[32mstep {step}\x1b[0m [red]of[/red] 40\n" for step in range(40)) + HOSTILE
    fleet = StagedFleet(speed(), strange(), prices={"gpu": 2.5}, logs=log)

    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(*pressed)
        if name == "log":
            await until(lambda: "step 39" in text_of(app))
        await assert_golden(app, name, update_golden)

    play(fleet, script, size)


def test_what_cannot_be_looked_at_keeps_what_was_seen(update_golden: bool) -> None:
    fleet = StagedFleet(speed())

    async def script(app: Top, pilot: Pilot[None]) -> None:
        fleet.stages["speed"].problem = RefusedError("storage is not there", hint="ask the site")
        fleet.now = NOON + 180
        fleet.allow()
        await pilot.press("u")
        await until(lambda: app.picture.at == NOON + 180)
        await pilot.pause()
        await assert_golden(app, "trouble", update_golden)

    play(fleet, script)


def test_an_empty_tree_says_how_to_begin(update_golden: bool) -> None:
    async def script(app: Top, pilot: Pilot[None]) -> None:
        await assert_golden(app, "empty", update_golden)

    play(StagedFleet(), script, (80, 12))


def test_nothing_is_done_without_a_yes_and_then_to_these_runs_only() -> None:
    fleet = StagedFleet(speed())
    play(fleet, keys("c", "n", "c", "escape", "c", "enter", "x", "q"))
    assert fleet.asked == []

    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("c", "y")  # the run under the cursor
        await pilot.press("3", "c", "y")  # what is left of the sweep
        await pilot.press("2", "r", "y")  # what failed of the first job
        await pilot.press("1", "end", "r", "y")  # a run that is done
        await until(lambda: len(fleet.asked) == 4)

    play(fleet, script)
    assert fleet.asked == [
        ("cancel", "speed", [run_id(2)]),
        ("cancel", "speed", [run_id(number) for number in (2, 3, 4, 5)]),
        ("retry", "speed", [run_id(1)]),
        ("retry", "speed", [run_id(0)]),
    ]


def test_what_was_done_and_what_was_refused_is_told() -> None:
    fleet = StagedFleet(speed())

    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("r")
        await until(lambda: "nothing to retry" in text_of(app))
        await pilot.press("c", "y")
        await until(lambda: "cancel: understood" in text_of(app))
        await pilot.press("x")
        await until(lambda: "exchange: understood" in text_of(app))
        fleet.refusal = RefusedError("the queue [is] full", hint="wait")
        await pilot.press("c", "y")
        await until(lambda: "the queue [is] full (wait)" in text_of(app))
        await until(lambda: not app.unfinished)

    play(fleet, script, (100, 40))


def test_the_cursor_stays_on_its_run_when_others_come_and_go() -> None:
    fleet = StagedFleet(speed())

    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("down")
        assert "›00000003 ippo" in text_of(app).replace("  ", " ")
        stage = fleet.stages["speed"]
        log = stage.logs["0001-0001.0"]
        stage.work("0001-0001.0", NOON - 3600, *log.events[1:], ended(2, NOON, frames=1))
        fleet.now += 1
        fleet.allow()
        await pilot.press("u")
        await until(lambda: app.picture.at == NOON + 1)
        await pilot.pause()
        assert "›00000003 ippo" in text_of(app).replace("  ", " ")
        await pilot.press("home")
        assert "›00000003 ippo" in text_of(app).replace("  ", " "), "the first that runs"

    play(fleet, script)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl+c", 130)])
@pytest.mark.parametrize("over", [(), ("question_mark",), ("c",), ("l",), ("slash",)])
def test_the_way_out(key: str, code: int, over: tuple[str, ...]) -> None:
    if over and key == "q":
        return  # there q leaves what is over the list
    assert play(StagedFleet(speed()), keys(*over, key)).return_code == code


@pytest.mark.parametrize("coloured", [True, False])
def test_without_colours_there_are_none_and_the_cursor_is_still_seen(
    coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not coloured:
        monkeypatch.setenv("NO_COLOR", "1")

    async def script(app: Top, pilot: Pilot[None]) -> None:
        assert "›" in text_of(app)
        found = re.findall(r"fill: #([0-9a-f]{6})", app.export_screenshot())
        assert any(max(colour) - min(colour) > 16 for colour in map(bytes.fromhex, found)) == coloured

    play(StagedFleet(speed()), script)


def test_ten_thousand_runs_are_no_ten_thousand_widgets() -> None:
    stage = Stage("big", [{"seed": seed} for seed in range(10_000)])
    stage.submit("0001-0001.0", range(10_000), JobStatus(JobState.QUEUED, "PENDING"))

    async def script(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("end")
        assert "seed=9999" in text_of(app)
        assert "10,000 queued" in text_of(app)
        assert len(list(app.query("*"))) < 30
        await pilot.press("slash", *"=777", "enter")
        assert "11 shown" in text_of(app)

    play(StagedFleet(stage), script)


def test_what_comes_while_the_screen_is_taken_down_is_no_error() -> None:
    async def script(app: Top, pilot: Pilot[None]) -> None:
        await app._close_all()  # as leaving does first
        assert not app.screen_stack
        app.on_fleet_refreshed(FleetRefreshed(app.picture))
        app.on_action_message(ActionMessage("too late"))

    play(StagedFleet(speed()), script)

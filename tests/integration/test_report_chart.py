"""The chart of the report in a real browser: what a reader sees after each control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.synthetic import create_sweep, finish, matrix_runs
from orchestrator.analysis.collect import collect
from orchestrator.analysis.report import write_report
from orchestrator.core.records import plain
from orchestrator.core.types import Job, Resources
from orchestrator.rundir import Event, Holder, Row
from orchestrator.rundir.records.journal import CLAIMED, STARTED
from tests.browser import Browser, Page
from tests.helpers import enter

pytestmark = pytest.mark.browser

EVAL = "eval/reward/episode_reward_mean"
ODD_TASK = "own/a+b&50%25"
LEVELS = {"mappo": 100.0, "iql": 10.0}
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
CANVAS = "document.querySelector('.chart canvas')"
BUTTONS = "[...document.querySelectorAll('.chart .legend button')]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, two algorithms with two variants each, three seeds; a run takes an hour at 4 dollars."""
    matrix = {
        "task": ["vmas/navigation", ODD_TASK],
        "algorithm": ["iql", "mappo"],
        "experiment.lr": [0.001, 0.0001],
        "seed": range(3),
    }
    runs = matrix_runs(matrix)
    sweep = create_sweep(tmp_path_factory.mktemp("chart") / "results", "seen", runs)
    for run in runs:
        log = sweep.run(run.run_id).attempt(1).log
        log.parent.mkdir(parents=True)
        log.write_text(f"{'early line ' * 500}\n<b>the end of seed {run.seed}</b>\n")
        level = LEVELS[run.overrides["algorithm"]] + run.overrides["experiment.lr"] * 1000
        rows = [Row(at, 1000 * at, 360.0 * at, {EVAL: level * at / 10 + run.seed}) for at in range(1, 11)]
        finish(sweep.run(run.run_id), run, rows, final_return=level + run.seed)
    job = Job("0001-0001", sweep.name, "local", tuple(run.run_id for run in runs), 1, Resources())
    facts = {"target": "local", "on": "local", "trainer": "benchmarl", "job_ids": {}, "skipped": {}}
    enter(sweep, "submission", {"time": 0.0, "jobs": [plain(job)], "cost": {"price_per_hour": 4.0}, **facts})
    holder = Holder("node1", "another boot", "", 1, 0)
    journal = sweep.take_token(job.token, Event(STARTED, 0.0, data={"holder": plain(holder)}))
    assert journal is not None
    for run in runs:
        journal.append(Event(CLAIMED, 1.0, run.run_id, 1))
    return write_report([sweep], collect([sweep]), sweep.report, generated="2026-01-02 03:04 UTC")


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    page = browser.open(report)
    yield page
    assert page.complaints == []
    page.close()


def point_at(page: Page, share: float, kind: str = "mouseMoved", **told: Any) -> None:
    """Put the pointer at a share of the chart's width."""
    page.evaluate(f"{CANVAS}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    page.evaluate(DRAWN)
    left, top, width = page.evaluate(
        f"(() => {{ const r = {CANVAS}.getBoundingClientRect(); return [r.x, r.y, r.width]; }})()"
    )
    x, y = left + share * width, top + 150
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **told)
    page.evaluate(DRAWN)


def values(page: Page, share: float = 0.97) -> dict[str, str]:
    """The values that the pointer finds, by line, from the highest; the x value has the name ""."""
    point_at(page, share)
    found: dict[str, str] = page.evaluate(
        "Object.fromEntries([['', document.querySelector('.chart .values b').textContent],"
        " ...[...document.querySelectorAll('.chart .values tr')].map("
        "   row => [row.cells[1].textContent, row.cells[2].textContent])])"
    )
    return found


def address(page: Page) -> str:
    text: str = page.evaluate("decodeURIComponent(location.hash)")
    return text


def choose(page: Page, name: str, value: str) -> None:
    """Set an input of the chart as a person would."""
    page.evaluate(
        f"(() => {{ const one = document.querySelector('.chart [name={name}]');"
        f" one.value = {json.dumps(value)}; one.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
    )


def paint(page: Page) -> str:
    page.evaluate(DRAWN)
    drawn: str = page.evaluate(f"{CANVAS}.toDataURL()")
    return drawn


def test_the_pointer_finds_values_and_buttons_choose_lines(page: Page) -> None:
    found = values(page)
    assert list(found)[1:] == ["mappo lr=0.001", "mappo lr=0.0001", "iql lr=0.001", "iql lr=0.0001"]
    assert found["mappo lr=0.001"].startswith("91.9")  # nine tenths of 101, and seed 1
    page.click(".chart .legend li:nth-child(2) button")
    assert list(values(page))[1:] == ["mappo lr=0.001", "iql lr=0.001", "iql lr=0.0001"]
    pressed = f"{BUTTONS}.map(one => one.getAttribute('aria-pressed'))"
    assert page.evaluate(pressed) == ["true", "false", "true", "true"]
    page.click(".chart [name=none]")
    assert list(values(page)) == [""]
    page.click(".chart [name=all]")
    assert len(values(page)) == 5


def test_a_drag_zooms_and_a_double_click_shows_all(page: Page) -> None:
    everything = values(page, 0.5)[""]
    point_at(page, 0.3, "mousePressed", button="left", clickCount=1)
    point_at(page, 0.4, buttons=1)
    point_at(page, 0.4, "mouseReleased", button="left", clickCount=1)
    assert "zoom=" in address(page)
    low, high = map(float, address(page).partition("zoom=")[2].split("~"))
    assert 2000 < low < high < 4500
    assert values(page, 0.5)[""] != everything
    page.click(".chart [name=reset]")
    assert values(page, 0.5)[""] == everything
    assert "zoom" not in address(page)


def test_the_x_axis_is_frames_time_or_dollars(page: Page) -> None:
    assert values(page, 0.97)[""].endswith("k")
    page.click(".chart .choice [value=time]")
    assert values(page, 0.97)[""].endswith(" min")
    page.click(".chart .choice [value=dollars]")
    assert values(page, 0.97)[""] == "$3.6"  # nine tenths of an hour, where the last point is
    assert values(page, 0.97)["mappo lr=0.001"].startswith("91.9")


def test_smoothing_and_seeds_change_what_is_drawn(page: Page) -> None:
    plain, raw = paint(page), values(page)["mappo lr=0.001"]
    choose(page, "smooth", "0.9")
    assert values(page)["mappo lr=0.001"] != raw
    assert "weight 0.9" in page.evaluate("document.querySelector('.chart .note').textContent")
    choose(page, "smooth", "0")
    assert values(page)["mappo lr=0.001"] == raw
    checked = "document.querySelector('.chart [name=seeds]').checked"
    assert page.evaluate(checked)  # three seeds have no interval
    page.click(".chart [name=seeds]")
    assert address(page).endswith("?seeds=0")
    assert paint(page) != plain
    page.click(".chart [name=seeds]")
    assert paint(page) == plain


def test_the_present_view_is_saved_as_svg(page: Page, tmp_path: Path) -> None:
    page.system(dark=True)
    page.click(".chart .legend li:nth-child(2) button")
    page.click(".chart .choice [value=time]")
    drawn = ElementTree.fromstring(page.download(".chart [name=save]", tmp_path / "saved"))
    texts = [one.text or "" for one in drawn.iter() if one.tag.endswith("text")]
    assert "wall time of a run" in texts
    assert texts[-3:] == ["mappo lr=0.001 (n=3)", "iql lr=0.001 (n=3)", "iql lr=0.0001 (n=3)"]
    strokes = [one for one in drawn.iter() if one.get("stroke") == "#0072b2"]
    assert len(strokes) == 2 * (3 + 1 + 1)  # seeds, their mean, and the legend, of both variants of iql
    assert next(one for one in drawn.iter() if one.tag.endswith("path")).get("fill") == "#fff"


def test_the_address_brings_the_same_view_back(page: Page, browser: Browser, report: Path) -> None:
    page.evaluate(
        "(() => { const one = document.querySelector('.chart select'); one.value = '1';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    page.click(".chart .choice [value=time]")
    choose(page, "smooth", "0.5")
    page.click(".chart [name=seeds]")
    page.click(".chart .legend li:nth-child(1) button")
    told, here = values(page), address(page)
    assert f"task={ODD_TASK}" in here
    again = browser.open(report, fragment=page.evaluate("location.hash"))
    again.evaluate(DRAWN)
    assert again.evaluate("document.querySelector('.chart select').selectedOptions[0].text") == ODD_TASK
    assert values(again) == told
    again.evaluate("location.hash = '#runs'")
    assert values(again) == told
    again.evaluate("location.hash = '#learning?x=nonsense&smooth=7&zoom=9~1&show=no_such_group'")
    assert list(values(again)) == [""]
    assert again.complaints == []
    again.close()


@pytest.mark.parametrize("words", ["smooth=%", "x=toString", "zoom=1~1.0000000000000002"])
def test_an_address_that_means_nothing_leaves_the_chart(browser: Browser, report: Path, words: str) -> None:
    page = browser.open(report, fragment=f"#learning?{words}")
    assert len(values(page)) == 5
    assert page.complaints == []
    page.close()


def test_a_keyboard_moves_and_zooms(page: Page) -> None:
    page.evaluate(DRAWN)
    page.evaluate(f"{CANVAS}.focus()")
    page.press("+")
    assert "zoom=" in address(page)
    page.press("Escape")
    assert "zoom=" not in address(page)


def test_algorithms_have_colours_and_variants_dashes(page: Page) -> None:
    looks = page.evaluate(
        "[...document.querySelectorAll('.chart .legend svg')].map(one => [one.getAttribute('class'),"
        " one.firstChild.getAttribute('stroke-dasharray')])"
    )
    assert [look[0] for look in looks] == ["swatch hue1", "swatch hue1", "swatch hue0", "swatch hue0"]
    assert looks[0][1] == looks[2][1] != looks[1][1] == looks[3][1]


def test_paper_and_pages_without_script_have_the_pictures(page: Page, browser: Browser, report: Path) -> None:
    assert not page.evaluate("document.querySelector('details.folded').open")
    page.system(paper=True)
    assert page.evaluate(f"{CANVAS}.getClientRects().length") == 0
    page.system()
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.load(report)
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    shown = "document.querySelector('details.folded figure').getClientRects().length"
    assert page.evaluate(shown) == 1
    assert page.evaluate("document.querySelector('.chart').getClientRects().length") == 0


def test_a_telephone_gets_the_chart_in_its_width(browser: Browser, report: Path) -> None:
    page = browser.open(report, 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert 250 < page.evaluate(f"{CANVAS}.clientWidth") < 390
    page.system(dark=True)
    dark = paint(page)
    page.system()
    assert paint(page) != dark
    assert page.complaints == []
    page.close()


def test_times_to_a_threshold_show_their_dollars_in_a_narrow_window(browser: Browser, report: Path) -> None:
    page = browser.open(report, 850)
    wide = "document.querySelector('#thresholds .wide')"
    assert "dollars" in page.evaluate(f"{wide}.querySelector('thead').textContent")
    assert page.evaluate(f"{wide}.scrollWidth <= {wide}.clientWidth")
    page.close()


def test_a_run_shows_what_differs_its_log_and_how_to_train_it_again(page: Page) -> None:
    page.evaluate("window.first = document.querySelector('#runs tbody button')")
    page.click("#runs thead th:nth-child(4) button")
    page.evaluate("window.first.click()")
    told = page.evaluate("document.querySelector('#runs .detail').innerText")
    assert "python -m jobs.train --sweep again benchmarl" in told
    assert "algorithm=iql experiment.lr=0.001 task=vmas/navigation seed=0" in told
    assert "<b>the end of seed 0</b>" in told
    assert "early line" not in told
    page.evaluate(
        "window.last = [...document.querySelectorAll('#runs tbody button')].at(-1); window.last.click()"
    )
    assert "experiment.algorithm" in page.evaluate(
        "document.querySelector('#runs .detail table')?.innerText ?? ''"
    )
    page.evaluate("window.last.click()")
    assert page.evaluate("document.querySelector('#runs .detail').hidden")


def test_a_return_shows_its_pairs_with_the_other_variants(page: Page) -> None:
    """Seeds differ by one each and learning rates by 0.9: six of nine pairs are won."""
    cell = "#evidence tbody tr:nth-child(1) td:nth-child(2) .open"
    assert page.evaluate("document.querySelector('#evidence .detail').hidden")
    page.click(cell)
    told = page.evaluate(
        "[...document.querySelectorAll('#evidence .detail tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert [row[0] for row in told] == ["mappo lr=0.0001", "iql lr=0.001", "iql lr=0.0001"]
    chances = ("0.67", "1.00", "1.00")
    assert [row[1:] for row in told] == [["3", chance, "too few seeds"] for chance in chances]
    title = page.evaluate("document.querySelector('#evidence .detail h3').textContent")
    assert title == "mappo lr=0.001 on vmas/navigation, 3 seeds"
    page.click(cell)
    assert page.evaluate("document.querySelector('#evidence .detail').hidden")

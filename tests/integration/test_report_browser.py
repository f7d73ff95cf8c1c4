"""The report in a real browser: sorted, filtered, dark, printed, narrow, and cut off from every network."""

from __future__ import annotations

import csv
import math
import shutil
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.synthetic import (
    create_sweep,
    end_attempt,
    finish,
    matrix_runs,
    training_rows,
    write_attempt,
)
from orchestrator.analysis.collect import collect
from orchestrator.analysis.report import write_report
from orchestrator.core.types import RunState
from tests.browser import Browser, Page
from tests.helpers import surveyed

pytestmark = pytest.mark.browser

FINALS = [9.5, 100.0, 10.25, -3.0, math.nan]
LONG = "a_name_without_end_" * 12
ROWS = "[...document.querySelectorAll('#runs tbody tr')]"
SHOWN = f"{ROWS}.filter(row => row.getClientRects().length)"
PICTURES = "[...document.querySelectorAll('.picture svg')].filter(image => image.getClientRects().length)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small sweep with something of everything: numbers, gaps, states, names without end."""
    runs = matrix_runs({"algorithm": ["mappo", "iql", LONG], "seed": range(len(FINALS))})
    sweep = create_sweep(
        tmp_path_factory.mktemp("page") / "results", "seen", runs, "name: seen  # the grid\n"
    )
    for run in runs[:10]:
        level = FINALS[run.seed] + (0 if run.overrides["algorithm"] == "mappo" else 0.125)
        finish(sweep.run(run.run_id), run, training_rows(run, 3), final_return=level)
    failed = sweep.run(runs[10].run_id).attempt(1)
    write_attempt(failed, training_rows(runs[10], 2))
    end_attempt(failed, "failed", "out of memory", "needed 2 GiB more")
    skipped = {runs[11].run_id: RunState.SKIPPED}
    collected = collect([sweep], surveyed(skipped, {runs[11].run_id: "needs a GPU"}))
    return write_report([sweep], collected, sweep.report, generated="2026-01-02 03:04 UTC")


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    page = browser.open(report)
    yield page
    page.load(report)  # whatever the test did to it
    page.evaluate("localStorage.clear()")
    page.close()


def column(page: Page, name: str, rows: str = SHOWN) -> list[str]:
    """The texts of a column of the runs that are shown, from top to bottom."""
    number = heads(page).index(name)
    found: list[str] = page.evaluate(f"{rows}.map(row => row.cells[{number}].textContent)")
    return found


def heads(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('#runs thead th')].map(e => e.textContent)"
    )
    return found


def head(page: Page, name: str) -> str:
    return f"#runs thead th:nth-child({heads(page).index(name) + 1})"


def said(page: Page, selector: str) -> str:
    text: str = page.evaluate(f"document.querySelector({selector!r}).textContent")
    return text


def style(page: Page, selector: str, name: str) -> str:
    value: str = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{name}")
    return value


def test_a_click_on_a_head_sorts_numbers_as_numbers_with_gaps_last(page: Page) -> None:
    before = column(page, "run")
    way = head(page, "final return")
    page.click(f"{way} button")
    up = ["-3", "-2.875", "9.5", "9.625", "10.25", "10.38", "100", "100.1"]
    gaps = ["–"] * 7
    assert column(page, "final return") == up + gaps
    assert page.evaluate(f"document.querySelector({way!r}).ariaSort") == "ascending"
    page.click(f"{way} button")
    assert column(page, "final return") == up[::-1] + gaps
    page.click(f"{way} button")
    assert column(page, "run") == before
    page.click(f"{head(page, 'state')} button")
    assert column(page, "state") == ["done"] * 10 + ["failed"] + ["pending"] * 3 + ["skipped"]
    sorted_by = page.evaluate("document.querySelectorAll('#runs [aria-sort]:not([aria-sort=none])').length")
    assert sorted_by == 1
    assert page.complaints == []


def test_a_keyboard_is_enough(page: Page) -> None:
    page.click("#runs input")
    for _ in range(12):
        page.press("Tab")
        if page.evaluate("document.activeElement.closest('th') !== null"):
            break
    focus = "document.activeElement"
    assert page.evaluate(f"{focus}.closest('th').textContent") == heads(page)[0]
    assert page.evaluate(f"getComputedStyle({focus}).outlineStyle") == "solid"
    page.press("Tab")
    page.press("Enter")
    assert page.evaluate(f"{focus}.closest('th').ariaSort") == "ascending"
    assert column(page, "algorithm") == [LONG] * 5 + ["iql"] * 5 + ["mappo"] * 5
    assert page.evaluate("document.querySelector('#runs .wide').tabIndex") == 0


def test_words_and_states_choose_rows_and_the_count_says_how_many(page: Page) -> None:
    assert said(page, "#runs output") == "15 rows"
    page.click("#runs input")
    page.type("iql 100.1")
    assert said(page, "#runs output") == "1 of 15 rows"
    assert column(page, "algorithm") == ["iql"]
    page.evaluate("document.querySelector('#runs input').select()")
    page.type("MAPPO")
    assert column(page, "algorithm") == ["mappo"] * 5
    page.evaluate("document.querySelector('#runs input').select()")
    page.type("needs")
    assert column(page, "state") == ["skipped"]  # its reason is in the title
    page.evaluate("document.querySelector('#runs input').select()")
    page.press(" ")
    page.click("#runs .states [value=failed]")
    assert column(page, "state") == ["failed"]
    page.click("#runs .states [value=pending]")
    assert said(page, "#runs output") == "4 of 15 rows"
    page.click(f"{head(page, 'state')} button")
    assert column(page, "state") == ["failed"] + ["pending"] * 3
    page.click("#runs .states [value=failed]")
    page.click("#runs .states [value=pending]")
    assert said(page, "#runs output") == "15 rows"
    assert len(column(page, "state")) == 15


def test_files_come_out_of_a_page_that_was_sent_alone(browser: Browser, report: Path, tmp_path: Path) -> None:
    alone, folder = tmp_path / "alone.html", tmp_path / "saved"
    shutil.copy(report, alone)
    page = browser.open(alone, dark=True)
    # A browser saves ten files at once and no more.
    for name in ("table-groups.csv", "table-runs.csv", "table-times-to-a-threshold.csv"):
        beside = report.with_name(name)
        assert alike(page.download(f".files a[href='{name}']", folder), beside.read_text())
        tex = beside.with_suffix(".tex")
        assert page.download(f".files a[href='{tex.name}']", folder) == tex.read_text()
    page.evaluate("document.querySelector('details.folded').open = true")
    drawn = ElementTree.fromstring(page.download(".files a[href='final-1.svg']", folder))
    beside = ElementTree.parse(report.with_name("final-1.svg")).getroot()
    assert texts_of(drawn) == texts_of(beside)
    assert "var(" not in ElementTree.tostring(drawn, encoding="unicode")
    paper = next(one for one in drawn.iter() if one.tag.endswith("path"))
    assert paper.get("fill") == "#fff"
    assert page.evaluate("document.documentElement.dataset.theme === undefined")
    assert page.complaints == []
    page.close()


def alike(one: str, other: str) -> bool:
    """Whether two CSV files hold the same, numbers to six digits."""

    def value(cell: str) -> object:
        try:
            return float(cell)
        except ValueError:
            return cell

    def number(cell: str) -> object:
        try:
            return pytest.approx(float(cell), rel=1e-7, nan_ok=True)
        except ValueError:
            return cell

    read = [[value(cell) for cell in row] for row in csv.reader(one.splitlines())]
    return read == [[number(cell) for cell in row] for row in csv.reader(other.splitlines())]


def texts_of(svg: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in svg.iter() if one.tag.endswith("text")]


def test_a_failed_run_says_in_what_it_differs_and_why_it_knows_no_more(page: Page) -> None:
    opened = "document.querySelector('#runs .detail').innerText"
    page.evaluate(f"{ROWS}[10].querySelector('button').click()")
    assert "There is no result with its composed configuration: these keys of the grid differ." in (
        page.evaluate(opened)
    )
    assert LONG in page.evaluate(f"{opened}.split('most runs')[1]")
    page.evaluate(f"{ROWS}[0].querySelector('button').click()")
    assert "There is no result" not in page.evaluate(opened)


def test_light_and_dark_follow_the_system_until_someone_chooses(page: Page, report: Path) -> None:
    def looks() -> str:
        papers = page.evaluate(f"{PICTURES}.map(one => getComputedStyle(one.querySelector('path')).fill)")
        assert len(papers) >= 4
        shown = {"rgb(255, 255, 255)": "light", "rgb(24, 27, 33)": "dark"}[papers[0]]
        assert len(set(papers)) == 1
        red = int(style(page, "body", "backgroundColor").removeprefix("rgb(").partition(",")[0])
        assert (red > 200) == (shown == "light")
        assert (red < 60) == (shown == "dark")
        return shown

    assert looks() == "light"
    page.system(dark=True)
    assert looks() == "dark"
    page.system(dark=True, paper=True)
    assert looks() == "light"
    page.system()
    page.click("#theme")
    assert (looks(), said(page, "#theme")) == ("dark", "Theme: dark")
    page.system(paper=True)
    assert looks() == "light"
    page.system()
    page.load(report)
    assert (looks(), said(page, "#theme")) == ("dark", "Theme: dark")
    page.system(dark=True)
    page.click("#theme")
    assert (looks(), said(page, "#theme")) == ("dark", "Theme: auto")
    page.click("#theme")
    assert (looks(), said(page, "#theme")) == ("light", "Theme: light")
    assert page.complaints == []


def test_a_page_that_may_remember_nothing_still_changes(page: Page) -> None:
    page.evaluate("Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied') }}) && 0")
    page.click("#theme")
    assert said(page, "#theme") == "Theme: dark"
    assert page.complaints == []


def test_paper_gets_all_rows_and_no_controls(page: Page) -> None:
    page.click("#runs input")
    page.type("no row has this word")
    assert column(page, "run") == []
    controls = "[...document.querySelectorAll('input, #theme, .states, nav, output')]"
    visible = f"{controls}.filter(one => one.getClientRects().length).length"
    assert page.evaluate(visible) == 7
    page.system(paper=True)
    assert page.evaluate(visible) == 0
    assert len(column(page, "run")) == 15
    assert style(page, "body", "color") == "rgb(29, 33, 41)"
    assert style(page, "#runs .wide", "overflowX") == "visible"
    assert style(page, "th button", "display") == "contents", "or further pages have no heads of columns"
    folded = "document.querySelectorAll('details:not([open])').length"
    page.evaluate(f"addEventListener('beforeprint', () => window.foldedOnPaper = {folded})")
    assert page.evaluate(folded) == 3
    paper = page.pdf()
    assert paper.startswith(b"%PDF-")
    assert page.evaluate("[window.foldedOnPaper, " + folded + "]") == [0, 3]
    sides = {(round(wide), round(high)) for wide, high in media_boxes(paper)}
    assert (595, 842) in sides
    assert (842, 595) in sides  # the table of runs lies


def media_boxes(pdf: bytes) -> Iterator[tuple[float, float]]:
    """The size of each page in points; some of a PDF's parts are packed."""
    import re

    texts = [pdf]
    for match in re.finditer(rb"stream\r?\n", pdf):
        try:
            texts.append(zlib.decompressobj().decompress(pdf[match.end() :]))
        except zlib.error:
            pass  # a picture or a font
    for text in texts:
        for box in re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", text):
            yield float(box[0]), float(box[1])


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_of_the_page(browser: Browser, report: Path, width: int) -> None:
    page = browser.open(report, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.clientWidth") == width
    wide = page.evaluate(f"{PICTURES}.every(image => image.getBoundingClientRect().width >= 330)")
    assert wide  # else its letters cannot be read
    page.close()


def test_the_page_reaches_no_network_and_runs_no_script_but_its_own(page: Page, report: Path) -> None:
    assert page.requests == [report.as_uri()]
    assert page.complaints == []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        tried: Any = page.evaluate(f"fetch('{address}').then(() => 'reached', () => 'refused')")
        assert tried == "refused"
        forbidden = page.evaluate(
            "new Promise(done => { const told = new Set(); const image = new Image();"
            " addEventListener('securitypolicyviolation', event => {"
            "   told.add(event.effectiveDirective); if (told.size === 3) done([...told].sort()); });"
            f" image.src = '{address}';"
            " for (const name of ['script', 'style']) {"
            "   const one = document.createElement(name); one.textContent = 'window.foreign = 1';"
            "   document.head.append(one); } })"
        )
        assert forbidden == ["img-src", "script-src-elem", "style-src-elem"]
        assert page.evaluate("window.foreign === undefined")
        server.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            server.accept()

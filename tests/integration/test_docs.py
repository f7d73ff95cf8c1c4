"""The documentation as it is built: strictly, with a reference that is made of the code."""

from __future__ import annotations

import dataclasses
import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import typer

from orchestrator import api
from orchestrator.config.grid.parse import SECTIONS
from orchestrator.config.profiles import Profile
from orchestrator.core.types import Resources
from orchestrator.ui.cli import app
from tests.browser import chromium
from tests.helpers import ROOT
from tests.messages import read_catalogue


class Page(HTMLParser):
    """A page's anchors, links and code, as a browser would have them."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.ids, self.links, self.code = file, set[str](), list[str](), list[str]()
        self._in_code = False
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {found["id"] or ""} if "id" in found else set()
        self.links += [found["href"] or ""] if tag == "a" and "href" in found else []
        self._in_code = tag == "code" or (self._in_code and tag != "p")
        if tag == "code":
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_code = self._in_code and tag != "code"

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.code[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    assert not list((ROOT / "docs").rglob("reference/*.md")), "no copies that could be out of date"
    return folder


def commands() -> dict[str, click.Command]:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    return dict(group.commands)


def test_every_command_has_a_heading_its_words_and_its_options(site: Path) -> None:
    page = Page(site / "reference/commands.html")
    code = "\n".join(page.code)
    shown = {name: command for name, command in commands().items() if not command.hidden}
    assert "release" not in shown
    for name, command in shown.items():
        assert name in page.ids
        assert f"orchestrate {name}" in code
        for option in (one for one in command.params if isinstance(one, click.Option) and not one.hidden):
            assert any(re.match(rf"{option.opts[0]}\b", spelled) for spelled in page.code), (
                name,
                option.opts,
            )
    assert "sync-results" in page.ids


def test_every_key_of_a_grid_and_of_a_profile_is_there(site: Path) -> None:
    grid = Page(site / "reference/grid.html").code
    resources = [field.name for field in dataclasses.fields(Resources)]
    assert {*SECTIONS, *resources, "seed", "threads", "experiment.save_folder"} <= {*grid}
    profile = Page(site / "reference/profile.html").code
    keys = {field.name for field in dataclasses.fields(Profile)} - {"name", "source", "gpu_type", "own"}
    assert keys <= {*profile}


def test_messages_and_files_are_listed(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference/messages.html").read_text()))
    page = re.sub(r"\W", "", text)
    for message in read_catalogue():
        assert re.sub(r"\W", "", message.text) in page, message
    assert "found walltime, which is no key of a profile" in text
    tree = Page(site / "reference/files.html")
    assert {"the-results-tree", "metricsjsonl", "resultjson", "metricsparquet"} <= tree.ids
    assert {"run_id", "end_to_end_fps", "manifest"} <= {*tree.code}


def test_links_within_the_site_lead_somewhere(site: Path) -> None:
    """Anchors too, in the pages that are made of code as well."""
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > 20
    for page in pages.values():
        for link in page.links:
            place, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:|//|/", place):
                continue
            there = (page.file.parent / place).resolve() if place else page.file
            assert there.exists(), (page.file, link)
            assert not anchor or there not in pages or anchor in pages[there].ids, (page.file, link)


@pytest.mark.browser
def test_the_site_needs_no_network_and_is_searched_from_the_disk(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser:
        tab = browser.open(site / "index.html")
        tab.evaluate(
            "(field => { field.focus(); field.value = 'checkpoint'; field.dispatchEvent(new Event('input'));"
            " field.dispatchEvent(new Event('keyup')); })(document.querySelector('.md-search__input'))"
        )
        found = tab.evaluate(
            "new Promise(done => { const look = () => { const found = document.querySelectorAll("
            "'.md-search-result__item').length; found ? done(found) : setTimeout(look, 20); }; look(); })"
        )
        assert found > 3
        asked = [
            event["params"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
        ]
        assert {urlsplit(one["request"]["url"]).scheme for one in asked} <= {"file", "data"}
        assert [one for one in browser.events if one["method"] == "Runtime.exceptionThrown"] == []


def test_every_page_has_its_place(site: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    known = [file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")]
    assert "index.md" in known
    assert [name for name in known if not re.search(rf"^ +- (.+: )?{name}$", nav, re.MULTILINE)] == []
    parts = re.findall(r"^  - ([\w -]+):", nav.split("\nnav:")[1], re.MULTILINE)
    assert parts == ["Home", "Get started", "How-to", "Explanation", "Reference"]


def test_the_python_reference_has_what_the_module_offers(site: Path) -> None:
    page = Page(site / "reference/api.html")
    for name in api.__all__:
        assert name.lower() in page.ids
    for thing in (api.Opened, api.Launched):
        for method in (name for name, found in vars(thing).items() if name[0] != "_" and callable(found)):
            assert f"{thing.__name__.lower()}{method}" in page.ids, method
    assert "launch(grid, on=None, *, results='results'" in " ".join(page.code)

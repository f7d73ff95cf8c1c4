"""What installs this program: never another company's package, always versions that fit each other."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from orchestrator import __version__
from orchestrator.core.machine import installation
from orchestrator.core.machine.installation import (
    DISTRIBUTION,
    IN_A_CLONE,
    install_here,
    install_package,
    install_there,
    requirements,
)

ROOT = Path(__file__).parents[4]
# A name that an index would be asked for: PyPI's orchestrate is another company's.
BY_NAME = re.compile(
    r"(?<![\w/.~-])orchestrate(-rl)?\[|\b(pip|pipx|uv)\b.*\binstall\b.*\s'?orchestrate(-rl)?(\s|'|$)"
)
# A command without constraints; it is meant for another machine: a cloud instance, a login node.
PACKAGE = re.compile(r"\bpip install\b(?! -c)")
ELSEWHERE = {"orchestrator/backends/skypilot/task.py", "orchestrator/ui/monitor/wording.py"}
OWN_EXTRAS = re.compile(r"install\b.*(\.|whl|orchestrate-rl)\[(train|sky|dev|bench)")


class Record:
    """An installed distribution as ``importlib.metadata`` shows it."""

    def __init__(self, url: str | None) -> None:
        self._url = url

    def read_text(self, name: str) -> str | None:
        told = self._url is not None and name == "direct_url.json"
        return json.dumps({"url": self._url}) if told else None


def installed_from(monkeypatch: pytest.MonkeyPatch, *urls: str | None) -> None:
    def found(name: str) -> list[Record]:
        return [Record(url) for url in urls] if name == DISTRIBUTION else []

    installation._recorded.cache_clear()
    monkeypatch.setattr("importlib.metadata.distributions", found)


@pytest.fixture(autouse=True)
def _fresh() -> object:
    yield
    installation._recorded.cache_clear()


def lines_of_the_project() -> list[tuple[str, str]]:
    """All lines of its files, by the file's name. It may lie here without git, as an archive of it does."""
    own = Path(__file__).relative_to(ROOT).as_posix()
    texts = {
        name: (ROOT / name).read_text(errors="replace") for name in names_in_the_project() if name != own
    }
    return [(name, line) for name, text in texts.items() for line in text.splitlines()]


def names_in_the_project() -> Iterator[str]:
    made = {"results", "dist", "build", "site", "__pycache__"}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            one
            for one in folders
            if one not in made and not one.endswith(".egg-info") and (not one.startswith(".") or one == ".ci")
        ]
        yield from (Path(folder, name).relative_to(ROOT).as_posix() for name in names)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("pip install 'orchestrate[train]'", True),
        ("pip install orchestrate", True),
        ("uv pip install --quiet orchestrate-rl", True),
        ("pip install 'orchestrate-rl[sky]'", True),
        ('pip install -e "$HOME/orchestrate-rl[train]"', False),
        ("pip install -c constraints.txt 'dist/orchestrate_rl-0.1.0-py3-none-any.whl[train]'", False),
        ("install it, then `orchestrate doctor`", False),
    ],
)
def test_what_counts_as_asking_an_index(line: str, refused: bool) -> None:
    assert bool(BY_NAME.search(line)) is refused


def test_nothing_in_the_project_installs_by_name() -> None:
    lines = lines_of_the_project()
    assert len(lines) > 10_000
    assert [(name, line) for name, line in lines if BY_NAME.search(line)] == []


def test_packages_are_installed_by_the_commands_of_one_module() -> None:
    found = {
        name
        for name, line in lines_of_the_project()
        if name.startswith(("orchestrator/", "jobs/")) and name.endswith(".py") and PACKAGE.search(line)
    }
    assert found == ELSEWHERE


def test_every_line_that_installs_us_names_the_constraints() -> None:
    told = [
        (name, line)
        for name, line in lines_of_the_project()
        if OWN_EXTRAS.search(line) and not name.startswith("tests/") and "/INSTALL)" not in line
    ]
    assert {"docs/install.md", "docs/cloud.md", "docs/laptop.md", "sky/bench_l4.yaml"} <= {
        name for name, _ in told
    }
    assert [
        (name, line) for name, line in told if not re.search(r"(-c|--constraint) \S*constraints.txt", line)
    ] == []


def test_the_pages_have_the_form_of_the_hints() -> None:
    for page in ("install.md", "laptop.md"):
        assert IN_A_CLONE.format(extra="train") in (ROOT / "docs" / page).read_text()
    wheel = f"orchestrate_rl-{__version__}-py3-none-any.whl"
    assert f"pip install -c constraints.txt '{wheel}[train]'" in (ROOT / "docs" / "install.md").read_text()


def test_here_the_clone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, ROOT.as_uri())
    assert install_here("train") == (
        f"{sys.executable} -m pip install -c {ROOT}/constraints.txt -e '{ROOT}[train]'"
    )


def test_the_build_of_a_clone_has_a_record_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`orchestrate_rl.egg-info` in the clone's folder, which says nothing of where it was installed from."""
    installed_from(monkeypatch, None, ROOT.as_uri())
    assert f"'{ROOT}[train]'" in install_here("train")


def test_here_the_wheel_is_named_while_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "_is_project", lambda _: False)
    wheel = tmp_path / "a wheel" / "orchestrate_rl-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    installed_from(monkeypatch, wheel.as_uri())
    assert install_here("sky").endswith(f" '{wheel}[sky]'")
    wheel.unlink()
    installation._recorded.cache_clear()
    assert install_here("sky").endswith("constraints.txt 'skypilot[aws,slurm]'")


@pytest.mark.parametrize("url", [None, "https://example.org/x.whl", "file:///gone/x.whl"])
def test_without_clone_and_wheel_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    monkeypatch.setattr(installation, "_is_project", lambda _: False)
    installed_from(monkeypatch, url)
    command = install_here("train")
    assert "-c " in command
    assert {"torch", "benchmarl", "vmas", "wandb"} <= set(command.split())
    assert not {"orchestrate", DISTRIBUTION, "rich"} & set(command.split())


def test_an_environment_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    assert install_package("wandb").startswith(f"uv pip install --python {sys.executable} -c ")


def test_elsewhere_a_clone_is_asked_for() -> None:
    assert install_there("train") == (
        "in a clone of this program there: pip install -c constraints.txt -e '.[train]'"
    )


def test_what_is_needed_follows_the_project_file() -> None:
    assert any(one.startswith("torch") for one in requirements("train"))
    assert not any(one.startswith("torch") for one in requirements("sky"))
    assert {one for one in requirements("") if ";" in one} == set()


def test_all_that_is_installed_takes_each_python_3_11() -> None:
    """Debian 12 has 3.11.2, which a package may leave out."""
    told = [(each.name, each.metadata["Requires-Python"]) for each in distributions()]
    assert [(name, wanted) for name, wanted in told if wanted and "3.11.0" not in SpecifierSet(wanted)] == []

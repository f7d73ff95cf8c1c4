"""Leave out the tests whose programs this machine lacks, and list them at the end of pytest's output."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("packages.sh")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--complete",
        action="store_true",
        default=bool(os.environ.get("CI")),
        help="end with 1 where tests are left out for want of a package; the default where CI is set",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection(config), "missing-parts")


def missing() -> dict[str, list[tuple[str, str]]]:
    """Return by marker what its tests lack here: ("package", name) or ("do", step)."""
    answer = subprocess.run([SCRIPT, "missing"], capture_output=True, text=True, check=True).stdout
    lacking: dict[str, list[tuple[str, str]]] = {}
    for marker, kind, name in (line.split(" ", 2) for line in answer.splitlines()):
        lacking.setdefault(marker, []).append((kind, name))
    return lacking


def what_to_do(lacking: Iterable[tuple[str, str]]) -> str:
    """Return the steps that give a marker's tests what they lack."""
    packages = sorted(name for kind, name in lacking if kind == "package")
    steps = sorted(name for kind, name in lacking if kind == "do")
    return "; ".join([*steps, *([f"apt-get install {' '.join(packages)}"] if packages else [])])


class Selection:
    """Deselect these tests in each process of pytest; the first one prints them and sets the exit status."""

    def __init__(self, config: pytest.Config) -> None:
        self.missing = config.workerinput["missing"] if hasattr(config, "workerinput") else missing()
        self.left_out: Counter[str] = Counter()
        self.needs = dict(line.split(": ", 1) for line in config.getini("markers") if ": " in line)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect tests by their markers, after all other selections."""
        kept, gone = [], []
        for item in items:
            marker = next((mark.name for mark in item.iter_markers() if mark.name in self.missing), None)
            (gone if marker else kept).append(item)
            self.left_out.update([marker] if marker else [])
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = kept

    def pytest_configure_node(self, node: Any) -> None:
        """Give a process of pytest-xdist the list, which takes a moment to make."""
        node.workerinput["missing"] = self.missing

    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a process of pytest-xdist, which are the same in each."""
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", self.left_out))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Print the list below everything else. With ``--complete``, no such run succeeds."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = dict(self.left_out)
        yield
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if not self.left_out or terminal is None:
            return
        terminal.section(f"left out here: {self.left_out.total()} tests", red=True)
        for line in block(self.left_out, self.missing, self.needs):
            terminal.write_line(line)
        if session.config.getoption("complete") and session.exitstatus == pytest.ExitCode.OK:
            terminal.write_line("This run was to be complete (--complete, or CI is set): it ends with 1.")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def block(
    left_out: Mapping[str, int], lacking: Mapping[str, list[tuple[str, str]]], needs: Mapping[str, str]
) -> list[str]:
    """Return a line for each marker: how many tests, what they need, what to do."""
    return [
        f"left out: {count} test{'' if count == 1 else 's'} marked {marker} ({needs[marker]}): "
        f"{what_to_do(lacking[marker])}"
        for marker, count in sorted(left_out.items(), key=lambda one: -one[1])
    ]

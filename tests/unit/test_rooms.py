"""Where things live: a package's README names each of its modules, and no folder holds too many files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Packages whose README names every module.
COMPLETE = ("orchestrator/analysis", "orchestrator/ui")
# Packages with folders of few files.
SMALL = ("orchestrator/analysis",)
MOST_FILES = 12


@pytest.mark.parametrize("package", COMPLETE)
def test_the_readme_names_every_module_and_nothing_else(package: str) -> None:
    words = re.findall(r"`([\w/]+)`", (ROOT / package / "README.md").read_text())
    there = {path.stem for path in (ROOT / package).rglob("*.py") if not path.stem.startswith("__")}
    folders = {path.parent.relative_to(ROOT / package).as_posix() for path in (ROOT / package).rglob("*.py")}
    assert sorted(there - set(words)) == []
    # The rest are functions or options of a sentence, not of the table.
    table = re.findall(r"^\| .*", (ROOT / package / "README.md").read_text(), re.M)
    named = {word for line in table for word in re.findall(r"`([a-z_/]+)`", line)}
    assert sorted(named - there - folders - {"collect"}) == []


@pytest.mark.parametrize("package", SMALL)
def test_a_folder_holds_at_most_a_dozen_files(package: str) -> None:
    folders = [path for path in (ROOT / package).rglob("*") if path.is_dir() and path.name != "__pycache__"]
    sizes = {str(one): sum(path.is_file() for path in one.iterdir()) for one in (ROOT / package, *folders)}
    assert {one: size for one, size in sizes.items() if size > MOST_FILES} == {}

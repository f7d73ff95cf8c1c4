"""Where things live: a README's table names each module of a package, and no folder holds too many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Packages of which every module is named: in their own README, or in the rows of the control plane's.
OWN_README = (*(f"orchestrator/{name}" for name in ("analysis", "config", "ui")), "jobs")
OF_CONTROL_PLANE = ("backends", "control", "core", "planning", "rundir", "status", "sync")
COMPLETE = (*OWN_README, *(f"orchestrator/{name}" for name in OF_CONTROL_PLANE))
# Packages with folders of few modules.
SMALL = (*(f"orchestrator/{name}" for name in (*OF_CONTROL_PLANE, "analysis", "config", "ui")), "jobs")
MOST_MODULES = 12
DATA = (".yaml",)


def rows_of(package: str) -> list[str]:
    """Return the rows on a package: all of its own README's table, or those that begin with its name."""
    own = package in OWN_README
    readme = ROOT / (package if own else "orchestrator") / "README.md"
    rows = re.findall(r"^\| .*", readme.read_text(), re.M)
    name = package.rpartition("/")[2]
    return rows if own else [row for row in rows if re.match(rf"\| \d \| `{name}[`/]", row)]


@pytest.mark.parametrize("package", COMPLETE)
def test_the_readme_names_every_module_and_nothing_else(package: str) -> None:
    folder = ROOT / package
    files = list(folder.rglob("*.py"))
    there = {path.stem for path in files if not path.stem.startswith("__")}
    folders = {path.parent.relative_to(base).as_posix() for path in files for base in (folder, folder.parent)}
    folders |= {path.parent.name for path in files}
    named = {word for row in rows_of(package) for word in re.findall(r"`([a-z0-9_/]+?)/?`", row)}
    assert sorted(there - named) == []
    assert sorted(named - there - folders - {"collect", "conf"}) == []


@pytest.mark.parametrize("package", SMALL)
def test_a_folder_holds_at_most_a_dozen_modules(package: str) -> None:
    folders = [path for path in (ROOT / package).rglob("*") if path.is_dir() and path.name != "__pycache__"]
    sizes = {
        str(one): sum(
            path.suffix not in DATA and path.is_file() and path.name != "__init__.py"
            for path in one.iterdir()
        )
        for one in (ROOT / package, *folders)
    }
    assert {one: size for one, size in sizes.items() if size > MOST_MODULES} == {}

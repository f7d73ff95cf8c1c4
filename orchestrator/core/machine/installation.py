"""Commands that install this program and its extras, from the clone or wheel in use.

Package indexes hold another company's ``orchestrate`` and no package of ours, so no command here names the
distribution: it names a clone of this program, a wheel built from one, or the packages themselves.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.core.machine.package_files import PACKAGE, data

DISTRIBUTION = "orchestrate-rl"
# The same versions everywhere: the tests run with these constraints.
IN_A_CLONE = "pip install -c constraints.txt -e '.[{extra}]'"


def install_here(extra: str) -> str:
    """Return the command that installs an extra's packages (``train``, ``sky``) for this Python."""
    source = _clone() or _wheel()
    if source is not None:
        editable = ["-e"] if source.is_dir() else []
        return _pip([*editable, f"{source}[{extra}]"])
    return _pip(list(_names(extra)))


def installed_version(package: str) -> str | None:
    """Return the version by the package's record, ``None`` for one that is missing or half removed."""
    from importlib.metadata import version

    try:
        found: str | None = version(package)
    except Exception:  # a damaged record may raise anything
        return None
    return found or None


def install_package(name: str) -> str:
    """Return the command that installs one more package for this Python, at the constrained version."""
    return _pip([name])


def install_there(extra: str) -> str:
    """Return the command that installs an extra for another machine or Python, from a clone there."""
    return f"in a clone of this program there: {IN_A_CLONE.format(extra=extra)}"


def requirements(extra: str) -> list[str]:
    """List the requirements of the program and an extra, from its project file or the installed one."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in _declared()]
    return [
        str(Requirement(str(one).partition(";")[0]))
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": extra})
    ]


def constraints() -> Path:
    """Return the path of ``constraints.txt``, in a clone or in the installed package."""
    return data("constraints.txt")


def constrained_version(package: str) -> str | None:
    """Return the package's version in ``constraints.txt``, if it stands there."""
    for line in constraints().read_text().splitlines():
        name, _, version = line.partition("==")
        if name.strip().lower() == package.lower():
            return version.strip()
    return None


def _pip(what: list[str]) -> str:
    # Environments made by uv have no pip.
    program = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:
        program = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*program, "-c", str(constraints()), *what])


def _names(extra: str) -> Iterator[str]:
    """Yield an extra's packages that the program itself does not need; constraints hold the versions."""
    from packaging.requirements import Requirement

    always = set(requirements(""))
    for one in map(Requirement, (text for text in requirements(extra) if text not in always)):
        yield f"{one.name}[{','.join(sorted(one.extras))}]" if one.extras else one.name


def _clone() -> Path | None:
    """Return the clone installed as editable, or else the clone of the running modules."""
    recorded = _recorded()
    if recorded is not None and _is_project(recorded):
        return recorded
    beside = PACKAGE.resolve().parent
    # A code snapshot is a copy of a clone, and nothing to install from.
    return beside if _is_project(beside) and (beside / ".git").exists() else None


def _wheel() -> Path | None:
    """Return the installed wheel's file, if it still exists."""
    recorded = _recorded()
    return recorded if recorded is not None and recorded.is_file() else None


@cache
def _recorded() -> Path | None:
    """Return the folder or file that pip or uv installed this program from, by their record."""
    from importlib.metadata import distributions

    # Inside a clone, the build's own record is found before the environment's.
    for found in distributions(name=DISTRIBUTION):
        try:
            text = found.read_text("direct_url.json")
            url = urlsplit(json.loads(text)["url"]) if text else None
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if url is not None and url.scheme == "file":
            return Path(unquote(url.path))
    return None


def _is_project(folder: Path) -> bool:
    """Return whether the folder holds this program's project file."""
    return _project(folder).get("name") == DISTRIBUTION


def _project(folder: Path) -> dict[str, object]:
    import tomllib

    try:
        found = tomllib.loads((folder / "pyproject.toml").read_text()).get("project")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _declared() -> list[str]:
    """List requirements in a wheel's form: those of extras carry a marker.

    The project file comes first: the record of an editable install may be outdated.
    """
    project = _project(PACKAGE.resolve().parent)
    if project.get("name") == DISTRIBUTION:
        return list(_from_project(project))
    from importlib.metadata import PackageNotFoundError, requires

    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []


def _from_project(project: dict[str, object]) -> Iterator[str]:
    needed, extras = project.get("dependencies"), project.get("optional-dependencies")
    yield from map(str, needed if isinstance(needed, list) else [])
    for extra, wanted in extras.items() if isinstance(extras, dict) else ():
        yield from (f'{text} ; extra == "{extra}"' for text in wanted)

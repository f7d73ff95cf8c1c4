"""The distribution that this program is installed as, and the commands that install it and what it needs.

Package indexes hold another company's ``orchestrate`` and no package of ours, so no command here names the
distribution: it names a clone of this program, a wheel that was built from one, or the packages themselves.
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

from orchestrator.core.package_files import PACKAGE, data

DISTRIBUTION = "orchestrate-rl"
# The same versions everywhere: of these constraints the tests know that they fit each other.
IN_A_CLONE = "pip install -c constraints.txt -e '.[{extra}]'"
OF_A_WHEEL = "pip install -c constraints.txt '{wheel}[{extra}]'"


def install_here(extra: str) -> str:
    """The command that installs an extra's packages (``train``, ``sky``) for the Python that runs this."""
    source = _clone() or _wheel()
    if source is not None:
        editable = ["-e"] if source.is_dir() else []
        return _pip([*editable, f"{source}[{extra}]"])
    return _pip(list(_names(extra)))


def install_package(name: str) -> str:
    """The command that installs one more package for the Python that runs this, at the version that fits."""
    return _pip([name])


def install_there(extra: str) -> str:
    """The same for another machine or Python, where a person finds the clone."""
    return f"in a clone of this program there: {IN_A_CLONE.format(extra=extra)}"


def requirements(extra: str) -> list[str]:
    """What the program and this extra need, as its project file says, or else the installed distribution."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in _declared()]
    return [
        str(Requirement(str(one).partition(";")[0]))
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": extra})
    ]


def constraints() -> Path:
    """``constraints.txt``, in a clone or as a wheel brought it."""
    return data("constraints.txt")


def _pip(what: list[str]) -> str:
    # Environments that uv made have no pip.
    program = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:
        program = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*program, "-c", str(constraints()), *what])


def _names(extra: str) -> Iterator[str]:
    """An extra's packages, without those that the program itself needs; constraints have the versions."""
    from packaging.requirements import Requirement

    always = set(requirements(""))
    for one in map(Requirement, (text for text in requirements(extra) if text not in always)):
        yield f"{one.name}[{','.join(sorted(one.extras))}]" if one.extras else one.name


def _clone() -> Path | None:
    """The clone that is installed as editable, or else the one whose modules run."""
    recorded = _recorded()
    if recorded is not None and _is_project(recorded):
        return recorded
    beside = PACKAGE.resolve().parent
    # Code that is kept with a sweep is a copy of a clone, and nothing to install from.
    return beside if _is_project(beside) and (beside / ".git").exists() else None


def _wheel() -> Path | None:
    """The wheel that was installed, if it is still where it was."""
    recorded = _recorded()
    return recorded if recorded is not None and recorded.is_file() else None


@cache
def _recorded() -> Path | None:
    """The folder or the file that pip or uv installed this program from, by the record they leave."""
    from importlib.metadata import distributions

    # In the folder of a clone, the build's own record is found before that of the environment.
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
    """Whether this program's own project file lies there."""
    return _project(folder).get("name") == DISTRIBUTION


def _project(folder: Path) -> dict[str, object]:
    import tomllib

    try:
        found = tomllib.loads((folder / "pyproject.toml").read_text()).get("project")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _declared() -> list[str]:
    """Requirements as in a wheel: those of extras carry a marker.

    The project file first: the record of an editable install is as old as that install.
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

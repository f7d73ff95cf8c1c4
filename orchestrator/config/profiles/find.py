"""Find profiles by name: the user's own, then those of the program."""

from __future__ import annotations

import os
import re
from pathlib import Path

from orchestrator.config.profiles.model import Profile
from orchestrator.config.profiles.parse import parse_profile, source_of
from orchestrator.config.yaml_files.nodes import did_you_mean
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.errors import ProfileError
from orchestrator.core.machine.package_files import template

# Also a target in a grid.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCAL = Profile(
    name="local",
    source="built in",
    backend="local",
    description="this machine: its cores, its memory, its GPUs",
)


def find_profile(name_or_path: str) -> Profile:
    """Load the profile from a file (``x.yaml``, ``dir/x``), or by name: the user's own before the program's.

    Raises :class:`ProfileError`.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return _load(Path(name_or_path))
    if name_or_path == _LOCAL.name:
        return _LOCAL
    if _NAME.fullmatch(name_or_path):
        for folder in _folders():
            path = folder / f"{name_or_path}.yaml"
            if path.exists():
                return _load(path)
    names = profile_names()
    raise ProfileError(
        f"there is no such profile; there are: {', '.join(names)}",
        file=name_or_path,
        hint=did_you_mean(name_or_path, names, None, f"write one: {own_folder() / 'NAME.yaml'}"),
    )


def as_typed(profile: Profile) -> str:
    """Return the profile as an argument of `--on`: its name if that finds it, otherwise its file."""
    try:
        by_name = find_profile(profile.name).source == profile.source
    except ProfileError:
        by_name = False
    return profile.name if by_name else profile.source


def profile_names() -> list[str]:
    """Return all names accepted by :func:`find_profile`, sorted, ``local`` first."""
    names = {path.stem for folder in _folders() for path in folder.glob("*.yaml")}
    return [_LOCAL.name, *sorted(name for name in names - {_LOCAL.name} if _NAME.fullmatch(name))]


def every_profile() -> tuple[list[Profile], list[ProfileError]]:
    """Return all named profiles, and the errors of invalid ones."""
    profiles, problems = [], []
    for name in profile_names():
        try:
            profiles.append(find_profile(name))
        except ProfileError as error:
            problems.append(error)
    return profiles, problems


def place_of(profile: Profile) -> str:
    """Return the file to edit; for a profile that came with the program, the copy to make of it."""
    if Path(profile.source).is_relative_to(template("profiles")):
        return f"a copy of it, {own_folder() / profile.name}.yaml"
    return profile.source


def own_folder() -> Path:
    """Return the folder of the user's own profiles."""
    chosen = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG specification ignores a relative path.
    base = chosen if chosen.is_absolute() else Path.home() / ".config"
    return base / "orchestrate" / "profiles"


def _folders() -> tuple[Path, ...]:
    return own_folder(), template("profiles")


def _load(path: Path) -> Profile:
    if not _NAME.fullmatch(path.stem) or path.stem == _LOCAL.name:
        raise ProfileError(
            f"found the name {path.stem!r}, expected letters, digits, dots, dashes, underscores; not 'local'",
            file=str(path),
            hint="the file's name is the profile's: rename it",
        )
    text = read_text(path, source_of(str(path)), _where_to_look)
    return parse_profile(text, str(path), path.stem)


def _where_to_look(_: Path) -> str:
    return "`orchestrate profiles` lists those that have a name"

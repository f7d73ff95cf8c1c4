"""Say which permission denies access to a path, and the command that grants it."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path
from typing import NamedTuple


class Denial(NamedTuple):
    """What denies access, with its owner and mode, and what to type."""

    reason: str
    hint: str


def denial(path: Path) -> Denial | None:
    """Find what keeps this user from writing or reading a path; None if no permission does."""
    found = _denying(path)
    if found is None:
        return None
    about, name = found.stat(), shlex.quote(str(found))
    owner, group = user_name(about.st_uid), _group(about.st_gid)
    reason = f"{found} belongs to {owner}:{group}, mode {stat.filemode(about.st_mode)}"
    if about.st_uid == os.geteuid():
        return Denial(reason, f"type: chmod -R u+rwX {name}")
    shared = f"chmod -R g+rwX {name}"
    if about.st_gid not in (os.getegid(), *os.getgroups()):
        shared = f"chgrp -R {_group(os.getegid())} {name} && {shared}"
    return Denial(
        reason,
        f"{owner} types: {shared}; all who share a tree set umask 002 where they submit. Or copy it with "
        "cp -r, and name the copy with --results DIR",
    )


def _denying(path: Path) -> Path | None:
    """Return the first folder on the way that cannot be entered, else the file or folder without access."""
    path = path.absolute()
    there = path
    for one in (*reversed(path.parents), path):
        if not os.path.lexists(one):
            break
        if one.is_dir() and not _may(one, os.X_OK):
            return _shown(one)
        there = one
    for one in (there, there.parent):
        if not _may(one, os.R_OK | os.W_OK):
            return _shown(one)
    return None


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _shown(path: Path) -> Path:
    """Return the path relative to the current folder if it lies in it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def user_name(uid: int) -> str:
    """Return a user's name on this machine, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

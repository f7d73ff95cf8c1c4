"""Where results trees are, by what people call them: `local`, a profile, ``user@host:path``, an ssh alias."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.config.profiles import Profile, find_profile, profile_names
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.core.ssh import Host, failure

LOCAL = "local"

# Where a results tree lies on a machine that only its name is known of: below the folder that SkyPilot copies
# a project to, where a profile puts it by default, in the home.
_USUAL = ("~/sky_workdir/results", "~/orchestrate/results", "~/results")
# As for rsync: a colon before any slash parts a machine from a path.
_REMOTE = re.compile(r"(?P<host>[^/:]+):(?P<path>.*)", re.DOTALL)
# What a shell ends with where there is no such folder. Anything else says nothing about folders.
_NO_FOLDER = (1, 2)


@dataclass(frozen=True)
class TreeLocation:
    """A results tree, by the machine that has it (None is this one) and where it may be there.

    The tree is the first of ``folders`` that exists; they are as :func:`orchestrator.core.ssh.remote_path`
    understands them. For this machine there are none: its tree is what the command's ``--results`` says.
    """

    text: str
    host: str | None = None
    folders: tuple[str, ...] = ()
    profile: Profile | None = None


def parse_place(text: str) -> TreeLocation:
    """The place that a person means. Raises :class:`OrchestrateError`; asks no other machine anything.

    A name is a profile's if there is one of that name, otherwise a machine's that ssh knows.
    """
    if text == LOCAL:
        return TreeLocation(text)
    if remote := _REMOTE.fullmatch(text):
        if not remote["path"]:
            raise OrchestrateError(
                f"{text!r} names no folder, expected user@host:path",
                hint=f"leave out the colon to look for a tree in the usual places: {remote['host']}",
            )
        return TreeLocation(text, Host(remote["host"]).name, (remote["path"],))
    if "/" in text or text.endswith((".yaml", ".yml")) or text in profile_names():
        profile = find_profile(text)
        folders = (f"{profile.folder}/results",) if profile.ssh is not None else ()
        return TreeLocation(text, profile.ssh, folders, profile)
    return TreeLocation(text, Host(text).name, _USUAL)


def tree_there(host: Host, place: TreeLocation) -> str:
    """The absolute path of the place's tree on its machine. Raises :class:`NotFoundError` if none exists."""
    for folder in place.folders:
        found = host.run(["pwd", "-P"], folder=folder)
        if found.code == 0 and found.output.startswith("/"):
            return found.output.removesuffix("\n")
        if found.code not in _NO_FOLDER:
            raise failure(host.name, found.errors or "connection closed")
    raise no_tree(place)


def no_tree(place: TreeLocation) -> NotFoundError:
    """The error for a machine that has none of the place's folders."""
    return NotFoundError(
        f"{place.host}: no results tree there (looked for {', '.join(place.folders)})",
        hint=f"say where it is: {place.host}:PATH",
    )

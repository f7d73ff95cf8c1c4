"""Find results trees by users' names for them: `local`, a profile, ``user@host:path``, an ssh alias."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

from orchestrator.config.grid.other_sections import read_library
from orchestrator.config.profiles import Profile, find_profile, own_folder, profile_names
from orchestrator.config.yaml_files.nodes import Entries, YamlFile, read_nodes
from orchestrator.config.yaml_files.text import read_text
from orchestrator.core.errors import NotFoundError, OrchestrateError
from orchestrator.core.machine.ssh import Host, failure

LOCAL = "local"

# Default folders of a results tree on a machine without a profile: below SkyPilot's copy of a project, at a
# profile's default, in the home.
_USUAL = ("~/sky_workdir/results", "~/orchestrate/results", "~/results")
# As in rsync: a colon before any slash separates machine and path.
_REMOTE = re.compile(r"(?P<host>[^/:]+):(?P<path>.*)", re.DOTALL)
# A shell's exit codes for a missing folder. No other code concerns folders.
_NO_FOLDER = (1, 2)


@dataclass(frozen=True)
class TreeLocation:
    """A results tree by machine (None for this one) and candidate folders.

    The tree is the first existing one of ``folders``, in the syntax of
    :func:`~orchestrator.core.machine.ssh.remote_path`. For this machine there are none: the command's
    ``--results`` decides.
    """

    text: str
    host: str | None = None
    folders: tuple[str, ...] = ()
    profile: Profile | None = None


def parse_place(text: str) -> TreeLocation:
    """Parse a user's text into a tree location, without network access. Raises :class:`OrchestrateError`.

    A name is a profile's if such a profile exists, otherwise a machine's for ssh.
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


def libraries_of_user() -> tuple[str, ...]:
    """Return the results trees that the user's settings name as libraries. Raises :class:`GridError`."""
    path = own_folder().parent / "settings.yaml"
    if not path.exists():
        return ()
    source = YamlFile(str(path))
    root = read_nodes(read_text(path, source, str), source)
    entries = root.entries if isinstance(root, Entries) else ()
    if not isinstance(root, Entries) or any(one.key != "library" for one in entries):
        raise source.error(root.at, "expected the key library alone", "such as library: [/lab/results]")
    return tuple(chain.from_iterable(read_library(one.node, source) for one in entries))


def tree_there(host: Host, place: TreeLocation) -> str:
    """Return the absolute path of the tree on its machine. Raises :class:`NotFoundError` if none exists."""
    for folder in place.folders:
        answer = host.run(["pwd", "-P"], folder=folder)
        if answer.code == 0 and answer.output.startswith("/"):
            return answer.output.removesuffix("\n")
        if answer.code not in _NO_FOLDER:
            raise failure(host.name, answer.errors or "connection closed")
    raise no_tree(place)


def no_tree(place: TreeLocation) -> NotFoundError:
    """Return the error for a machine without any of the candidate folders."""
    return NotFoundError(
        f"{place.host}: no results tree there (looked for {', '.join(place.folders)})",
        hint=f"say where it is: {place.host}:PATH",
    )

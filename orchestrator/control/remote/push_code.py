"""Sending a sweep's frozen code to the machine where it is to run."""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from dataclasses import dataclass

from orchestrator.config.profiles import Profile
from orchestrator.core.errors import HostError
from orchestrator.core.machine.ssh import NO_VARIABLE, Host, to_folder
from orchestrator.core.types import CommandAnswer
from orchestrator.rundir import CodeDir, FrozenCode, SweepDir
from orchestrator.rundir.frozen_code import SentCode
from orchestrator.rundir.records.ledger_entries import TreePlace

# Code is a few megabytes, and the way there may be a hotel's.
_PATIENCE_S = 3600.0
# What tar says after it has said what is wrong.
_NO_REASON = ("exiting now", "due to previous errors", "Child returned status 1")
# With $folder, $1: the sweep. What it knows of it, and the codes that are whole.
_LOOK = """
printf "%s\\n" "$folder"
[ -e "$folder/results/$1" ] || exit 0
cd -- "$folder/results/$1" || exit
[ ! -d grids ] || echo grids
cd code 2>/dev/null || exit 0
for one in */code.json; do [ ! -f "$one" ] || printf "%s\\n" "$one"; done
"""
# $1: the folder of codes, $2: a draft's name, $3: the name to have at last, $4: whether that may be whole.
_RECEIVE = """
set -e
mkdir -p -- "$1"
cd -- "$1"
trap 'exit 1' HUP INT TERM
trap 'rm -rf -- "$2.tmp" "$2.old.tmp" || :' EXIT
mkdir -- "$2.tmp"
tar -xzof - -C "$2.tmp"
[ -f "$2.tmp/code.json" ] || { echo "the code did not come whole" >&2; exit 1; }
if [ ! -f "$3/code.json" ]; then
  if [ -e "$3" ] || [ -L "$3" ]; then mv -T -- "$3" "$2.old.tmp"; fi
elif [ -n "$4" ]; then  # file by file: what programs wrote into it stays
  cp -a --remove-destination -- "$2.tmp/." "$3/"
fi
mv -T -- "$2.tmp" "$3" || [ -f "$3/code.json" ]
"""


@dataclass(frozen=True)
class RemoteCode:
    """What a login node shows of a sweep. ``known``: it has been submitted there before."""

    place: TreePlace
    known: bool
    codes: frozenset[str]


def look_there(profile: Profile, sweep: str) -> RemoteCode:
    """Where the profile's tree lies and what it has of the sweep; writes nothing."""
    assert profile.ssh is not None
    answer = Host(profile.ssh).run(["sh", "-c", f"{to_folder(profile.folder)}\n{_LOOK}", "sh", sweep])
    if answer.code != 0 or not answer.output:
        raise _cannot(profile.ssh, "look at", profile.folder, answer)
    folder, *found = answer.output.splitlines()
    place = TreePlace(profile.name, profile.address, profile.ssh, posixpath.normpath(folder))
    return RemoteCode(place, "grids" in found, frozenset(map(posixpath.dirname, found)) - {""})


def deliver(there: RemoteCode, sweep_dir: SweepDir, code: FrozenCode) -> tuple[SentCode, list[str]]:
    """Put the code into the place's tree unless it is there; return it as of :func:`sent`."""
    if code.id not in there.codes:
        push(there.place, sweep_dir, code.id)
    return sent(code)


def push(place: TreePlace, sweep_dir: SweepDir, code_id: str, *, replace: bool = False) -> None:
    """Put the code into the place's tree, whole or not at all. A second time changes nothing.

    An incomplete folder of that name is replaced; with ``replace`` a complete one is, too.
    """
    folder = posixpath.join(place.folder, "results", sweep_dir.name, "code")
    draft = f".{code_id}.{os.urandom(4).hex()}"
    argv = ["sh", "-c", _RECEIVE, "sh", folder, draft, code_id, "replace" if replace else ""]
    answer = Host(place.ssh).run(argv, _packed(CodeDir.of(sweep_dir, code_id)), patience=_PATIENCE_S)
    if answer.code != 0:
        raise _cannot(place.ssh, "write to", folder, answer)


def sent(code: FrozenCode) -> tuple[SentCode, list[str]]:
    """The code as its place will know it, and notes on what stays here."""
    notes, paths = [], []
    for path in code.python_path:
        if path.is_relative_to(code.path):
            paths.append(os.fspath(path.relative_to(code.path)))
        else:
            notes.append(f"{path} is on PYTHONPATH here and does not go along")
    inside = code.cwd.is_relative_to(code.path)
    if not inside:
        notes.append(f"{code.cwd} is no git work tree: nothing of it goes along")
    cwd = os.fspath(code.cwd.relative_to(code.path)) if inside else None
    return SentCode(code.id, tuple(paths), cwd, code.entries), notes


def _packed(code: CodeDir) -> bytes:
    """The snapshot as an archive, which ends with what makes it one: without that, it came in part."""
    buffer = io.BytesIO()
    # GNU's format: the names' bytes as they are, whatever the language there.
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as archive:
        for name in code.names():
            archive.add(code.path / name, arcname=f"./{name}", recursive=False)
    return buffer.getvalue()


def _cannot(machine: str, do: str, folder: str, answer: CommandAnswer) -> HostError:
    lines = [line.strip() for line in answer.errors.splitlines()]
    reasons = [line for line in lines if line and not line.endswith(_NO_REASON)]
    said = reasons[-1] if reasons else f"exit code {answer.code}"
    hint = "set `folder:` in the profile to one that you can write to there, with room in its quota"
    if answer.code == NO_VARIABLE:
        hint = "export it in ~/.bash_profile there, or write the folder out in the profile: `folder:`"
    return HostError(f"{machine}: cannot {do} {folder}: {said}", hint=hint)

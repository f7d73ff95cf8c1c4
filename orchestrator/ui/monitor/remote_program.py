"""Find this program on a machine behind ssh: the code pushed with a sweep, or an installation."""

from __future__ import annotations

import shlex

from orchestrator.config.locations import TreeLocation
from orchestrator.config.profiles import Profile, preparation
from orchestrator.config.profiles.remote_setup import THEIR_PYTHON
from orchestrator.core.errors import HostError
from orchestrator.core.machine.installation import install_there
from orchestrator.core.machine.ssh import without_command
from orchestrator.rundir.code import MODULES

PROBE = "orchestrator.ui.monitor.probe"
# Exit codes of the command below without a program: no bash, no Python that has one.
NOT_INSTALLED = (127, 98)
# Keeps the output of login files apart from answers, and requests from what login files read.
_LOGIN = 'exec 3<&0 4>&1 </dev/null >/dev/null; exec bash -lc "$0"'
# The newest pushed code of a sweep of this tree, never of a synced copy or another user's.
_PUSHED = """
code=
for one in $(ls -td -- */code/*/{{ours/{modules},tree/{probe},tree/*/{probe}}} 2>/dev/null); do
  [ -O "$one" ] && [ ! -e "${{one%%/*}}/.synced" ] && {{ code=$PWD/${{one%/{probe}}}; break; }}
done
"""
# The Python of an environment beside the results, and of the `orchestrate` on PATH.
_BESIDE = '[ -O ../.venv ] && answer "$PWD/../.venv/bin/python"'
_ON_PATH = 'own=$(command -v orchestrate) && answer "$(dirname -- "$(readlink -f -- "$own")")/python"'
_ANSWER = """
answer() {{
  said=$(PYTHONPATH=${{code:-$PYTHONPATH}} "$@" -P -c 'import {probe}' 2>&1) &&
    PYTHONPATH=${{code:-$PYTHONPATH}} exec "$@" -P -m {probe} <&3 >&4
  case $said in *nknown\\ option*) said='older than Python 3.11' ;; esac
  printf '%s: %s\\n' "$*" "${{said##*$'\\n'}}" >&2
}}
"""


def command_there(tree: str, profile: Profile | None) -> list[str]:
    """Return the command that starts the probe there, in the first Python that has this program.

    ``tree``: the absolute path of the results; ``profile``: its modules, variables and Python come first.
    """
    python = (profile.python if profile is not None else None) or THEIR_PYTHON
    lines = (
        *(preparation(profile) if profile is not None else ()),
        f"cd -- {shlex.quote(tree)} || exit",
        _PUSHED.format(probe=f"{PROBE.replace('.', '/')}.py", modules=MODULES),
        _ANSWER.format(probe=PROBE),
        f"answer {shlex.join(python)}",
        _BESIDE,
        _ON_PATH,
        f"exit {NOT_INSTALLED[-1]}",
    )
    return ["sh", "-c", _LOGIN, "\n".join(lines)]


def not_installed(place: TreeLocation, errors: str) -> HostError:
    """Return the error for a machine without this program. ``errors``: what its Pythons printed."""
    tried = "; ".join(line for line in without_command(errors).splitlines() if line.strip())
    return HostError(
        f"{place.text}: no orchestrate can answer there (tried pushed code and installations: {tried})",
        hint=f"submit a sweep there, which pushes the program, or install it: {install_there('train')}; "
        "name its Python in a profile: `python:`",
    )

"""Query the Python of a `command`, which need not be this one, before runs start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from orchestrator.config.command_line.command import program_file
from orchestrator.config.program.packages import imports, module_of_file
from orchestrator.core.machine.package_files import PROGRAM_HOOK

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
# Programs that start one in an environment, by the word before it.
_RUNNERS = {
    **dict.fromkeys(("uv", "conda", "mamba", "micromamba", "poetry", "pdm", "pipenv", "hatch"), "run"),
    **dict.fromkeys(("apptainer", "singularity"), "exec"),
}
_PATIENCE_S = 60.0
# Looks modules up without importing them. Older Pythons read it, too.
_LOOK = """
import importlib.util, json, sys
sys.path = [sys.argv[1], *filter(None, sys.path)]
print(json.dumps([name for name in sys.argv[2:] if importlib.util.find_spec(name) is None]))
"""


def faults_of(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the faults of the Python of a command, each with a hint; none if unknown."""
    runner = os.path.basename(argv[0])
    if runner == "uv" and _installs(argv):
        yield (
            "`uv run` installs what has changed when a run starts: several at once disturb each other, and a "
            "node without network fails",
            "write [uv, run, --no-sync, …] and run `uv sync` yourself, or set UV_NO_SYNC=1",
        )
    python, script = _python_of(argv), program_file(argv)
    if python is None or script is None or not script.endswith(".py"):
        return
    where = os.path.dirname(os.path.abspath(script))
    names = [name for name in imports(Path(script)) if name not in sys.stdlib_module_names]
    if missing := _missing(tuple(python), where, tuple(names)):
        module = module_of_file(script)
        start = f"start the program as {' '.join(python)} -m {module}, " if module else ""
        yield (
            f"found no module {', '.join(missing)}, which {script} imports, in the Python of "
            f"`{' '.join(python)}`",
            f"{start}install it in that environment, or name the Python that has it "
            "(docs/your-environment.md)",
        )


def _installs(argv: Sequence[str]) -> bool:
    words = [*argv, *(("--no-sync",) if os.environ.get("UV_NO_SYNC") else ())]
    return "run" in words[:3] and not {"--no-sync", "--no-project", "--script"} & set(words)


def _python_of(argv: Sequence[str]) -> list[str] | None:
    """Return the beginning of the command that starts its Python; None if there is no such one."""
    if _PYTHON.fullmatch(os.path.basename(argv[0])):
        return [argv[0]]
    runner = os.path.basename(argv[0])
    if _RUNNERS.get(runner) not in argv[1:3] or (runner == "uv" and not os.path.isdir(".venv")):
        return None  # without its environment uv would make one
    for position, item in enumerate(argv[2:], start=2):
        if _PYTHON.fullmatch(os.path.basename(item)):
            return list(argv[: position + 1])
        if item == program_file(argv):
            return [*argv[:position], "python"]
    return None


@cache
def _missing(python: tuple[str, ...], where: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(PROGRAM_HOOK))))
    own = {"PYTHONPATH": path, "UV_NO_SYNC": "1", "UV_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [*python, "-c", _LOOK, where, *names],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        return tuple(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return ()  # unknown: do not warn

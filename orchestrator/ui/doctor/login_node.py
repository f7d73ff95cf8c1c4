"""Check a login node behind ssh: it can be reached, and has what a sweep from here needs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.config.backends import get_backend
from orchestrator.config.profiles import Profile, place_of, preparation
from orchestrator.config.profiles.remote_setup import THEIR_PYTHON
from orchestrator.core.errors import HostError, OrchestrateError
from orchestrator.core.findings import PATIENCE_S, Finding, ok, problem, warning
from orchestrator.core.machine.installation import install_there
from orchestrator.core.machine.ssh import NO_VARIABLE, Host, to_folder
from orchestrator.core.types import CommandAnswer
from orchestrator.ui.doctor.local_machine import OLDEST_PYTHON

# Packages that the control plane loads first, and those of a BenchMARL run.
_PACKAGES = ("hydra", "jinja2", "msgspec", "orjson", "polars", "rich", "submitit", "typer", "yaml")
_TRAINING = ("torch", "torchrl", "benchmarl", "vmas")
_LITTLE_KB = 5 << 20


class LoginNode:
    """The machine that a profile's ``ssh`` names."""

    def __init__(self, profile: Profile) -> None:
        self._profile, self._host = profile, Host(profile.ssh or "")
        self._spec = get_backend(profile.backend)

    def examined(self) -> Iterator[Finding]:
        """Yield every finding about the machine, as it comes; those about its scheduler are the backend's."""
        for check in (self.connection, self.folder, self.python, self.programs):
            yield check()

    def ask(self, argv: Sequence[str]) -> CommandAnswer:
        """Run a command in a login shell there; a script, its last argument, is sent as its input."""
        content = b""
        if argv[0] == self._spec.options and Path(argv[-1]).is_file():
            content, argv = Path(argv[-1]).read_bytes(), argv[:-1]
        try:
            return self._host.run(["bash", "-lc", shlex.join(argv)], content, patience=PATIENCE_S)
        except HostError as error:
            return CommandAnswer(None, "", str(error))

    def connection(self) -> Finding:
        name, began = "Login node", time.monotonic()
        try:
            self._host.run(["true"])
        except OrchestrateError as error:
            return problem(name, str(error), error.hint or "", blocks=True)
        return ok(name, f"{self._host.name} answers in {time.monotonic() - began:.1f} s")

    def folder(self) -> Finding:
        """Check that results can be written there, or where the folder would be made."""
        name, folder = "Results there", self._profile.folder
        try:
            find = to_folder(folder)
        except HostError as error:
            return problem(name, str(error), error.hint or "")
        lines = (
            find,
            'above=$folder; while [ ! -e "$above" ]; do above=$(dirname -- "$above"); done',
            '[ -d "$above" ] && [ -w "$above" ] && mark=yes || mark=no',
            'df -Pk -- "$above" | awk \'END { print $4 }\'; echo "$mark"; echo "$folder"',
        )
        said = self._host.run(["sh", "-c", "\n".join(lines)])
        if said.code == NO_VARIABLE:
            fix = f"export it in ~/.bash_profile there, or write `folder:` out in {place_of(self._profile)}"
            return problem(name, f"{folder}: {said.errors.strip().splitlines()[-1]}", fix)
        free, mark, *rest = said.output.splitlines()[-3:] if said.output.count("\n") >= 3 else ("", "no")
        where = rest[0] if rest else folder
        fix = f"set `folder:` in {place_of(self._profile)} to one that you can write to, with room"
        if mark != "yes":
            return problem(name, f"{where} cannot be written", fix)
        size = f"{int(free) / (1 << 20):,.1f} GB free" if free.isdigit() else "free space unknown"
        if free.isdigit() and int(free) < _LITTLE_KB:
            return warning(name, f"{where}: {size}", fix)
        return ok(name, f"{where}: can be written, {size} (a quota may allow less)")

    def python(self) -> Finding:
        """Check the Python that a sweep would start; packages are found, not loaded."""
        name, profile = "Python there", self._profile
        command = shlex.join(profile.python or THEIR_PYTHON)
        code = (
            "import sys, importlib.util as u; print('found', *sys.version_info[:3], "
            f"*(n for n in {(*_PACKAGES, *_TRAINING)!r} if u.find_spec(n) is None))"
        )
        lines = [*preparation(profile), f"{command} -c {shlex.quote(code)}"]
        said = self.ask(["bash", "-c", "\n".join(lines)])
        told = [line.split()[1:] for line in said.output.splitlines() if line.startswith("found ")]
        if not told:
            fix = f"name a Python 3.11 or newer of that machine in {place_of(profile)}: `python:` or `setup:`"
            return problem(name, f"{command} does not start: {said.complaint}", fix)
        version, missing = tuple(map(int, told[-1][:3])), told[-1][3:]
        shown = f"{command} is Python {'.'.join(map(str, version))}"
        if version < OLDEST_PYTHON:
            return problem(name, shown, f"name a Python 3.11 or newer in {place_of(profile)}: `python:`")
        fix = f"with that Python, {install_there('train')}"
        if set(missing) & set(_PACKAGES):
            return problem(name, f"{shown}, without {', '.join(missing)}", fix)
        if missing:
            return warning(name, f"{shown}, without {', '.join(missing)}", fix)
        return ok(name, f"{shown}, with the program's packages")

    def programs(self) -> Finding:
        name = "Programs there"
        wanted = (*self._spec.programs, "rsync", "tar")
        said = self.ask(["bash", "-c", f"for one in {' '.join(wanted)}; do command -v $one; done"])
        there = {line.rpartition("/")[2] for line in said.output.splitlines()}
        missing = [program for program in wanted if program not in there]
        if missing:
            found = f"{', '.join(missing)} not on PATH of a login shell"
            fix = "ask your site where they are; `orchestrate sync` needs rsync, sweeps need the others"
            return (
                warning(name, found, fix) if missing == ["rsync"] else problem(name, found, fix, blocks=True)
            )
        return ok(name, ", ".join(wanted))

"""The project's files that a program imported or opened: only they decide whether its run is stale."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.training.context import RunContext
from orchestrator.config.command_line.command import code_of, is_shell, module_of, script_of
from orchestrator.config.program.identity import ProgramFiles, ProjectFiles, project_files
from orchestrator.config.program.patterns import CODE_KEY, Patterns
from orchestrator.rundir import CodeDir

# The variable with the folders whose files the hook notes.
PROJECT = "ORCHESTRATE_PROJECT"
_FILE = "file\t"


class Trace:
    """The files that a program uses, from the notes of the hook in its Python.

    To be made before the program starts.
    """

    def __init__(self, context: RunContext, argv: Sequence[str]) -> None:
        self._context, self._argv = context, argv
        self._start = Path.cwd()
        self._tops = self._folders(self._project())

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that the hook reads beside the file for its notes."""
        return {PROJECT: os.pathsep.join(self._tops)}

    def program(self) -> tuple[ProgramFiles, bool]:
        """Return the files that count for the result, and whether the notes decided that.

        They decide for a Python program that the hook saw, and do not need to where the grid names the files.
        """
        project, point = self._project(), self._context.run.point
        opened = frozenset(self._names())
        if Patterns.of(point.get(CODE_KEY)).base is None and not self._is_seen(opened):
            return project.program(point), False
        program = project.program(point, opened)
        if program.to_json() is None and program.files:  # more than a result lists: leave out data
            sources = opened & project.program(point).files.keys()
            program = project.program(point, frozenset(sources))
        return program, program.to_json() is not None or not program.files

    def result(self) -> dict[str, Any]:
        """Return the keys of a result on the run's code; empty if those of its start stay."""
        before = self._context.program
        program, is_traced = self.program()
        if before is None or not is_traced or program.unknown is not None:
            return {}
        content = self._project().program(self._context.run.point).files
        changed = {
            name: was
            for name, was in before.files.items()
            if name in program.files and was != content.get(name)
        }
        trained = ProgramFiles({**program.files, **changed})
        return {"code_id": trained.id, "code_files": trained.to_json() or {}, "code_traced": True}

    def _project(self) -> ProjectFiles:
        return project_files(self._start, [self._results], any_owner=True)

    @property
    def _results(self) -> Path:
        return self._context.run_dir.path.parents[2].resolve()

    def _folders(self, project: ProjectFiles) -> dict[str, Path]:
        """Map each path that leads to a folder of the project to the folder's path in the project."""
        root = project.root.resolve()
        code = CodeDir.holding(self._start / "here")
        # The run's own folder, in which the program starts, mirrors the copy of the project, or the folder.
        work = self._context.run_dir.path.absolute() / "work"
        mirrored = self._start if code is None else root
        found = {os.fspath(root): root, os.fspath(work): mirrored, os.path.realpath(work): mirrored}
        script = script_of(self._argv)
        if script is not None and os.path.isabs(script):
            folder = os.path.dirname(os.path.normpath(script))
            found.setdefault(folder, Path(folder))
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            if os.path.isabs(entry) and (real := Path(os.path.realpath(entry))).is_relative_to(root):
                found.setdefault(entry, real)
        return found

    def _names(self) -> Iterator[str]:
        """Yield the noted files' names: in the project relative to the folder of the start, else the path."""
        code = CodeDir.holding(self._start / "here")
        root = self._project().root.resolve()
        for path in self._paths():
            top = max((top for top in self._tops if path.startswith(f"{top}/")), key=len, default=None)
            if top is not None:
                full = os.path.join(self._tops[top], path[len(top) + 1 :])
                if not Path(full).is_relative_to(root):
                    yield full
                elif code is not None or not Path(full).is_relative_to(self._results):
                    yield os.path.relpath(full, self._start)

    def _paths(self) -> Iterator[str]:
        for (
            attempt
        ) in self._context.run_dir.current_attempts():  # a resumed program may open less than before
            try:
                notes = attempt.inbox_imports.read_bytes()
            except OSError:
                continue
            lines = map(os.fsdecode, notes.split(b"\n"))
            yield from (line[len(_FILE) :] for line in lines if line.startswith(_FILE))

    def _is_seen(self, opened: frozenset[str]) -> bool:
        """Return whether the program is Python, and the hook ran in it."""
        script = script_of(self._argv)
        if script is not None:
            name = os.path.normpath(script)
            files = {name, os.path.join(name, "__main__.py"), os.path.relpath(name, self._start)}
            return any(file.endswith(".py") and file in opened for file in files)
        inline = code_of(self._argv) is not None and not is_shell(self._argv[0])
        return bool(opened) and (inline or module_of(self._argv) is not None)

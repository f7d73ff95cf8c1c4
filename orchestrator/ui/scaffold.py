"""Write the first files of a project: a grid to begin with, and a profile to fill in."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from orchestrator.config.backends import DEFAULT_BACKEND, BackendSpec, backend_names, find_backend
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.machine.package_files import PROGRAM_HOOK, template
from orchestrator.core.types import RunCommand

GRID = Path("sweeps", "first.yaml")
# A grid that checks what no login node can see; `orchestrate doctor --on PROFILE` recommends it.
VALIDATION = Path("sweeps", "validate.yaml")
# The module with which a program logs, saves and resumes; it works without this package.
RESUMING = Path("orchestrate_run.py")


@dataclass(frozen=True)
class NewProject:
    """Result of :func:`begin`: new files, files that existed and stay, and the next commands."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    commands: tuple[str, ...]


def begin(
    folder: Path, kind: str = DEFAULT_BACKEND, ask: RunCommand | None = None, resume: bool = False
) -> NewProject:
    """Write a grid, and a profile for that kind of backend, into a project's folder; overwrite nothing.

    On a login node the profile names the cluster's partitions and accounts. ``ask`` stands in for the
    scheduler's commands. ``resume``: copy :data:`RESUMING`, too. Raises :class:`OrchestrateError` for an
    unknown kind, ``OSError`` if nothing can be written.
    """
    spec = find_backend(kind)
    if spec is None:
        raise OrchestrateError(f"--on: found {kind!r}, expected one of: {', '.join(backend_names())}")
    texts = {GRID: _text("first.yaml")}
    profile = Path("profiles", Path(spec.example).name.removesuffix(".j2")) if spec.example else None
    if profile is not None:
        texts[profile] = _profile(spec, ask)
        texts[VALIDATION] = _text(VALIDATION.name)
    if resume:
        texts[RESUMING] = (PROGRAM_HOOK / RESUMING).read_text(encoding="utf-8")
    new = {place: _write(folder / place, text) for place, text in texts.items()}
    return NewProject(
        tuple(folder / place for place, is_new in new.items() if is_new),
        tuple(folder / place for place, is_new in new.items() if not is_new),
        tuple(_commands(folder, profile)),
    )


def begin_from(folder: Path, file: Path) -> NewProject:
    """Write a grid that is drafted from a program, job script or sweep file; overwrite nothing.

    Raises :class:`OrchestrateError` for a file that cannot be used, ``OSError`` if nothing can be written.
    """
    from orchestrator.ui.drafts.read import draft_of
    from orchestrator.ui.drafts.text import rendered

    draft = draft_of(file, os.path.relpath(file, folder))
    grid = GRID.with_name(f"{draft.name}.yaml")
    is_new = _write(folder / grid, rendered(draft))
    places = (folder / grid,)
    missing = [f"# fill in {', '.join(draft.required)} in {grid}"] if draft.required else []
    commands = tuple(_commands(folder, None, grid, draft.name, missing))
    return NewProject(places if is_new else (), () if is_new else places, commands)


def _text(name: str) -> str:
    return (template("init") / name).read_text(encoding="utf-8")


def _write(file: Path, text: str) -> bool:
    """Write a new file and return whether it is new; an existing one, or a link to nowhere, stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(file, "x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        return False
    return True


def _profile(spec: BackendSpec, ask: RunCommand | None) -> str:
    """Return the backend's example of a profile."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # noqa: S701
    words = resolve_name(spec.example_words)(ask) if spec.example_words else {}
    return environment.from_string(_text(spec.example)).render(words)


def _commands(
    folder: Path, profile: Path | None, grid: Path = GRID, name: str = "first", edits: Sequence[str] = ()
) -> list[str]:
    go = [f"cd {shlex.quote(str(folder))}"] if os.path.normpath(folder) != "." else []
    here = [
        f"orchestrate check {grid}",
        f"orchestrate sweep --grid {grid}",
        f"orchestrate collect {name} && orchestrate report {name}",
    ]
    there = [f"orchestrate doctor --on {profile}"] if profile is not None else []
    return [*go, *edits, *here, *there]

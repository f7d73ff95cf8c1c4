"""Write the first files of a project: a grid to begin with, and a profile to fill in."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.backends.slurm.commands import CommandAnswer
from orchestrator.core.errors import OrchestrateError
from orchestrator.core.package_files import template
from orchestrator.ui.doctor.cluster_facts import Ask, Site

GRID = Path("sweeps", "first.yaml")
# A grid that checks what no login node can see; `orchestrate doctor --on PROFILE` recommends it.
VALIDATION = Path("sweeps", "validate.yaml")
# Kinds of backends, and the file of the profile written for each.
PROFILES = {
    "slurm": Path("profiles", "cluster.yaml"),
    "skypilot": Path("profiles", "cloud.yaml"),
    "local": None,
}
_PARTITIONS = "`sinfo -s` lists them"
_ACCOUNTS = "`sacctmgr show associations user=$USER format=account,qos` lists yours"
_MOST_NAMES = 8


@dataclass(frozen=True)
class NewProject:
    """Result of :func:`begin`: new files, files that existed and stay, and the next commands."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    commands: tuple[str, ...]


def begin(folder: Path, kind: str = "slurm", ask: Ask | None = None) -> NewProject:
    """Write a grid, and a profile for that kind of backend, into a project's folder; overwrite nothing.

    On a login node the profile names the cluster's partitions and accounts. ``ask`` stands in for Slurm's
    commands. Raises :class:`OrchestrateError` for an unknown kind, ``OSError`` if nothing can be written.
    """
    if kind not in PROFILES:
        raise OrchestrateError(f"--on: found {kind!r}, expected one of: {', '.join(PROFILES)}")
    texts = {GRID: _text("first.yaml")}
    profile = PROFILES[kind]
    if profile is not None:
        texts[profile] = _cluster(ask) if kind == "slurm" else _text("cloud.yaml")
        texts[VALIDATION] = _text(VALIDATION.name)
    new = {place: _write(folder / place, text) for place, text in texts.items()}
    return NewProject(
        tuple(folder / place for place, is_new in new.items() if is_new),
        tuple(folder / place for place, is_new in new.items() if not is_new),
        tuple(_commands(folder, profile)),
    )


def _text(name: str) -> str:
    return template(f"init/{name}").read_text(encoding="utf-8")


def _write(file: Path, text: str) -> bool:
    """Write a new file and return whether it is new; an existing one, or a link to nowhere, stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(file, "x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        return False
    return True


def _cluster(ask: Ask | None) -> str:
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # noqa: S701
    partitions, accounts = _names_here(ask) if ask is not None or shutil.which("sinfo") else ((), ())
    return environment.from_string(_text("cluster.yaml.j2")).render(
        partitions=_listed(partitions) or _PARTITIONS, accounts=_listed(accounts) or _ACCOUNTS
    )


def _names_here(ask: Ask | None) -> tuple[Sequence[str], Sequence[str]]:
    """Return partitions, the default one first, and the user's accounts; none without an answer."""
    site = Site(None, Path(), ask)
    partitions = sorted(site.partitions, key=lambda one: not one.is_default)
    known = () if isinstance(site.associations, CommandAnswer) or not partitions else site.associations
    named = [f"{one.name} (the default)" if one.is_default else one.name for one in partitions]
    return named, list(dict.fromkeys(one.account for one in known))


def _listed(names: Sequence[str]) -> str:
    """Format names for a comment of one line; unprintable characters are removed."""
    printable = ["".join(char for char in name if char.isprintable()) for name in names]
    more = f", … ({len(names)} in all)" if len(names) > _MOST_NAMES else ""
    return f"there are: {', '.join(printable[:_MOST_NAMES])}{more}" if names else ""


def _commands(folder: Path, profile: Path | None) -> list[str]:
    go = [f"cd {shlex.quote(str(folder))}"] if os.path.normpath(folder) != "." else []
    here = [
        f"orchestrate check {GRID}",
        f"orchestrate sweep --grid {GRID}",
        "orchestrate collect first && orchestrate report first",
    ]
    there = [f"orchestrate doctor --on {profile}"] if profile is not None else []
    return [*go, *here, *there]

"""Libraries as they may be: what a machine tells where all is well, and one where OpenGL's GLU is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from orchestrator.ui.doctor.torch_probe import Facts
from tests.helpers import unshared

FACTS: dict[str, Facts] = {
    "torch": {"version": "2.13.0", "cuda": None, "threads": 4},
    "drawing": {"width": 700, "height": 600},
    "procgen": {"games": 16},
}


def well(name: str) -> Facts:
    """Stands in for the process that loads them, which tests/integration/test_doctor.py starts."""
    return FACTS[name]


def without_glu(scratch: Path) -> list[str]:
    """The beginning of a command line that finds no GLU. ``scratch`` is an empty folder.

    Where it was not installed in the first place, GL may not be either.
    """
    return _without("libGLU.so", scratch)


def without_qt(scratch: Path) -> list[str]:
    """The beginning of a command line that finds no libraries of Qt, the system's or PyQt5's."""
    (package,) = importlib.util.find_spec("PyQt5").submodule_search_locations
    return [
        *_without("libQt5Core.so", scratch),
        "sh",
        "-c",
        f'mount -t tmpfs none {package} && exec "$@"',
        "hide",
    ]


def _without(library: str, scratch: Path) -> list[str]:
    hide = (
        "set -e; for folder in /usr/lib/*-linux-gnu /usr/lib64; do\n"
        f'[ -n "$(find "$folder" -maxdepth 1 -name "{library}*")" ] || continue\n'
        'mount -t tmpfs none "$1"; mkdir "$1/over" "$1/work"\n'
        'mount -t overlay none -o "lowerdir=$folder,upperdir=$1/over,workdir=$1/work" "$folder"\n'
        f'rm "$folder"/{library}*; done; shift; exec "$@"'
    )
    return [*unshared("--mount"), "sh", "-c", hide, "hide", str(scratch)]

"""Find files that come with the program: templates, profiles, constraints.

In a clone they lie at its top. A wheel holds them in this package, so no other package's ``templates`` can be
in the way, and so does the code that is kept with a sweep.
"""

from __future__ import annotations

from pathlib import Path

import orchestrator

# Where the package lies: in a clone, in an environment, or in the code kept with a sweep.
PACKAGE = Path(orchestrator.__path__[0])
DATA = ("constraints.txt", "templates")


def data(name: str) -> Path:
    """The file or folder of that name, one of :data:`DATA`."""
    inside = PACKAGE / name
    return (inside if inside.exists() else PACKAGE.parent / name).resolve()


def template(name: str) -> Path:
    """The file or folder of that name among the templates: ``slurm.sbatch.j2``, ``profiles``."""
    return data("templates") / name

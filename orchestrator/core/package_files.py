"""Files that come with the program: templates and profiles.

They live in ``templates/`` at the top of the repository, which ``orchestrator/templates`` links to: a wheel
holds them as data of this package, so no other package's ``templates`` can be in the way.
"""

from __future__ import annotations

from pathlib import Path

import orchestrator

# Where the package lies: in a clone, in an environment, or in the code kept with a sweep.
PACKAGE = Path(orchestrator.__path__[0])


def template(name: str) -> Path:
    """The file or folder of that name among the templates: ``slurm.sbatch.j2``, ``profiles``."""
    # A path, since wheels are unpacked when they are installed.
    return (PACKAGE / "templates").resolve() / name

"""Files that come with the program: templates and profiles.

They live in ``templates/`` at the top of the repository, which ``orchestrator/templates`` links to: a wheel
holds them as data of this package, so no other package's ``templates`` can be in the way.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def template(name: str) -> Path:
    """The file or folder of that name among the templates: ``slurm.sbatch.j2``, ``profiles``."""
    # A path, since wheels are unpacked when they are installed.
    return (Path(str(files("orchestrator"))) / "templates").resolve() / name

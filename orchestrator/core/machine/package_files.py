"""Find files that come with the program: templates, profiles, constraints, configs.

In a clone templates and constraints lie at its top. A wheel and a code snapshot hold them inside this
package, so that no other package's ``templates`` is found instead. In a code snapshot all modules are in one
zip file, and what is opened by its path lies beside that.
"""

from __future__ import annotations

from pathlib import Path

import orchestrator

# The package's folder: in a clone, in an environment, or in the zip file of a code snapshot.
PACKAGE = Path(orchestrator.__path__[0])
DATA = ("constraints.txt", "templates")
# The folder of our packages, or of their zip file.
TOP = PACKAGE.parent if PACKAGE.is_dir() else PACKAGE.parent.parent
# Folders of our packages that are opened by their paths: by Hydra, and by the Python of a program.
CONF = TOP / "jobs" / "conf"
PROGRAM_HOOK = TOP / "jobs" / "trainers" / "command" / "program_hook"


def data(name: str) -> Path:
    """Return the file or folder of that name, one of :data:`DATA`."""
    inside = TOP / "orchestrator" / name
    return (inside if inside.exists() else TOP / name).resolve()


def template(name: str) -> Path:
    """Return a file or folder among the templates: ``job.sh.j2``, ``profiles``."""
    return data("templates") / name

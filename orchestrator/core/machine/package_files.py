"""Find files that come with the program: templates, profiles, constraints.

In a clone they lie at its top. A wheel and a code snapshot hold them inside this package, so that no other
package's ``templates`` is found instead.
"""

from __future__ import annotations

from pathlib import Path

import orchestrator

# The package's folder: in a clone, in an environment, or in a code snapshot.
PACKAGE = Path(orchestrator.__path__[0])
DATA = ("constraints.txt", "templates")


def data(name: str) -> Path:
    """Return the file or folder of that name, one of :data:`DATA`."""
    inside = PACKAGE / name
    return (inside if inside.exists() else PACKAGE.parent / name).resolve()


def template(name: str) -> Path:
    """Return a file or folder among the templates: ``job.sh.j2``, ``profiles``."""
    return data("templates") / name

"""Answer for the results tree on this machine: ``python -m orchestrator.answer``.

A version of this program asks in the code that another one kept with a sweep: this name stays, wherever the
module behind it moves.
"""

from __future__ import annotations

import sys

from orchestrator.control.remote.server import main

if __name__ == "__main__":
    sys.exit(main())

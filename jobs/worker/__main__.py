"""``python -m jobs.worker RESULTS SWEEP TOKEN``: see :mod:`jobs.worker.worker`."""

from __future__ import annotations

import sys

from jobs.worker.worker import main

sys.exit(main(sys.argv[1:]))

"""Load what runs of the trainer share, once in a worker before it starts a process for each."""

from __future__ import annotations

import vmas  # noqa: F401  (the environments of TorchRL import it when the first one is made)

from jobs.hydra.composition import compose_files
from jobs.trainers.benchmarl.configuration.config import ROOT
from jobs.trainers.benchmarl.engine import experiment  # noqa: F401

# The first composition in a process looks for Hydra's plug-ins and builds the tables of its parser.
compose_files(ROOT, ["algorithm=mappo", "task=vmas/navigation"])

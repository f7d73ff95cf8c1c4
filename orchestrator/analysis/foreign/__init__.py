"""Read results of BenchMARL run without this program into the tables of `collect`.

Reads the files of its CSV logger and its JSON writer (BenchMARL 1.3 to 1.5), and Hydra's record of the
configuration. ``config.pkl`` and checkpoints are never opened: unpickling a file runs its code.
"""

from orchestrator.analysis.foreign.runs import Outputs, read_outputs

__all__ = ["Outputs", "read_outputs"]

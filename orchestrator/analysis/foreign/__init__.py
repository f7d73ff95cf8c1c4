"""Other people's results: what BenchMARL leaves behind by itself, in the tables of `collect`.

Read are the files that its CSV logger and its JSON writer leave (BenchMARL 1.3 to 1.5), and Hydra's record of
the configuration. ``config.pkl`` and checkpoints are never opened: to unpickle a file is to run its code.
"""

from orchestrator.analysis.foreign.runs import Outputs, read_outputs

__all__ = ["Outputs", "read_outputs"]

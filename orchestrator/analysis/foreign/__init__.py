"""Read results of BenchMARL and TensorBoard, trained without this program, into the tables of `collect`.

Reads the files of BenchMARL's CSV logger and JSON writer (1.3 to 1.5), and Hydra's record of the
configuration; in other folders event files of TensorBoard. ``config.pkl`` and checkpoints are never opened:
unpickling a file runs its code.
"""

from orchestrator.analysis.foreign.runs import Outputs, read_outputs

__all__ = ["Outputs", "read_outputs"]

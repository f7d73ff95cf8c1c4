"""One sweep on several targets: each gets the runs that it is predicted to finish first."""

from orchestrator.control.multi_target.shared import SharedTargets
from orchestrator.control.multi_target.targets import SharedSweep, TargetHandle, targets_of

__all__ = ["SharedSweep", "SharedTargets", "TargetHandle", "targets_of"]

"""One sweep on several targets: runs are assigned while the sweep is followed, or all at once."""

from orchestrator.control.multi_target.one_shot import check, rehearse, submit_all
from orchestrator.control.multi_target.scheduler import TargetScheduler
from orchestrator.control.multi_target.targets import (
    SharedSweep,
    TargetHandle,
    stop_here,
    take_from_others,
    targets_of,
)

__all__ = [
    "SharedSweep",
    "TargetHandle",
    "TargetScheduler",
    "check",
    "rehearse",
    "stop_here",
    "submit_all",
    "take_from_others",
    "targets_of",
]

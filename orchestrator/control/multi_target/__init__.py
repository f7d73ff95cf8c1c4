"""One sweep over several targets: home deals its runs out while it follows, or all at once."""

from orchestrator.control.multi_target.one_shot import check, rehearse, submit_all
from orchestrator.control.multi_target.scheduler import TargetScheduler
from orchestrator.control.multi_target.targets import (
    SharedSweep,
    TargetHandle,
    parties_of,
    stop_here,
    take_from_others,
)

__all__ = [
    "SharedSweep",
    "TargetHandle",
    "TargetScheduler",
    "check",
    "parties_of",
    "rehearse",
    "stop_here",
    "submit_all",
    "take_from_others",
]

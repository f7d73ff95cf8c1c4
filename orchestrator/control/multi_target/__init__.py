"""One sweep over several targets: home deals its runs out while it follows, or all at once."""

from orchestrator.control.multi_target.one_shot import check, rehearse, submit_all
from orchestrator.control.multi_target.scheduler import Table
from orchestrator.control.multi_target.targets import Matter, Party, parties_of, stop_here, take_from_others

__all__ = [
    "Matter",
    "Party",
    "Table",
    "check",
    "parties_of",
    "rehearse",
    "stop_here",
    "submit_all",
    "take_from_others",
]

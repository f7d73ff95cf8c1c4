"""One sweep over several targets: home deals its runs out while it follows, or all at once."""

from orchestrator.sharing.once import check, rehearse, submit_all
from orchestrator.sharing.parties import Matter, Party, parties_of, stop_here, take_from_others
from orchestrator.sharing.table import Table

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

"""Compare the values of one key of the grid: speed, efficiency, returns, memory. Pure."""

from orchestrator.analysis.compare.model import (
    Combination,
    ComparedValue,
    KeyComparison,
    Overall,
    ReturnCurve,
)
from orchestrator.analysis.compare.pairing import compare_by

__all__ = ["Combination", "ComparedValue", "KeyComparison", "Overall", "ReturnCurve", "compare_by"]

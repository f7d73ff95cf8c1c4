"""Values of one key of the grid against each other: speed, efficiency, returns, memory. Pure."""

from orchestrator.analysis.compare.model import Cell, Combination, KeyComparison, Line, Overall
from orchestrator.analysis.compare.pairing import compare_by

__all__ = ["Cell", "Combination", "KeyComparison", "Line", "Overall", "compare_by"]

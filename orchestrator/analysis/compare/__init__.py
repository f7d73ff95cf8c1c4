"""Compare the values of one key: speed, efficiency, cost, returns, memory. Pure, but for prices."""

from orchestrator.analysis.compare.model import Combination, ComparedValue, KeyComparison
from orchestrator.analysis.compare.pairing import compare_by
from orchestrator.analysis.compare.targets import prices, target_comparisons

__all__ = [
    "Combination",
    "ComparedValue",
    "KeyComparison",
    "compare_by",
    "prices",
    "target_comparisons",
]

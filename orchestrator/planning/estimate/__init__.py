"""Time and money before anything is launched: predictions with an honest range, and what they rest on."""

from orchestrator.planning.estimate.advice import Advice, recommend
from orchestrator.planning.estimate.forecast import Forecast, RunForecast, foresee
from orchestrator.planning.estimate.ranges import Range
from orchestrator.planning.estimate.target_costs import Catalog, TargetCost, where_of

__all__ = [
    "Advice",
    "Catalog",
    "Forecast",
    "Range",
    "RunForecast",
    "TargetCost",
    "foresee",
    "recommend",
    "where_of",
]

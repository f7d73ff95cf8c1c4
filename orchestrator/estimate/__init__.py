"""Time and money before anything is launched: predictions with an honest range, and what they rest on."""

from orchestrator.estimate.advice import Advice, recommend
from orchestrator.estimate.forecast import Forecast, RunForecast, foresee
from orchestrator.estimate.ranges import Range
from orchestrator.estimate.where import Catalog, Where, where_of

__all__ = [
    "Advice",
    "Catalog",
    "Forecast",
    "Range",
    "RunForecast",
    "Where",
    "foresee",
    "recommend",
    "where_of",
]

"""Predict time and cost before launch, with 80 % ranges and the data behind them."""

from orchestrator.planning.estimate.advice import Advice, recommend
from orchestrator.planning.estimate.forecast import Forecast, RunForecast, forecast_plan
from orchestrator.planning.estimate.ranges import Range
from orchestrator.planning.estimate.target_costs import TargetCost, where_at, where_of

__all__ = [
    "Advice",
    "Catalog",
    "Forecast",
    "Range",
    "RunForecast",
    "TargetCost",
    "forecast_plan",
    "recommend",
    "where_at",
    "where_of",
]

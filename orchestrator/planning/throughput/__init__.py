"""Measured speeds of finished runs, speeds reported by others, and lookup for planned runs."""

from orchestrator.planning.throughput.lookup import Basis, SpeedTable
from orchestrator.planning.throughput.model import RunKind, Speed, TrainingPlace, kind_of, length_of
from orchestrator.planning.throughput.record import take_up
from orchestrator.planning.throughput.table import load_table

__all__ = [
    "Basis",
    "RunKind",
    "Speed",
    "SpeedTable",
    "TrainingPlace",
    "kind_of",
    "length_of",
    "load_table",
    "take_up",
]

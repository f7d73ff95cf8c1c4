"""How fast runs are: a table filled from every finished run, and what others reported."""

from orchestrator.planning.throughput.lookup import Basis, Table
from orchestrator.planning.throughput.model import Kind, Place, Speed, kind_of, length_of
from orchestrator.planning.throughput.record import take_up
from orchestrator.planning.throughput.table import load_table

__all__ = ["Basis", "Kind", "Place", "Speed", "Table", "kind_of", "length_of", "load_table", "take_up"]

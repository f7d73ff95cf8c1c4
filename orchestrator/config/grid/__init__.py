"""Parse a grid file into a :class:`Grid`, or raise an error with file, line and column."""

from orchestrator.config.grid.model import Axis, Exclusion, Grid, Point
from orchestrator.config.grid.parse import parse_grid
from orchestrator.config.yaml_files.nodes import Position

__all__ = ["Axis", "Exclusion", "Grid", "Point", "Position", "parse_grid"]

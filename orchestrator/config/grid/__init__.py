"""The grid file: text in, a :class:`Grid` out, and an error with its place for whatever cannot be used."""

from orchestrator.config.grid.model import Axis, Grid, Point, Position
from orchestrator.config.grid.parse import parse_grid

__all__ = ["Axis", "Grid", "Point", "Position", "parse_grid"]

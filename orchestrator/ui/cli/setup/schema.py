from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.ui.cli.common import print_json


class Kind(StrEnum):
    """The files that have a schema."""

    GRID = "grid"
    PROFILE = "profile"


def schema(kind: Annotated[Kind, typer.Argument(help="Of a grid or of a profile.")] = Kind.GRID) -> None:
    """Print the JSON schema of a grid or a profile, for an editor to complete and check YAML.

    [bold]Examples[/bold]

      orchestrate schema > grid.schema.json
      orchestrate schema profile > profile.schema.json
    """
    from orchestrator.config.schema import grid_schema, profile_schema

    print_json(grid_schema() if kind is Kind.GRID else profile_schema())

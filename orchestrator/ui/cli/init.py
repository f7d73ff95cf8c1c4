from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.ui.cli.common import Json, print_json


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The project's folder; made if need be.")
    ] = Path(),
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="KIND", help="Write a profile for slurm, skypilot or, with local, none."
        ),
    ] = "slurm",
    as_json: Json = False,
) -> None:
    """Begin a project: write a commented grid and profile.

    The grid trains at once; fill in the profile. On a login node it names
    partitions and accounts. Existing files stay as they are.

    [bold]Examples[/bold]

      orchestrate init
      orchestrate init my-benchmark --on skypilot
    """
    from orchestrator.ui.scaffold import begin

    begun = begin(folder, on)
    if as_json:
        print_json({"written": begun.written, "kept": begun.kept, "commands": begun.commands})
        return
    for file in begun.written:
        typer.echo(f"wrote {file}")
    for file in begun.kept:
        typer.echo(f"kept  {file}: it was there")
    typer.echo("next:")
    for command in begun.commands:
        typer.echo(f"  {command}")

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli.common import Json, print_json


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The project's folder; made if need be.")
    ] = Path(),
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="BACKEND", help="Write a profile of this backend; with local, none."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Copy orchestrate_run.py, with which programs resume, into the folder."
        ),
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Draft the grid from a program, job script or sweep file; docs/coming-from.md.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Begin a project: write a commented grid and profile.

    The grid trains at once; fill in the profile. It is one of slurm, or of
    skypilot with --on. On a login node it names partitions and accounts.
    Existing files stay as they are. With --from only a grid is written,
    with the options that FILE declares; nothing is started.

    [bold]Examples[/bold]

      orchestrate init
      orchestrate init my-benchmark --on skypilot
      orchestrate init --from train.py
    """
    from orchestrator.config.backends import DEFAULT_BACKEND
    from orchestrator.ui.scaffold import begin, begin_from

    if source is not None:
        if on is not None or resume:
            raise OrchestrateError(
                "--from writes a grid alone, without --on and --resume",
                hint="leave them out; a further orchestrate init with them writes the other files",
            )
        begun = begin_from(folder, source)
    else:
        begun = begin(folder, on or DEFAULT_BACKEND, resume=resume)
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

from __future__ import annotations

import typer

from orchestrator.ui.cli.common import Json, print_json


def profiles(as_json: Json = False) -> None:
    """List the profiles for `--on`: yours, and those that come with the program.

    [bold]Examples[/bold]

      orchestrate profiles
      orchestrate sweep --grid sweeps/speed.yaml --on gpu --dry-run
    """
    from orchestrator.config.profiles import every_profile, own_folder

    found, problems = every_profile()
    if as_json:
        print_json(
            {
                "profiles": [
                    {
                        "name": profile.name,
                        "backend": profile.backend,
                        "source": profile.source,
                        "description": profile.description,
                    }
                    for profile in found
                ],
                "problems": [str(problem) for problem in problems],
            }
        )
    else:
        width = max(len(profile.name) for profile in found)
        for profile in found:
            typer.echo(f"{profile.name:<{width}}  {profile.backend:<5}  {profile.description or ''}")
            typer.echo(f"{'':<{width}}         {profile.source}")
        typer.echo(f"yours belong in {own_folder()}/")
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(2)

from __future__ import annotations

import typer

from orchestrator.ui.cli.common import Json, print_json, print_problems


def profiles(as_json: Json = False) -> None:
    """List the profiles for `--on`: yours, and those that come with the program.

    [bold]Examples[/bold]

      orchestrate profiles
      orchestrate sweep --grid sweeps/speed.yaml --on gpu --dry-run
    """
    from orchestrator.config.profiles import every_profile, own_folder

    known, problems = every_profile()
    if as_json:
        keys = ("name", "backend", "source", "description")
        shown = [{key: getattr(profile, key) for key in keys} for profile in known]
        print_json({"profiles": shown, "problems": list(map(str, problems))})
    else:
        width, backend_width = (max(len(getattr(one, key)) for one in known) for key in ("name", "backend"))
        for profile in known:
            typer.echo(
                f"{profile.name:<{width}}  {profile.backend:<{backend_width}}  {profile.description or ''}"
            )
            typer.echo(f"{'':<{width + backend_width + 4}}{profile.source}")
        typer.echo(f"yours belong in {own_folder()}/")
    print_problems(problems)
    if problems:
        raise typer.Exit(2)

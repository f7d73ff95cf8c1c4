from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.core.errors import OrchestrateError
from orchestrator.core.formatting import amount, count, printable
from orchestrator.ui.cli.common import (
    RESULTS,
    Json,
    Results,
    Sweeps,
    chosen,
    print_json,
    print_problems_there,
)

if TYPE_CHECKING:
    from orchestrator.control.clean import CleanOptions, Surplus

# The most paths that are named with the reason why they are left.
_NAMED = 5


def clean(
    sweeps: Sweeps = None,
    drop: Annotated[
        str | None,
        typer.Option(
            "--drop",
            metavar="KINDS",
            help="Also of finished runs: tensorboard,wandb,policies,state,work; and outside-grid.",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Only what ended so long ago: 30d, 12h."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The sweeps named, results and all.")] = False,
    yes: Annotated[bool, typer.Option("--yes/--dry-run", help="Remove it, or only list it.")] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List what can be removed from the disk, and with --yes remove it.

    By default that is what no command needs: leftovers of killed processes,
    attempts before a retry once the run is finished again, code that no
    run refers to. Results, metrics, logs, final and best policies stay, and
    so does all that a run needs to go on.

    [bold]Examples[/bold]

      orchestrate clean
      orchestrate clean --yes
      orchestrate clean speed --drop tensorboard,policies --older-than 30d
      orchestrate clean --whole --older-than 30d
      orchestrate clean old-sweep --whole --yes
    """
    from orchestrator.control import clean as control

    options, names = _options(drop, older_than), sweeps or []
    if whole and (drop is not None or (yes and not names)):
        told = "found --drop, expected only one of them" if drop is not None else "no sweep is named"
        raise OrchestrateError(f"--whole: {told}", hint="as in: orchestrate clean SWEEP --whole --yes")
    with _errors():
        listed = control.half_removed(results, names, dry=not yes)
    begun = {surplus.sweep for surplus in listed}
    rest = [name for name in names if name not in begun or (results / name).exists()]
    sweep_dirs = chosen(results, rest) if rest or not names else []
    for sweep_dir in sweep_dirs if whole and yes else ():  # before any is removed
        with _errors():
            control.whole(sweep_dir, options)
    removal = {
        (False, False): control.surplus,
        (False, True): control.remove,
        (True, False): control.whole,
        (True, True): control.remove_whole,
    }[whole, yes]
    problems: list[OrchestrateError] = []
    for sweep_dir in sweep_dirs:
        try:
            with _errors():
                listed.append(removal(sweep_dir, options))
        except OrchestrateError as error:
            if whole and not names:
                listed.append(control.Surplus(sweep_dir.name, left=[str(error)]))
            else:
                problems.append(error)
    if as_json:
        print_json(_as_json(listed, removed=yes))
    elif not (sweep_dirs or listed):
        typer.echo(f"no sweep in {results}/")
    elif listed:
        again = (
            "name the sweeps, with --yes" if whole and not names else "the same command with --yes does it"
        )
        _print(listed, results, None if yes else again)
    print_problems_there(problems)


@contextmanager
def _errors() -> Iterator[None]:
    """Turn what the file system refuses into an :class:`OrchestrateError`."""
    try:
        yield
    except OSError as error:
        raise OrchestrateError(
            f"{error.filename}: {error.strerror}", hint="another command may be at work here: try again"
        ) from error


def _options(drop: str | None, older_than: str | None) -> CleanOptions:
    from orchestrator.control.clean import DROPPABLE, CleanOptions
    from orchestrator.core.units import span

    kinds = [word.strip() for word in (drop or "").split(",") if word.strip()]
    for word in kinds or ([drop] if drop is not None else []):
        if word not in DROPPABLE:
            told = f"--drop: found {word!r}, expected some of {', '.join(DROPPABLE)}"
            raise OrchestrateError(told, hint="for example: --drop tensorboard,policies")
    try:
        return CleanOptions(frozenset(kinds), 0.0 if older_than is None else span(older_than))
    except ValueError as error:
        raise OrchestrateError(f"--older-than: {error}", hint="for example: --older-than 30d") from None


def _print(surpluses: Sequence[Surplus], results: Path, how: str | None) -> None:
    """Print the groups and the sum; ``how`` to remove them, None if they are removed."""
    groups = [(surplus.sweep, group) for surplus in surpluses for group in surplus.groups.values()]
    if groups:
        _print_table(groups)
    files, size = sum(group.count for _, group in groups), amount(sum(group.size for _, group in groups))
    if not groups:
        typer.echo(f"nothing to remove in {results}/")
    elif how is None:
        typer.echo(f"removed {count(files, 'file')}, {size}")
    else:
        typer.echo(f"{count(files, 'file')}, {size}, can be removed: {how}")
    kept: dict[str, int] = {}
    for surplus in surpluses:
        for kind, bytes_ in surplus.kept.items():
            kept[kind] = kept.get(kind, 0) + bytes_
    if told := ", ".join(f"{kind} {amount(number)}" for kind, number in kept.items() if number):
        typer.echo(f"kept, unless named with --drop: {told}")
    left = [text for surplus in surpluses for text in surplus.left]
    for text in left[:_NAMED]:
        typer.echo(f"left as it is: {printable(text)}", err=True)
    if len(left) > _NAMED:
        typer.echo(f"left as they are: {len(left) - _NAMED} more, listed with --json", err=True)


def _print_table(groups: Sequence[tuple[str, Any]]) -> None:
    from rich.text import Text

    from orchestrator.ui.terminal.screen import show, table

    rows = table("sweep", "what", right=("files", "frees"))
    for sweep, group in groups:
        rows.add_row(Text(sweep), Text(group.what), f"{group.count:,}", amount(group.size))
    show(rows)


def _as_json(surpluses: Sequence[Surplus], *, removed: bool) -> dict[str, Any]:
    sweeps = [
        {
            "sweep": surplus.sweep,
            "groups": [
                {
                    "what": group.what,
                    "files": group.count,
                    "bytes": group.size,
                    "paths": [str(path) for path in (*group.files, *group.folders)],
                }
                for group in surplus.groups.values()
            ],
            "kept": {kind: number for kind, number in surplus.kept.items() if number},
            "left": surplus.left,
        }
        for surplus in surpluses
    ]
    groups = [group for surplus in surpluses for group in surplus.groups.values()]
    files, size = sum(group.count for group in groups), sum(group.size for group in groups)
    return {"removed": removed, "files": files, "bytes": size, "sweeps": sweeps}

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.errors import NotFoundError, OrchestrateError, UnreachableError
from orchestrator.core.formatting import count, printable
from orchestrator.ui.cli.common import RESULTS, amount, chosen

if TYPE_CHECKING:
    from orchestrator.sync.request import SyncOptions, SyncReport
    from orchestrator.sync.source import Source

_SHOWN_KINDS = "metrics,checkpoints,tensorboard,wandb,logs"
_HOW_TO_SELECT = "`orchestrate status SWEEP` there lists ids and keys; as in --run algorithm=mappo,seed=0"
# Seconds.
_LONGEST_WATCH = 24 * 3600.0
_NO_SOURCE = (
    "as in: orchestrate sync user@host:project/results; without SOURCE it fetches for the sweeps here that "
    "have runs on instances or clusters, and there are none"
)


def sync(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="user@host:path, an ssh alias, a profile, ./folder, s3://bucket/folder; none: from the "
            "instances and clusters of the sweeps here, of clusters without checkpoints.",
            show_default=False,
        ),
    ] = None,
    dest: Annotated[Path, typer.Argument(metavar="[DEST]", help="The results folder here.")] = RESULTS,
    sweep: Annotated[
        list[str] | None, typer.Option("--sweep", metavar="NAME", help="Only this sweep. May be repeated.")
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="RUN", help="Only runs that fit: a prefix of an id, or algorithm=mappo."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="KINDS", help=f"Only these files of runs: {_SHOWN_KINDS}.")
    ] = None,
    latest_checkpoint: Annotated[
        bool, typer.Option("--latest-checkpoint", help="Of checkpoints only each run's most advanced.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read again what finished runs have here; fetch what is damaged.")
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            min=1,
            max=_LONGEST_WATCH,
            metavar="SECONDS",
            help="Again and again, while jobs there go on.",
            callback=amount("seconds", "--watch 60"),
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would come, and how many bytes; write nothing.")
    ] = False,
    prune_remote: Annotated[
        bool,
        typer.Option("--prune-remote", help="Then delete there what finished runs have here, checked anew."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    wandb: Annotated[
        bool, typer.Option("--wandb", help="Then upload what W&B logged offline and is not up yet.")
    ] = False,
) -> None:
    """Fetch new results, each checked against its checksums.

    A transfer that was cut goes on where it stopped. A finished run appears
    here only when each of its files matches its result.

    [bold]Examples[/bold]

      orchestrate sync me@cluster.example.org:project/results
      orchestrate sync my-sky-cluster --watch 60
      orchestrate sync gpu --sweep speed --only metrics,logs
      orchestrate sync
      orchestrate sync --wandb
      orchestrate sync --wandb other-results
    """
    from orchestrator.sync.request import SyncOptions, kinds
    from orchestrator.ui.cli.results.upload import upload

    if dest.is_symlink() or dest.exists():
        _check_folder(dest)
    options = SyncOptions(
        tuple(sweep or ()),
        tuple(run or ()),
        kinds(only) if only is not None else None,
        latest_checkpoint,
        verify,
    )
    if source is None:
        here_only = (
            wandb or dry_run or prune_remote or watch is not None or options != SyncOptions(options.sweeps)
        )
        if not here_only and (whole := _exchange(dest, options.sweeps)) is not None:
            raise typer.Exit(0 if whole else 1)
        if not wandb or prune_remote or watch is not None:
            raise NotFoundError("no SOURCE is given to bring results from", hint=_NO_SOURCE)
        raise typer.Exit(0 if upload(dest, options.sweeps, options.runs, dry_run=dry_run) else 1)
    if wandb and source is not None and dest == RESULTS and _is_folder_here(source, dest):
        if prune_remote or watch is not None:
            raise OrchestrateError(
                f"{source}: a folder of this machine, whose W&B runs are uploaded; found --prune-remote or "
                "--watch, which need a SOURCE elsewhere",
                hint=f"without them: orchestrate sync --wandb {source}",
            )
        raise typer.Exit(0 if upload(Path(source), options.sweeps, options.runs, dry_run=dry_run) else 1)
    if watch is not None and not dry_run:
        whole = _watch(source, dest, options, watch)
    else:
        whole = _is_whole(_once(_found(source, dest), dest, options, dry_run))
    if wandb and (dest.exists() or not dry_run):
        whole = upload(dest, options.sweeps, options.runs, dry_run=dry_run) and whole
    if prune_remote and not dry_run:
        _prune(_found(source, dest), dest, options, yes)
    raise typer.Exit(0 if whole else 1)


def _found(source: str, dest: Path) -> Source:
    from orchestrator.sync.source import find_source
    from orchestrator.ui.terminal.working import working

    with working(f"looking for {source}"):
        return find_source(source, dest)


def _exchange(results: Path, names: Iterable[str]) -> bool | None:
    """Fetch from the instances and clusters of the sweeps here; whether all came, or ``None`` without any."""
    from orchestrator.control.fleet import exchange, is_open
    from orchestrator.ui.terminal.working import working

    sweep_dirs = [sweep_dir for sweep_dir in chosen(results, names) if is_open(sweep_dir)]
    whole = []
    for sweep_dir in sweep_dirs:
        with working(f"{sweep_dir.name}: fetching from its instances and clusters") as above:
            whole.append(exchange(sweep_dir, above(typer.echo)))
    return all(whole) if sweep_dirs else None


def _is_folder_here(source: str, dest: Path) -> bool:
    """Whether a source is a folder of this machine and not a host."""
    from orchestrator.rundir import sweeps

    if ":" not in source and dest.is_dir() and Path(source).resolve() == dest.resolve():
        return True
    return "/" not in source and ":" not in source and bool(sweeps(Path(source)))


def _check_folder(dest: Path) -> None:
    if not dest.is_dir():
        kind = "a file" if dest.exists() else "a link that leads nowhere"
        raise OrchestrateError(
            f"{dest}: found {kind}, expected a folder for results",
            hint="name another one: orchestrate sync SOURCE DEST",
        )


def _once(source: Source, dest: Path, options: SyncOptions, dry_run: bool) -> list[SyncReport]:
    from orchestrator.sync.sync import sync
    from orchestrator.ui.cli.results.sync_progress import SyncScreen, report

    with SyncScreen(quiet=dry_run) as screen:
        brought = sync(source, dest, options, screen, dry=dry_run)
    for fetched in brought:
        report(fetched, dry_run)
    if (lack := next((fetched.lack for fetched in brought if fetched.lack is not None), None)) is not None:
        raise lack
    fitting = {selector for fetched in brought for selector in fetched.fitting}
    if strange := [selector for selector in options.runs if selector not in fitting]:
        sweeps = ", ".join(fetched.sweep for fetched in brought)
        raise NotFoundError(f"no run of {sweeps} there fits --run {strange[0]!r}", hint=_HOW_TO_SELECT)
    return brought


def _is_whole(brought: Iterable[SyncReport]) -> bool:
    return not any(fetched.problems for fetched in brought)


def _watch(source: str, dest: Path, options: SyncOptions, seconds: float) -> bool:
    """Fetch again and again until no run is active there; whether all of it is whole.

    A lost connection is retried.
    """
    from orchestrator.control.fleet import works

    place, unknown_since = None, None
    while True:
        try:
            place = place or _found(source, dest)
            brought = _once(place, dest, options, dry_run=False)
            if unknown_since is not None:
                typer.echo("the connection is back", err=True)
            unknown_since = None
            if not works(place, dest, [fetched.sweep for fetched in brought]):
                return _is_whole(brought)
        except UnreachableError as error:
            if unknown_since is None:
                unknown_since = time.strftime("%H:%M")
                typer.echo(f"unknown since {unknown_since}: {error}; trying again", err=True)
        time.sleep(seconds)


def _prune(source: Source, dest: Path, options: SyncOptions, yes: bool) -> None:
    from orchestrator.core.formatting import amount
    from orchestrator.sync.prune import Dispensable, prune

    def agreed(dispensable: Dispensable) -> bool:
        files, runs = count(dispensable.count, "file"), count(len(dispensable.files), "finished run")
        what = f"{files} ({amount(dispensable.size)}) of {runs}"
        where = printable(f"{source.text}/{dispensable.sync.listed.name}")
        return yes or typer.confirm(f"delete {what} in {where}? They are here, checked just now")

    done = prune(source, dest, options, agreed)
    for pruned in done:
        typer.echo(
            f"{pruned.sync.listed.name}: deleted {count(pruned.count, 'file')}, {amount(pruned.size)}, there"
        )
    if not done:
        typer.echo("nothing was deleted there")

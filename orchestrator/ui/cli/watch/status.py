from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.core.errors import OrchestrateError
from orchestrator.ui.cli.common import RESULTS, Json, Results, chosen, print_json

if TYPE_CHECKING:
    from orchestrator.rundir import SweepDir
    from orchestrator.status.survey import Survey

_REFRESH_S = 1.0
_ROWS = 100
# What takes longer is waited for, with what is on disk on the screen.
_AT_ONCE_S = 1.2


def status(
    sweep: Annotated[str | None, typer.Argument(metavar="SWEEP", help="All sweeps if left away.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep it on screen until all is over.")
    ] = False,
    exchange: Annotated[
        bool,
        typer.Option("--exchange", help="First fetch results from instances and clusters, end instances."),
    ] = False,
    why: Annotated[
        str | None,
        typer.Option(
            "--why", metavar="RUN", help="Explain a run's state, with the changes that made it stale."
        ),
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Show the state of every run, from journals alone: quick also for 10,000 runs.

    Looking changes nothing. Instances of a cloud that are up, and so cost
    money, are named. With --exchange, results that they and clusters behind
    ssh have are fetched, and instances that are done are ended.

    [bold]Examples[/bold]

      orchestrate status
      orchestrate status speed --watch
      orchestrate status speed --exchange
      orchestrate status speed --json
      orchestrate status speed --why 3fa9c1d2
    """
    from orchestrator.control.fleet import exchange as exchange_all

    if why is not None:
        given = {"--watch": watch, "--exchange": exchange, "--json": as_json}
        if others := [name for name, is_given in given.items() if is_given]:
            raise OrchestrateError(
                f"found --why with {', '.join(others)}: --why explains one run, in text",
                hint=f"leave {', '.join(others)} out",
            )
        _explain(chosen(results, [sweep] if sweep else []), sweep, why)
        return
    sweep_dirs = chosen(results, [sweep] if sweep else [])
    if exchange and (as_json or not watch):
        for sweep_dir in sweep_dirs:
            exchange_all(sweep_dir, partial(typer.echo, err=as_json))
    if as_json:
        print_json([_as_json(sweep_dir, _look(sweep_dir)) for sweep_dir in sweep_dirs])
        return
    if not sweep_dirs:
        typer.echo(f"no sweep in {results}/ yet; begin with: orchestrate sweep --grid GRID")
        return
    if watch:
        _watch(sweep_dirs, exchange)
        return
    _print(sweep_dirs, detailed=sweep is not None)


def _explain(sweep_dirs: list[SweepDir], sweep: str | None, run: str) -> None:
    from orchestrator.ui.cli.watch.why import why_lines

    if sweep is None:
        raise OrchestrateError(
            "--why needs the run's sweep", hint=f"as in: orchestrate status SWEEP --why {run}"
        )
    for line in why_lines(sweep_dirs[0], run):
        typer.echo(line)


def _look(sweep_dir: SweepDir, meanwhile: Callable[[Survey], None] | None = None) -> Survey:
    """The sweep's state. Where answers take long, ``meanwhile`` is given what is on disk."""
    from orchestrator.control.fleet import present

    if meanwhile is None:
        return present(sweep_dir)
    answer: Future[Survey] = Future()

    def ask() -> None:
        try:
            answer.set_result(present(sweep_dir))
        except BaseException as error:  # it is the caller's, who waits for it
            answer.set_exception(error)

    # Ctrl-C is to end the command, whatever the answer waits for.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(timeout=_AT_ONCE_S)
    except TimeoutError:
        if not answer.done():
            from orchestrator.control.poll import poll_sweep

            meanwhile(poll_sweep(sweep_dir, ask=False))
        return answer.result()


def _print(sweep_dirs: list[SweepDir], detailed: bool) -> None:
    from orchestrator.control.cloud.instance_costs import costs
    from orchestrator.ui.cli.watch import sweep_table
    from orchestrator.ui.terminal.screen import say, show

    def on_disk(seen: Survey) -> None:
        say(f"{sweep_dir.name}: on disk, until all have answered:", style="yellow")
        show(sweep_table.sweep_view(sweep_dir.name, seen, limit=sweep_table.ROWS))

    for sweep_dir in sweep_dirs:
        seen = _look(sweep_dir, on_disk)
        notes = [] if detailed else list(seen.remarks)
        if detailed:
            show(sweep_table.sweep_view(sweep_dir.name, seen, limit=_ROWS))
        else:
            stale = sweep_table.stale_line(sweep_dir.name, seen)
            show(sweep_table.sweep_line(sweep_dir.name, seen), *([stale] if stale else []))
        for line in filter(None, (*notes, _as_of(sweep_dir), *costs(sweep_dir))):
            say(line, style="yellow")


def _watch(sweep_dirs: list[SweepDir], exchange: bool) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from orchestrator.control.cloud.cloud_instances import sent_jobs
    from orchestrator.control.cloud.exchange import exchange_with_instances
    from orchestrator.control.cloud.instance_costs import costs
    from orchestrator.control.fleet import End, fetch_from_trees
    from orchestrator.ui.cli.watch import sweep_table
    from orchestrator.ui.terminal.screen import console, show

    screen = console()
    # Elsewhere than on a terminal the last state is printed, in lines as long as they are.
    with Live(console=screen, auto_refresh=False, transient=not screen.is_terminal) as live:

        def redraw(sweep_dir: SweepDir, seen: Survey) -> None:
            live.update(sweep_table.sweep_view(sweep_dir.name, seen, sweep_table.ROWS), refresh=True)

        tell = partial(live.console.print, markup=False, highlight=False)
        first, end = True, End()
        while True:
            for sweep_dir in sweep_dirs if exchange else ():
                exchange_with_instances(sweep_dir, tell)
            seen = [(one.name, _look(one, partial(redraw, one) if first else None)) for one in sweep_dirs]
            first = False
            views = [sweep_table.sweep_view(name, survey, sweep_table.ROWS) for name, survey in seen]
            up = [Text(line, style="yellow") for sweep_dir in sweep_dirs for line in costs(sweep_dir)]
            live.update(Group(*views, *up), refresh=True)
            if end.reached(*(survey for _, survey in seen)) and not (
                exchange and any(map(sent_jobs, sweep_dirs))
            ):
                break
            time.sleep(_REFRESH_S)
        for sweep_dir in sweep_dirs if exchange else ():
            fetch_from_trees(sweep_dir, tell)
    if not screen.is_terminal:
        show(Group(*views, *up))


def _as_of(sweep_dir: SweepDir) -> str:
    """Of what a copy is one, and since when; empty for a sweep of this tree's own."""
    from orchestrator.core.formatting import moment, printable
    from orchestrator.rundir.copy_origin import read_copy

    if read_copy(sweep_dir.path) is None:
        return ""
    copies = filter(None, (read_copy(copy.path) for copy in (sweep_dir, *sweep_dir.copies())))
    now = time.time()
    origins = (
        f"as of {moment(copy.time, now) or 'an unfinished sync'} from {printable(copy.source)}"
        for copy in copies
    )
    return f"{sweep_dir.name}: {'; '.join(origins)}"


def _as_json(sweep_dir: SweepDir, seen: Survey) -> dict[str, object]:
    from orchestrator.control.cloud.instance_costs import instance_costs
    from orchestrator.rundir.copy_origin import read_copy
    from orchestrator.status.cost import job_facts

    counts = {state.value: count for state, count in seen.counts().items()}
    copy = read_copy(sweep_dir.path)
    about = {} if copy is None else {"copy_of": copy.source, "as_of": copy.time}
    up = {"instances": [one.as_dict() for one in found]} if (found := instance_costs(sweep_dir)) else {}
    notes = {"notes": list(seen.remarks)} if seen.remarks else {}
    return {
        "sweep": sweep_dir.name,
        **about,
        "counts": counts,
        "runs": [*map(seen.record, seen.rows)],
        "jobs": job_facts(seen),
        **notes,
        **up,
    }

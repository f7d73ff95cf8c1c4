from __future__ import annotations

import signal
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.ui.cli.common import RESULTS, Json, Results, print_json

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from orchestrator.ui.monitor import ConnectionState, Monitor, MonitoredRun, MonitorSnapshot
    from orchestrator.ui.monitor.wording import Level

_REFRESH_S = 0.5
# Below this width a run has fewer columns.
_WIDE = 110
_LEAST_ROWS, _MOST_SWEEPS, _MOST_REASONS, _MOST_GPUS = 3, 4, 3, 8
# Lines of `--once`, and columns without a terminal.
_LINES, _COLUMNS = 40, 160


def monitor(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="local, a profile, user@host:path, or an alias that ssh knows."
        ),
    ] = "local",
    once: Annotated[bool, typer.Option("--once", help="Print one look and leave.")] = False,
    tensorboard: Annotated[
        bool, typer.Option(help="Show where TensorBoard is reached; start one there if there is none.")
    ] = True,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Watch a machine and the runs on it, here or behind ssh; Ctrl-C ends it.

    [bold]Examples[/bold]

      orchestrate monitor local
      orchestrate monitor marvin
      orchestrate monitor me@login.example.org:scratch/results --once
    """
    from orchestrator.config.locations import parse_place
    from orchestrator.ui.monitor import Monitor

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    once = once or as_json
    with Monitor(parse_place(target), results, tensorboard=tensorboard and not once) as watching:
        if as_json:
            print_json(_as_json(watching.seen()))
        elif once:
            console = _console()
            console.print(screen(target, watching.seen(), _LINES, console.width))
        else:
            try:
                _follow(target, watching)
            except KeyboardInterrupt:
                pass


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_COLUMNS)


def _follow(target: str, watching: Monitor) -> None:
    from rich.live import Live

    console = _console()
    if not console.is_terminal:
        _follow_in_lines(target, watching)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            view = screen(target, watching.seen(), console.height - 1, console.width)
            live.update(view, refresh=True)
            time.sleep(_REFRESH_S)


def _follow_in_lines(target: str, watching: Monitor) -> None:
    """Print a line at each change, for a log."""
    from orchestrator.ui.monitor import wording

    told: dict[str, str] = {}
    while True:
        seen = watching.seen()
        assert seen.snapshot is not None
        link = f"{wording.link_line(seen, time.time())[0]}: {seen.problem}" if seen.problem else "answers"
        now = {target: link}
        if seen.snapshot.board is not None:
            now["TensorBoard"] = wording.board_line(seen.snapshot.board, seen.url)[0]
        for sweep in seen.snapshot.sweeps:
            now[sweep.name] = "  ".join(f"{count} {state.value}" for state, count in sweep.counts.items())
        for name, line in now.items():
            if told.get(name) != line:
                typer.echo(f"{time.strftime('%H:%M:%S')}  {name}  {line}")
        told = now
        time.sleep(_REFRESH_S)


def screen(target: str, seen: ConnectionState, height: int, width: int) -> Group:
    """Draw the whole page in a number of lines and columns."""
    from rich.console import Group
    from rich.styled import Styled
    from rich.text import Text

    from orchestrator.ui.monitor import wording

    snapshot = seen.snapshot
    assert snapshot is not None
    link, level = wording.link_line(seen, time.time())
    title = Text.assemble(
        (target, "bold"), "  ", (link, level.value), (f"  {snapshot.host}:{snapshot.tree}", "dim")
    )
    head, sweeps = _head(snapshot, seen), _sweep_lines(snapshot)
    reasons = [Text(line, style="red") for line in wording.failures(snapshot.runs)[:_MOST_REASONS]]
    for line in (title, *sweeps, *reasons):
        line.no_wrap, line.overflow = True, "ellipsis"
    parts: list[Any] = [title, head, Text(), *sweeps]
    used = len(parts) + head.row_count + len(reasons)
    rows = snapshot.runs[: max(_LEAST_ROWS, height - used)]
    if rows:
        old = "dim" if seen.problem is not None else ""
        parts.append(Styled(_runs(rows, snapshot, wide=width >= _WIDE), old))
    return Group(*parts, *reasons)


def _sweep_lines(snapshot: MonitorSnapshot) -> list[Text]:
    from rich.text import Text

    from orchestrator.ui.monitor import wording

    sweeps = wording.in_order(snapshot.sweeps)
    lines = [
        Text.assemble((sweep.name, "bold"), "  ", wording.sweep_line(sweep))
        for sweep in sweeps[:_MOST_SWEEPS]
    ]
    if len(sweeps) > _MOST_SWEEPS:
        lines.append(Text(f"… and {len(sweeps) - _MOST_SWEEPS} sweeps more", style="dim"))
    return lines or [Text("no sweep here yet", style="dim")]


def _head(snapshot: MonitorSnapshot, seen: ConnectionState) -> Table:
    """The machine's facts, one per line."""
    from rich.table import Table
    from rich.text import Text

    from orchestrator.ui.monitor import wording

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=len("TensorBoard"))
    table.add_column(no_wrap=True, overflow="ellipsis")

    def add(name: str, line: str, level: Level = wording.Level.FINE) -> None:
        table.add_row(Text(name), Text(line, style=level.value))

    if seen.problem is not None:
        add("link", str(seen.problem), wording.Level.CLOSE)
    elif snapshot.board is not None:
        add("TensorBoard", *wording.board_line(snapshot.board, seen.url))
    add("machine", wording.machine_line(snapshot.machine))
    if (warning := wording.elsewhere(snapshot)) is not None:
        add("", warning, wording.Level.CLOSE)
    for gpu in snapshot.machine.gpus[:_MOST_GPUS]:
        add(f"gpu {gpu.index}", wording.gpu_line(gpu))
    if len(snapshot.machine.gpus) > _MOST_GPUS:
        add("", f"… and {len(snapshot.machine.gpus) - _MOST_GPUS} GPUs more")
    add("disk", *wording.disk_line(snapshot.machine.disk))
    return table


def _runs(runs: tuple[MonitoredRun, ...], snapshot: MonitorSnapshot, *, wide: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from orchestrator.core.formatting import duration, number
    from orchestrator.ui.monitor import wording
    from orchestrator.ui.terminal.screen import STYLES

    several = len({run.sweep for run in runs}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("")  # the column that shrinks first
    table.add_column("state", no_wrap=True)
    for column in ("frames", "e2e fps", "ETA", *(("return",) if wide else ()), "checkpoint"):
        table.add_column(column, justify="right", no_wrap=True)
    if wide:
        table.add_column("memory", justify="right", no_wrap=True)
        table.add_column("machine", no_wrap=True)
    for run in runs:
        label = f"{run.sweep} {run.label}" if several else run.label
        memory = f"{run.memory_mb:,.0f} MiB" if run.memory_mb is not None else ""
        table.add_row(
            Text(run.run_id[:8], style="dim"),
            Text(label, no_wrap=True, overflow="ellipsis"),
            Text(run.state.value, style=STYLES[run.state]),
            wording.frames(run, short=not wide),
            number(run.end_to_end_fps),
            duration(run.eta),
            *((number(run.value),) if wide else ()),
            wording.checkpoint(run, snapshot.time, short=not wide),
            *((memory, escape(run.host)) if wide else ()),
        )
    return table


def _as_json(seen: ConnectionState) -> dict[str, Any]:
    snapshot = asdict(seen.snapshot) if seen.snapshot is not None else {}
    for sweep in snapshot.get("sweeps", ()):
        sweep["counts"] = {state.value: count for state, count in sweep["counts"].items()}
    for run in snapshot.get("runs", ()):
        run["state"] = run["state"].value
    return snapshot

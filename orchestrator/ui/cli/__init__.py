"""The command line `orchestrate`: one file per command or pair of commands; they parse and print only."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from orchestrator.core import environment
from orchestrator.core.errors import ChecksFailedError, OrchestrateError
from orchestrator.ui.cli.common import print_error, print_problems, print_warnings
from orchestrator.ui.cli.help_page import ProgramGroup
from orchestrator.ui.cli.results import clean, collect, compare, evaluate, figures, report, sync, verify
from orchestrator.ui.cli.setup import doctor, init, profiles, schema
from orchestrator.ui.cli.submit import accept, audit, cancel_retry, check, delegated, estimate, sweep
from orchestrator.ui.cli.watch import logs, monitor, status, top
from orchestrator.ui.terminal.output import protect_streams

# Set by a shell that completes a word; typer makes it of the program's name.
_COMPLETE = "_ORCHESTRATE_COMPLETE"
_STYLE: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

app = typer.Typer(
    cls=ProgramGroup,
    help="Turn a benchmark matrix into trained runs that survive being killed, and those into a report.",
    epilog="Begin with:  orchestrate init",
    no_args_is_help=True,
    **_STYLE,
)
app.command("init")(init.init)
app.command("check")(check.check)
app.command("audit")(audit.audit)
app.command("estimate")(estimate.estimate)
app.command("sweep")(sweep.sweep)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("monitor")(monitor.monitor)
app.command("logs")(logs.logs)
app.command("sync")(sync.sync)
app.command("cancel")(cancel_retry.cancel)
app.command("retry")(cancel_retry.retry)
app.command("accept")(accept.accept)
app.command("evaluate")(evaluate.evaluate)
app.command("collect")(collect.collect)
app.command("report")(report.report)
app.command("figures")(figures.figures)
app.command("compare")(compare.compare)
app.command("verify")(verify.verify)
app.command("clean")(clean.clean)
app.command("profiles")(profiles.profiles)
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
app.command("release", hidden=True)(delegated.release)
app.command("stop", hidden=True)(delegated.stop)


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if show:
        from orchestrator import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """The console script `orchestrate`."""
    program = typer.main.get_command(app)
    if _COMPLETE in os.environ:
        from orchestrator.ui.cli import completion

        completion.prepare(program)
    _run(program)


def sync_results() -> None:
    """The console script `sync-results`: the command `orchestrate sync`."""
    alone = typer.Typer(add_completion=False, **_STYLE)
    alone.command()(sync.sync)
    _run(alone)


def _run(program: Callable[[], Any]) -> None:
    """Run a program; print an error as one line and the next command, never as a traceback."""
    protect_streams()
    # A search for garbage visits all objects in use: of a large sweep there are millions.
    gc.set_threshold(100_000, 50, 100)
    warnings.showwarning = lambda message, *_: print_warnings([message])
    try:
        environment.require_usable()
        program()
    except ChecksFailedError as error:
        print_problems(error.problems)
        sys.exit(error.exit_code)
    except OrchestrateError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes the rest at exit
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:  # a file where a folder should be, a full disk under the output, …
        about = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {about}{error.strerror or error}", err=True)
        _print_denial(error)
        sys.exit(3)


def _print_denial(error: OSError) -> None:
    """Name the permission that is missing, and the command that grants it."""
    if isinstance(error, PermissionError) and isinstance(error.filename, str):
        from orchestrator.core.machine.permissions import denial

        if denied := denial(Path(error.filename)):
            typer.echo(f"  {denied.reason}\n  {denied.hint}", err=True)


if __name__ == "__main__":
    main()

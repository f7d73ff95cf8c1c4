"""`orchestrate`: the library decides, these files print. One file per command or pair of commands."""

from __future__ import annotations

import signal
import sys

import typer

from orchestrator.cli import check, collect, decide, logs, report, status, sweep
from orchestrator.errors import OrchestrateError

app = typer.Typer(
    help="Turn a benchmark matrix into trained runs that survive being killed, and those into a report.",
    epilog="Begin with:  orchestrate sweep --grid sweeps/speed.yaml",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check.check)
app.command("sweep")(sweep.sweep)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("cancel")(decide.cancel)
app.command("retry")(decide.retry)
app.command("collect")(collect.collect)
app.command("report")(report.report)


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if show:
        from orchestrator import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """The console script. A user's mistake ends in one line and the next command, never in a traceback."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the program, as it ends others
    try:
        app()
    except OrchestrateError as error:
        typer.echo(f"error: {error}", err=True)
        if error.hint:
            typer.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a file where a folder should be, a full disk under the output, …
        about = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {about}{error.strerror or error}", err=True)
        sys.exit(3)


if __name__ == "__main__":
    main()

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.ui.cli.common import RESULTS, Json, Results, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.ui.doctor import Finding

# The longest verdict and the longest name, and a gap after each.
_VERDICT, _NAME = 10, 18
_FIX = "fix: "


def doctor(
    on: Annotated[
        str | None, typer.Option("--on", metavar="PROFILE", help="Check this profile against its cluster.")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Check this machine and its cluster; each line is ok or names the fix.

    Submits nothing and leaves nothing behind. The exit code is 3 if there is
    a problem; a warning is none.

    [bold]Examples[/bold]

      orchestrate doctor
      orchestrate doctor --on gpu
    """
    from orchestrator.config.profiles import find_profile
    from orchestrator.ui.doctor import Verdict, diagnose
    from orchestrator.ui.terminal.screen import console
    from orchestrator.ui.terminal.working import working

    profile = find_profile(on) if on is not None else None
    screen, findings = console(), []
    with working("checking this machine") as above:
        show = above(partial(_print, screen=screen))
        for finding in diagnose(results, profile):
            findings.append(finding)
            if not as_json:
                show(finding)
    problems = sum(finding.verdict is Verdict.PROBLEM for finding in findings)
    if as_json:
        print_json({"findings": [finding.to_json() for finding in findings], "problems": problems})
    if problems:
        raise typer.Exit(3)


def _print(finding: Finding, screen: Console) -> None:
    from rich.text import Text

    from orchestrator.ui.doctor import Verdict

    style = {
        Verdict.OK: "green",
        Verdict.WARNING: "yellow",
        Verdict.PROBLEM: "bold red",
        Verdict.NOT_HERE: "dim",
    }[finding.verdict]
    # A terminal gets lines that fit; a pipe gets whole ones.
    width = max(screen.width, 60) if screen.is_terminal else 10_000
    text = Text()
    text.append(f"{finding.verdict.value:<{_VERDICT}}", style)
    text.append(f"{finding.name:<{_NAME}}", "bold" if finding.verdict is not Verdict.NOT_HERE else "")
    text.append(_wrapped(finding.found, width, _VERDICT + _NAME))
    if finding.fix is not None:
        text.append(f"\n{'':<{_VERDICT}}")
        text.append(f"{_FIX}{_wrapped(finding.fix, width, _VERDICT + len(_FIX))}")
    screen.print(text, soft_wrap=True)


def _wrapped(text: str, width: int, margin: int) -> str:
    """Wrap text with a margin after the first line; paths and commands stay on one line."""
    lines = textwrap.wrap(text, width - margin, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * margin}".join(lines)

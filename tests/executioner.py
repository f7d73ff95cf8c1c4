"""Kills its own process before or after a chosen one of its writes and submissions.

As a program: ``python -m tests.executioner NUMBER sweep --grid GRID …`` is `orchestrate`, dead after so many.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.rundir import descriptions, index, run, sweep
from orchestrator.rundir.copies import adoption, prefix
from orchestrator.rundir.records import journal


class Executioner:
    """Counts the writes of this process and kills it before or after one of them."""

    def __init__(self, number: int, moment: str) -> None:
        self.number, self.moment, self.names = number, moment, list[str]()

    def watch(self, function: Callable[..., Any], name: Callable[[Any], str | None]) -> Callable[..., Any]:
        """The function, its calls counted; those that ``name`` (given the arguments) calls None are not."""

        def watched(*arguments: Any, **options: Any) -> Any:
            called = name(arguments)
            if called is None:
                return function(*arguments, **options)
            self.names.append(called)
            fatal = len(self.names) == self.number
            if fatal and self.moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = function(*arguments, **options)
            if fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return watched

    def watch_writes(self) -> None:
        for module in (sweep, index, descriptions, run, journal, prefix, adoption):
            for name in {"write_atomic", "write_exclusive"} & set(vars(module)):
                setattr(module, name, self.watch(getattr(module, name), what))


def what(arguments: tuple[Any, ...]) -> str:
    """The kind of file that is written."""
    path: Path = arguments[0]
    names = {"grids": "grid", "journals": "journal", "scripts": "script"}
    names |= {name: name for name in ("ledger", "descriptions")}
    return (
        names.get(path.parent.name)
        or {
            "index.tsv": "index",
            "run.json": "description",
            "prefix.json": "prefix",
            "adopted.json": "adoption",
        }[path.name]
    )


def main() -> None:
    from orchestrator.ui.cli import main as orchestrate

    executioner = Executioner(int(sys.argv[1]), "after")
    executioner.watch_writes()
    subprocess.run = executioner.watch(  # type: ignore[assignment]
        subprocess.run, lambda arguments: "submission" if arguments[0][0] == "sbatch" else None
    )
    sys.argv[1:] = sys.argv[2:]
    orchestrate()


if __name__ == "__main__":
    main()

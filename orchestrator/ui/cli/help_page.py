"""The page of `orchestrate --help`: click's own, as typer's loads what takes longer than everything else.

Pages of single commands are typer's, with examples.
"""

from __future__ import annotations

from typing import Any

import click
from typer.core import TyperGroup


class ProgramGroup(TyperGroup):
    """The program as a group of commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; of an option that only other commands have, name these."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if having := [name for name in self.commands if error.option_name in self._option_names(name)]:
                error.message += (
                    f", an option of {' and '.join(f'`{ctx.info_name} {name}`' for name in having)}."
                )
                error.possibilities = None
            raise

    def _option_names(self, command: str) -> list[str]:
        return [name for option in self.commands[command].params for name in option.opts]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group.format_help(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first sentences of its help."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        helps = [(name, command.help or "") for name, command in commands if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, text.partition("\n\n")[0]) for name, text in helps])

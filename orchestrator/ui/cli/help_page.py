"""The page of `orchestrate --help`, drawn like typer's with a third of the imports.

typer's own page loads Markdown, tracebacks and syntax highlighting, which take longer than everything else.
Pages of single commands are typer's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class ProgramGroup(TyperGroup):
    """The program as a group of commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; of an option that only other commands have, name these."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if having := [name for name in self.commands if error.option_name in self._option_names(name)]:
                error.message += (
                    f", an option of {' and '.join(f'`{ctx.info_name} {one}`' for one in having)}."
                )
                error.possibilities = None
            raise

    def _option_names(self, command: str) -> list[str]:
        return [name for option in self.commands[command].params for name in option.opts]

    def format_help(self, ctx: click.Context, _formatter: click.HelpFormatter) -> None:
        from rich.console import Console
        from rich.padding import Padding
        from rich.text import Text

        console = Console(highlight=False, emoji=False)
        arguments = " ".join(self.collect_usage_pieces(ctx))
        usage = Text.assemble(("Usage:", "yellow"), f" {ctx.command_path} {arguments}", style="bold")
        console.print(Padding(usage, 1))
        console.print(Padding(Text(self.help or ""), (0, 1, 1, 1)))
        _print_panel(console, "Options", self._options(ctx))
        _print_panel(console, "Commands", self._commands(ctx))
        console.print(Padding(Text(self.epilog or ""), 1))

    def _options(self, ctx: click.Context) -> Table:
        table = _table("bold cyan", "bold green")
        for option in self.get_params(ctx):
            names = [name for name in option.opts if name.startswith("--")]
            short = [name for name in option.opts if not name.startswith("--")]
            table.add_row(" ".join(names), " ".join(short), getattr(option, "help", None) or "")
        return table

    def _commands(self, ctx: click.Context) -> Table:
        table = _table("bold cyan")
        for name in self.list_commands(ctx):
            command = self.commands[name]
            first, _, _ = (command.short_help or command.help or "").partition("\n\n")
            table.add_row(name, first.replace("\n", " "))
        return table


def _table(*styles: str) -> Table:
    """A table of columns in these styles, and a last one of text with the remaining width."""
    from rich.table import Table

    table = Table(box=None, show_header=False, expand=True, padding=(0, 1), pad_edge=False)
    for style in styles:
        table.add_column(style=style, no_wrap=True)
    table.add_column(ratio=10)
    return table


def _print_panel(console: Console, title: str, table: Table) -> None:
    from rich.panel import Panel

    console.print(Panel(table, title=title, title_align="left", border_style="dim"))

"""Dialogs over the list: a confirmation, a run's log, and the help."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from orchestrator.core.formatting import printable
from orchestrator.ui.top.refresher import Refresher
from orchestrator.ui.top.wording import error_line

HELP = """\
1 2 3 4, tab   runs, jobs, sweeps, failures
↑ ↓ j k        move; page up, page down, home, end
enter          a run's log; of a sweep or job, its runs
l              a run's log
c              cancel: the run, or what is left of the job or sweep
r              retry: the run, or what failed, was cancelled or is
               stale of the job or sweep
/              show only rows with all these words, as in: failed ippo
s  S           sort by the next column; the other way round
esc            all rows again
u              look now
x              exchange: fetch results, end instances that are done
q              leave; everything goes on without this screen

cost           what jobs have cost so far: their time and the price of
               their profile (price_per_hour). A + says that others
               have no price, a – that none has one.
unknown since  a backend does not answer about a job. Nothing is
               lost by that, and nothing is taken for a failure.
"""
# Escape sequences of terminals: colours, titles, and moves of the cursor.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class ConfirmDialog(ModalScreen[bool]):
    """A question with the answers y and n; other keys are ignored."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)"),
        Binding("n,escape,q", "answer(False)"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        keys = Text.assemble(("y", "bold reverse"), " yes   ", ("n", "bold reverse"), " no")
        yield Static(Text.assemble(self._question, "\n\n", keys), classes="box")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Help(ModalScreen[None]):
    """The meaning of keys and columns."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,escape,q,enter", "dismiss")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(HELP.rstrip(), markup=False)


class Printed(Message):
    """A log was read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Log(ModalScreen[None]):
    """The end of a run's log. It follows while its end is on the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,l,enter", "dismiss")]

    def __init__(self, title: str, read: Callable[[], str]) -> None:
        super().__init__()
        self._title = title
        self._read = read
        self._watch = Refresher(self._look, self._hand_over)
        self._shown: str | None = None

    def compose(self) -> ComposeResult:
        yield Static(
            Text(self._title, style="bold reverse", no_wrap=True, overflow="ellipsis"), classes="one"
        )
        with VerticalScroll():
            yield Static("reading …", id="log", markup=False)
        yield Static(" ↑ ↓ page up, page down, home, end   esc back", classes="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self._watch.start()

    def on_unmount(self) -> None:
        self._watch.stop()

    def _look(self) -> str:
        try:
            return self._read()
        except Exception as error:
            return error_line(error)

    def _hand_over(self, printed: str) -> None:
        """Post what was read, from the refreshing thread."""
        try:
            self.post_message(Printed(printed))
        except RuntimeError:
            pass  # the screen was left

    def on_printed(self, message: Printed) -> None:
        printed = message.text
        if printed == self._shown:
            return
        scroll = self.query_one(VerticalScroll)
        follows = self._shown is None or scroll.scroll_offset.y >= scroll.max_scroll_y
        self._shown = printed
        self.query_one("#log", Static).update(Text(readable(printed)))
        if follows:
            scroll.call_after_refresh(scroll.scroll_end, animate=False)


def readable(printed: str) -> str:
    """Return a program's output as text: of a line written over repeatedly, its last version."""
    lines = _ESCAPES.sub("", printed).split("\n")
    return "\n".join(printable(line.rstrip("\r").rpartition("\r")[2]) for line in lines)

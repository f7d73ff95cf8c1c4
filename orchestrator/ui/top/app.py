"""The screen of `orchestrate top`: draw the fleet's state, and act on keys."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input, Static

from orchestrator.core.formatting import printable
from orchestrator.core.types import RunState
from orchestrator.rundir import SweepDir
from orchestrator.ui.top.columns import RUNS, VIEWS
from orchestrator.ui.top.dialogs import ConfirmDialog, Help, Log
from orchestrator.ui.top.fleet_access import FleetTree, next_state
from orchestrator.ui.top.model import FleetState, JobRow, RunRow
from orchestrator.ui.top.refresher import Refresher
from orchestrator.ui.top.table_widget import ListTable
from orchestrator.ui.top.views import Choice, about, chosen, runs_in
from orchestrator.ui.top.wording import error_line, fitting, name_of, nothing, question, totals, trouble

# States that a retry of a whole job or sweep includes.
_AGAIN = (RunState.FAILED, RunState.CANCELLED, RunState.STALE)
_KEYS = "enter log  c cancel  r retry  / filter  s sort  tab lists  ? help  q quit"
_CSS = """
Screen { layout: vertical; }
.two { height: 2; }
.one, .keys { height: 1; }
.trouble { color: ansi_red; text-style: bold; }
Input { display: none; margin: 0 1; }
ListTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
.keys { text-style: dim; dock: bottom; }
ConfirmDialog, Help { align: center middle; }
.box { border: round ansi_cyan; background: ansi_default; padding: 0 1; height: auto; max-height: 100%; }
ConfirmDialog .box { width: 60; padding: 1 2; }
Help .box { width: 76; scrollbar-size-vertical: 1; }
Log VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
"""

Act = Callable[[SweepDir, Sequence[str]], str]


class FleetRefreshed(Message):
    """A new state of the fleet."""

    def __init__(self, picture: FleetState) -> None:
        super().__init__()
        self.picture = picture


class ActionMessage(Message):
    """The result of an action, or its error."""

    def __init__(self, text: str, *, failed: bool = False) -> None:
        super().__init__()
        self.text, self.failed = text, failed


class Top(App[None]):
    """The whole fleet, live. ``clock`` gives seconds since the epoch."""

    ENABLE_COMMAND_PALETTE = False
    CSS = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(0)"),
        Binding("ctrl+c", "leave(130)", priority=True),
        Binding("question_mark", "help"),
        *(Binding(str(place + 1), f"view({place})") for place in range(len(VIEWS))),
        Binding("tab", "step(1)"),
        Binding("shift+tab", "step(-1)"),
        Binding("enter", "open"),
        Binding("l", "log"),
        Binding("c", "cancel"),
        Binding("r", "retry"),
        Binding("slash", "filter"),
        Binding("s", "sort"),
        Binding("S", "turn"),
        Binding("u", "look"),
        Binding("x", "exchange"),
        Binding("escape", "all"),
    ]

    def __init__(self, fleet: FleetTree, clock: Callable[[], float] = time.time) -> None:
        # The terminal's own colours, light or dark.
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._fleet, self._clock = fleet, clock
        self.picture = FleetState()
        self._watch = Refresher(self._look, lambda picture: self._hand_over(FleetRefreshed(picture)))
        self._acts: list[threading.Thread] = []
        self._view = RUNS
        self._totals, self._about = Static(classes="two", markup=False), Static(classes="two", markup=False)
        self._tabs = Static(classes="one", markup=False)
        self._trouble = Static(classes="one trouble", markup=False)
        self._table = ListTable(RUNS)
        self._field = Input(placeholder="words that rows must have", classes="one", compact=True)
        self._choices: dict[str, Choice] = {view.name: Choice() for view in VIEWS}

    def compose(self) -> ComposeResult:
        yield from (self._totals, self._trouble, self._tabs, self._table, self._about, self._field)
        yield Static(f" {_KEYS}", classes="keys", markup=False)

    def on_mount(self) -> None:
        if not self.is_headless:
            # Without handlers, a signal would leave the terminal unusable.
            loop = asyncio.get_running_loop()
            for number_ in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number_, self.action_leave, 128 + number_)
        self._table.focus()
        self._draw()
        self._watch.start()

    def on_unmount(self) -> None:
        self._watch.stop()

    # Refreshing

    def _look(self) -> FleetState:
        """Read the fleet, in the refreshing thread."""
        return next_state(
            self._fleet, self.picture, self._clock(), lambda picture: self._hand_over(FleetRefreshed(picture))
        )

    def _hand_over(self, message: Message) -> None:
        """Post a message from another thread."""
        try:
            self.post_message(message)
        except RuntimeError:
            pass  # the screen was left

    def on_fleet_refreshed(self, message: FleetRefreshed) -> None:
        self.picture = message.picture
        self._draw()

    def on_action_message(self, message: ActionMessage) -> None:
        text = printable(message.text)
        self.notify(text, severity="error" if message.failed else "information", timeout=8, markup=False)
        self._watch.now()

    # Drawing

    @property
    def _choice(self) -> Choice:
        return self._choices[self._view.name]

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        rows = chosen(self._view, self.picture, self._choice)
        self._table.show(self._view, self._choice, rows, self._clock())
        width, wrong = self.size.width, trouble(self.picture, self._clock())
        self._totals.update(totals(self.picture, width))
        self._trouble.update(fitting(wrong, width))
        self._trouble.display = bool(wrong)
        self._tabs.update(fitting(self._line_of_tabs(len(rows)), width))

    def _line_of_tabs(self, rows: int) -> Text:
        line = Text(" ")
        for place, view in enumerate(VIEWS, start=1):
            line.append(f"{place} {view.name}", style="bold reverse" if view is self._view else "dim")
            line.append("  ")
        choice = self._choice
        of = f" of {choice.sweep}" if choice.sweep else ""
        of += f" {printable(choice.runs_of.token)}" if choice.runs_of else ""
        words = f" with “{printable(choice.words)}”" if choice.words else ""
        return line.append(f"{rows:,} shown{of}{words}", style="bold" if choice.narrowed else "dim")

    def on_list_table_moved(self) -> None:
        row = self._table.row
        lines = about(row, self._clock()) if row else (nothing(self.picture, self._choice), "")
        what, how = (fitting(line, self.size.width) for line in lines)
        what.stylize("bold")
        self._about.update(Text("\n").join([what, how]))

    # Keys

    def action_leave(self, code: int) -> None:
        self._watch.stop()
        self.exit(return_code=code)

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_look(self) -> None:
        self._watch.now()

    def action_view(self, place: int) -> None:
        self._view = VIEWS[place]
        self._draw()

    def action_step(self, by: int) -> None:
        self.action_view((VIEWS.index(self._view) + by) % len(VIEWS))

    def action_sort(self) -> None:
        self._choose(self._choice.sorted_by_next(self._view))

    def action_turn(self) -> None:
        self._choose(replace(self._choice, backwards=not self._choice.backwards))

    def action_all(self) -> None:
        self._field.display = False
        self._table.focus()
        self._choose(replace(self._choice, words="", sweep=None, runs_of=None))

    def _choose(self, choice: Choice) -> None:
        self._choices[self._view.name] = choice
        self._draw()

    def action_filter(self) -> None:
        self._field.value = self._choice.words
        self._field.display = True
        self._field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choose(replace(self._choice, words=event.value))

    def on_input_submitted(self) -> None:
        self._field.display = False
        self._table.focus()

    def action_open(self) -> None:
        row = self._table.row
        if isinstance(row, RunRow):
            self.action_log()
        elif row is not None:
            self._view = RUNS
            runs_of = row if isinstance(row, JobRow) else None
            self._choose(Choice(sweep=row.sweep if isinstance(row, JobRow) else row.name, runs_of=runs_of))

    def action_log(self) -> None:
        row = self._table.row
        if not isinstance(row, RunRow):
            self._tell("only runs have logs: enter shows the runs of this row")
        elif sight := self.picture.sight(row.sweep):
            read = partial(self._fleet.log, sight.sweep_dir, row.run_id)
            self.push_screen(Log(f" {row.sweep} {row.run_id}  {printable(row.label)} ", read))

    def action_cancel(self) -> None:
        self._ask(
            "cancel", self._fleet.cancel, lambda run: not run.status.state.final, "nothing left to cancel"
        )

    def action_exchange(self) -> None:
        row = self._table.row
        name = row.sweep if isinstance(row, RunRow | JobRow) else row.name if row else ""
        if sight := self.picture.sight(name):
            self._tell(f"exchange: asking the instances and clusters of {name} …")
            self._do("exchange", partial(self._fleet.exchange, sight.sweep_dir))

    def action_retry(self) -> None:
        alone = isinstance(self._table.row, RunRow)
        self._ask(
            "retry",
            self._fleet.retry,
            lambda run: run.status.state.final if alone else run.status.state in _AGAIN,
            "it has not ended: nothing to retry" if alone else "nothing to retry",
        )

    def _ask(self, what: str, do: Act, concerns: Callable[[RunRow], bool], otherwise: str) -> None:
        """Ask to confirm the action on the runs of the current row, and perform it."""
        row = self._table.row
        if row is None:
            return
        runs = [run for run in runs_in(row, self.picture) if concerns(run)]
        if not runs:
            self._tell(f"{otherwise} ({name_of(row)})")
            return

        sight = self.picture.sight(runs[0].sweep)

        def answered(yes: bool | None) -> None:
            if yes and sight:
                self._tell(f"{what}: {len(runs)} of {sight.name} …")
                self._do(what, partial(do, sight.sweep_dir, [run.run_id for run in runs]))

        self.push_screen(ConfirmDialog(question(what, row, runs)), answered)

    def _do(self, what: str, do: Callable[[], str]) -> None:
        def work() -> None:
            try:
                self._hand_over(ActionMessage(do()))
            except Exception as error:
                self._hand_over(ActionMessage(f"{what}: {error_line(error)}", failed=True))

        act = threading.Thread(target=work, daemon=True)
        self._acts.append(act)
        act.start()

    @property
    def unfinished(self) -> list[threading.Thread]:
        """Actions under way, to wait for when the screen is left."""
        return [act for act in self._acts if act.is_alive()]

    def _tell(self, text: str) -> None:
        self.notify(text, markup=False, timeout=4)

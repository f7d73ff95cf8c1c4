"""A list of very many rows, of which only those on the screen are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from orchestrator.ui.terminal.table import shortened
from orchestrator.ui.top.label_fit import fitted
from orchestrator.ui.top.views import Choice, ListColumn, View, key_of, sweep_of

_GAP = " "
# Of a title in fewer cells nothing can be read.
_LEAST_TITLE = 8
_CURSOR = Style(reverse=True)
_PLAIN = Style()  # not None: the filter for NO_COLOR needs a style


class ListTable(ScrollView, can_focus=True):
    """The rows of a view under column titles. The row under the cursor is marked without colours, too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "edge(0)", show=False),
        Binding("end,G", "edge(-1)", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row, or the row under it has changed."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view, self._choice, self._now = view, Choice(), 0.0
        self._rows: Sequence[Any] = ()
        self._cursor = 0
        self._several = False
        self._fits: dict[tuple[str, int], tuple[str, dict[str, str]]] = {}

    @property
    def row(self) -> Any | None:
        """The row under the cursor."""
        return self._rows[self._cursor] if self._rows else None

    def show(self, view: View, choice: Choice, rows: Sequence[Any], now: float) -> None:
        """Replace the rows. The cursor stays on its row or, if that is gone, at its position."""
        before = key_of(self.row) if self.row is not None and view is self._view else None
        self._view, self._choice, self._rows, self._now = view, choice, rows, now
        self._fits = {}
        self._several = any(sweep_of(row) != sweep_of(rows[0]) for row in rows)
        at = next((at for at, row in enumerate(rows) if key_of(row) == before), None)
        cursor = at if at is not None else self._cursor if before else 0
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        self._to(cursor)

    def columns(self) -> list[tuple[ListColumn, int]]:
        """Return the columns that fit, with their widths."""
        wide = self.app.size.width
        shown = [
            column
            for column in self._view.columns
            if wide >= column.room and (self._several or not column.several)
        ]
        left = self.size.width - 1 - sum(column.width + 1 for column in shown)
        flexible = sum(not column.width for column in shown)
        return [(column, column.width or max(4, (left - flexible + 1) // flexible)) for column in shown]

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self._titles().adjust_cell_length(width, _PLAIN)
        at = y - 1 + self.scroll_offset.y
        if at >= len(self._rows):
            return Strip.blank(width, _PLAIN)
        here = at == self._cursor
        segments = [Segment("›" if here else " ", _CURSOR if here else _PLAIN)]
        for column, wide in self.columns():
            text, style = column.draw(self._rows[at], self._now)
            if column.fitted:
                text = self._fitted(column, wide)[1][text]
            segments.append(
                Segment(_fit(text, wide, column.right) + _GAP, _CURSOR if here else Style.parse(style))
            )
        return Strip(segments).adjust_cell_length(width, _CURSOR if here else _PLAIN)

    def _titles(self) -> Strip:
        chosen = None if self._choice.column is None else self._view.columns[self._choice.column]
        arrow = "▲" if self._choice.backwards else "▼"
        titles = [
            _fit(self._title(column, wide) + (arrow if column is chosen else ""), wide, column.right)
            for column, wide in self.columns()
        ]
        return Strip([Segment(f" {_GAP.join(titles)}", Style(bold=True, underline=True))])

    def _title(self, column: ListColumn, wide: int) -> str:
        if not column.fitted:
            return column.title
        shared = self._fitted(column, wide)[0] if wide >= _LEAST_TITLE else ""
        return column.title or shortened(shared, wide - 1)

    def _fitted(self, column: ListColumn, wide: int) -> tuple[str, dict[str, str]]:
        """Return what the column's texts share, and each of them in its width."""
        at = (column.title, wide)
        if at not in self._fits:
            self._fits[at] = fitted([column.draw(row, self._now)[0] for row in self._rows], wide)
        return self._fits[at]

    def action_move(self, by: int) -> None:
        self._to(self._cursor + by)

    def action_page(self, by: int) -> None:
        self._to(self._cursor + by * self._height)

    def action_edge(self, at: int) -> None:
        self._to(at % max(1, len(self._rows)))

    def on_click(self, event: Click) -> None:
        if event.y > 0:
            self._to(event.y - 1 + self.scroll_offset.y)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self._to(self._cursor)

    @property
    def _height(self) -> int:
        return max(1, self.size.height - 1)

    def _to(self, cursor: int) -> None:
        self._cursor = min(max(0, cursor), max(0, len(self._rows) - 1))
        top = self.scroll_offset.y
        top = min(max(top, self._cursor - self._height + 1), self._cursor)
        self.scroll_to(y=top, animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Moved())


def _fit(text: str, width: int, right: bool) -> str:
    """Pad or cut the text to a number of terminal cells; "…" marks a cut."""
    cells = cell_len(text)
    if cells > width:
        return set_cell_size(text, width - 1) + "…"
    space = " " * (width - cells)
    return space + text if right else text + space

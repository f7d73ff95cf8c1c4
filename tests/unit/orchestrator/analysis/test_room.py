"""Limit the size of a page: rows of tables and pictures that fit into 3 MB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.analysis.cells import Cell, Table, columns
from orchestrator.analysis.report import room
from orchestrator.analysis.report.blocks import Folded, Gallery, Section, Text
from orchestrator.analysis.report.drawing.plotting import Picture
from orchestrator.analysis.report.drawing.vector import Vector
from orchestrator.analysis.report.room import fitted
from orchestrator.analysis.report.sections.runs.provenance import grids
from orchestrator.rundir import SweepDir


def table(rows: int, letters: int, most: int = 300) -> Table:
    return Table("t", columns("a"), tuple((Cell("<" * letters),) for _ in range(rows)), most=most)


def drawn(name: str, size: int) -> Picture:
    found = Picture(name, "", "", "", lambda _: None)  # type: ignore[arg-type,return-value]
    svg = f'<?xml version="1.0"?>\n<svg viewBox="0 0 1 1"><text>{"x" * size}</text></svg>'
    found.__dict__["vector"] = Vector(svg, b"")
    return found


def sections(*blocks: Table | Gallery | Folded | Text) -> list[Section]:
    return [Section(f"s{at}", "", (block,)) for at, block in enumerate(blocks)]


def shown(found: Sequence[Section]) -> list[int]:
    return [len(block.shown) for section in found for block in section.blocks if isinstance(block, Table)]


def test_rows_that_fit_stay_and_the_longest_tables_give_way() -> None:
    """Angle brackets are four letters of a page."""
    found = sections(table(10, 100), table(300, 1000), table(300, 2000))
    small, long, longest = shown(fitted(found))
    assert small == 10
    assert 0 < longest < long < 300
    assert 4 * (10 * 100 + long * 1000 + longest * 2000) < room._TABLES
    assert 4 * (10 * 100 + (long + 2) * 1000 + (longest + 1) * 2000) > 0.9 * room._TABLES


def test_a_row_stays_even_if_it_is_too_long() -> None:
    assert shown(fitted(sections(table(5, 1_000_000)))) == [1]


def test_the_table_of_runs_has_a_room_of_its_own() -> None:
    found = fitted(sections(table(300, 4000), table(1000, 400, most=1000), table(20, 10)))
    assert [rows > 0 for rows in shown(found)] == [True, True, True]
    assert shown(found)[1] * 1600 > 0.9 * room._RUNS
    assert shown(found)[2] == 20


def test_what_fits_is_left_as_it_is() -> None:
    found = sections(table(3, 10), Gallery((drawn("a", 1000),)), Text("x"))
    assert list(fitted(found)) == found


def test_grids_of_many_sweeps_share_a_room(tmp_path: Path) -> None:
    sweeps = [SweepDir(tmp_path, f"s{number}") for number in range(100)]
    for sweep in sweeps:
        sweep.create()
        sweep.record_grid("base: " + "x" * 30_000)
    (alone,) = grids(sweeps[:1])
    several = list(grids(sweeps))
    assert 20_000 < len(alone.text) < 20_300
    assert sum(len(one.text) for one in several) < 100 * 300 + 200_000
    assert min(len(one.text) for one in several) > 2000
    assert f"{sweeps[9].latest_grid_path()} has 28,006 characters more" in several[9].text


def test_pictures_are_left_out_from_the_end_of_each_gallery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PAGE", room._FRAME + 5 * 10_500)
    many, few = (
        Gallery(tuple(drawn(f"{name}{at}", 10_000) for at in range(size)))
        for name, size in (("a", 9), ("b", 2))
    )
    found = fitted(sections(Folded("paper", (many,)), few))
    (folded,), (other,) = (section.blocks for section in found)
    assert isinstance(folded, Folded)
    assert folded.blocks == (replace(many, most=3),)
    assert other == few
    assert [one.name for one in folded.blocks[0].shown] == ["a0", "a1", "a2"]  # type: ignore[union-attr]

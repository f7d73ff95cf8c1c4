"""Figures as SVG and PDF: plain numbers at logarithmic axes, fonts that others have or that are inside."""

from __future__ import annotations

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from orchestrator.analysis.groups.curves import curves
from orchestrator.analysis.groups.grouping import groups
from orchestrator.analysis.groups.speeds import speeds
from orchestrator.analysis.report.drawing.plotting import BARS, LIGHT, from_zero_or_log, logarithmic, picture
from orchestrator.analysis.report.sections.costs.speed import speed_pictures
from orchestrator.analysis.report.sections.returns.final import final_pictures
from orchestrator.analysis.report.sections.returns.learning import learning_pictures
from tests.simulated import finals_of, simulated

TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")


def drawn(
    values: list[float], label: str = "frames/s", *, upright: bool = False
) -> tuple[list[str], str, bytes]:
    """The texts of a picture with values along one axis, its SVG and its PDF."""

    def draw(_: object) -> Figure:
        figure = Figure(figsize=(6, 3), layout="constrained")
        on = figure.subplots()
        on.plot(range(len(values)), values) if upright else on.plot(values, range(len(values)))
        (logarithmic if upright else from_zero_or_log)(on, values)
        on.set_xlabel(label)
        return figure

    made = picture("p", "P", draw, caption="", alt="p").vector
    return TEXT.findall(made.svg), made.svg, made.pdf


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("values", [[20.0, 400.0], [3.0, 70.0], [1.0, 90_000.0]])
def test_a_logarithmic_axis_has_several_plain_numbers(values: list[float], upright: bool) -> None:
    texts, _, _ = drawn(values, upright=upright)
    numbers = [text for text in texts if re.fullmatch(r"[\d.]+[kM]?", text)]
    assert len(numbers) >= 3
    assert not [text for text in texts if "$" in text or "\\" in text]


def test_files_name_a_usual_font_and_hold_what_letters_they_need() -> None:
    _, svg, pdf = drawn([1.0, 2.0], "Rückkehr γ → ½")
    assert set(re.findall(r"font-family: ([^;\"]+)", svg)) == {"'DejaVu Sans'"}
    assert b"/FontFile2" in pdf
    assert len(pdf) < 40_000


def test_a_letter_that_the_small_font_lacks_is_drawn_by_the_full_one() -> None:
    """U+10D0 is Georgian: in DejaVu Sans, not among the usual letters."""
    usual, other = drawn([1.0, 2.0], "a")[2], drawn([1.0, 2.0], "a\u10d0")[2]
    assert usual.count(b"/FontFile2") + 1 == other.count(b"/FontFile2")


@pytest.mark.parametrize(("seeds", "thin"), [(1, 0), (2, 2), (3, 3), (4, 0)])
def test_a_curve_of_too_few_seeds_for_an_interval_shows_its_seeds(seeds: int, thin: int) -> None:
    collected = simulated(lambda *_: 1.0, ["a"], seeds)
    [picture] = learning_pictures(curves(collected, groups(collected)))
    [on] = picture.draw(LIGHT).axes
    lines = on.get_lines()
    assert [line.get_linewidth() < 1 for line in lines] == [True] * thin + [False]
    assert f"a (n={seeds})" in picture.vector.svg


def test_all_pictures_of_a_task_have_one_range_of_returns() -> None:
    finals = finals_of({"t": [[float(place), place + 1.0] for place in range(BARS + 1)]})
    ranges = [picture.draw(LIGHT).axes[0].get_xlim() for picture in final_pictures(finals)]
    assert len(ranges) == 2
    assert ranges[0] == ranges[1]
    assert ranges[0][0] < 0.0 < BARS + 1.0 < ranges[0][1]


def test_speeds_have_the_colours_of_their_variants() -> None:
    collected = simulated(lambda *_: 1.0, ["a", "b"], 2, training_fps=2000.0)
    [picture] = speed_pictures(speeds(groups(collected)))
    left, right = picture.draw(LIGHT).axes
    assert {line.get_color() for line in left.get_lines()} == {LIGHT.line(0), LIGHT.line(1)}
    assert not {to_hex(patch.get_facecolor()) for patch in right.patches} & set(LIGHT.lines)

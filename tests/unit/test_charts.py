"""Curves say nothing of numbers of labels that were left out."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure
from ssl_vit.report.charts.drawing import Line, Mark, curves
from ssl_vit.report.look import LONGER

COUNTS = [10, 20, 50, 100]


@pytest.mark.parametrize(
    ("labels", "stretches"),
    [
        ([10, 20, 50, 100], [[10, 20, 50, 100]]),
        ([10, 100], [[10], [100]]),
        ([10, 20, 100], [[10, 20], [100]]),
        ([50], [[50]]),
    ],
)
def test_a_line_is_broken_where_a_number_of_labels_is_left_out(labels: list[int], stretches: list[list[int]]) -> None:
    axis = Figure().add_subplot()
    points = {n: Mark(LONGER, float(n), float(n), float(n)) for n in labels}
    curves(axis, [Line(LONGER, points)], COUNTS, (0.0, 100.0), "top-1 %")
    assert [list(line.get_xdata()) for line in axis.lines] == stretches

"""Axes hold every value, end on round numbers and never carry more ticks than can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.report.axis import linear_axis, log_axis


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([8.2, 22.4, 58.0], (0, 10, 20, 30, 40, 50, 60)),
        ([12.1, 19.7], (12, 14, 16, 18, 20)),
        ([20.3], (20, 21)),
        ([20.0], (20, 21)),
        ([-3.0, 4.0], (-4, -2, 0, 2, 4)),
        ([5.0, 100.0], (0, 20, 40, 60, 80, 100)),
    ],
)
def test_scores_stand_between_round_numbers(values, ticks):
    axis = linear_axis(values)
    assert axis.ticks == ticks
    assert (axis.low, axis.high) == (ticks[0], ticks[-1])


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        ([1.25], (0.5, 5), (0.5, 1, 2, 5)),  # one time alone is given some room
        ([1.0], (0.5, 2), (0.5, 1, 2)),
        ([0.3, 14.0], (0.2, 20), (0.2, 0.5, 1, 2, 5, 10, 20)),
        ([0.004, 312.0], (0.002, 500), (0.01, 0.1, 1, 10, 100)),
        ([2e-5, 3.0], (2e-5, 5), (1e-4, 1e-3, 1e-2, 0.1, 1)),
        ([1e-10, 0.2], (1e-10, 0.2), (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)),
    ],
)
def test_times_and_errors_stand_between_round_numbers_of_their_decades(values, ends, ticks):
    axis = log_axis(values)
    assert axis.ticks == ticks
    assert (axis.low, axis.high) == ends


def test_shares_run_from_end_to_end_and_stop_there():
    axis = linear_axis([0.0, 10.0])
    assert [axis.share(v) for v in (-5, 0, 5, 10, 50)] == [0, 0, 0.5, 1, 1]
    axis = log_axis([0.01, 100.0])
    assert [axis.share(v) for v in (0.0, 0.01, 1.0, 100.0, 1e9)] == pytest.approx([0, 0, 0.5, 1, 1])


@given(st.lists(st.integers(-100_000, 100_000).map(lambda i: i / 1000), min_size=1, max_size=5))
def test_a_linear_axis_holds_all_it_is_given(values):
    axis = linear_axis(values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert 2 <= len(axis.ticks) <= 7


@given(st.lists(st.floats(1e-12, 1e9), min_size=1, max_size=5))
def test_a_log_axis_holds_all_it_is_given(values):
    axis = log_axis(values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert axis.low < axis.high
    assert 2 <= len(axis.ticks) <= 7
    assert all(axis.low <= t <= axis.high for t in axis.ticks)

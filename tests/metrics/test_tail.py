"""The exposed end: ranks are rounded towards it, and lost records count as not exposed."""

import pytest

from leakgauge.metrics.intervals import tail_of
from leakgauge.types import Tail


def test_the_most_exposed_is_the_highest_or_the_lowest_by_the_metric():
    assert tail_of("ssim", [0.1, 0.9, 0.5]).worst == 0.9
    assert tail_of("mse", [0.1, 0.9, 0.5]).worst == 0.1


@pytest.mark.parametrize(("count", "place"), [(1, 1), (19, 1), (20, 1), (21, 2), (40, 2), (100, 5)])
def test_one_in_twenty_is_rounded_towards_the_exposed_end(count, place):
    values = [float(v) for v in range(count)]
    assert tail_of("psnr", values).one_in_twenty == sorted(values, reverse=True)[place - 1]


def test_lost_records_are_less_exposed_than_all_others():
    assert tail_of("ssim", [0.9, 0.8], lost=2) == Tail("ssim", 0.9, 0.9, 0.8, 4)
    assert tail_of("ssim", [0.9], lost=3).median is None


def test_nothing_scored_has_no_tail():
    assert tail_of("ssim", [], lost=2) == Tail("ssim", None, None, None, 2)

"""Room on the page: never more bytes than it may hold, never fewer than a few pairs while they fit."""

import pytest

from leakgauge.report.allowance import BYTES, PAIRS_PER_CELL, allowance


@pytest.mark.parametrize("cells", [1, 3, 12, 60, 150])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 64, 48), (3, 224, 224), (4, 300, 300)])
def test_all_pairs_together_fit(cells, shape):
    room = allowance(cells, shape)
    channels = 3 if shape[0] == 3 else 1
    scale = min(1, room.side / max(shape[1:]))
    picture = channels * shape[1] * scale * shape[2] * scale
    assert cells * (room.shown + room.more) * 2 * picture * 4 / 3 <= BYTES
    assert 4 <= room.shown <= PAIRS_PER_CELL


def test_few_small_pictures_are_shown_whole_and_many():
    room = allowance(4, (3, 32, 32))
    assert (room.side, room.shown, room.more) == (128, 12, 60)


def test_many_large_pictures_are_reduced_before_they_are_left_out():
    assert allowance(2, (3, 224, 224)).side == 128
    assert allowance(40, (3, 224, 224)).side < 128


def test_no_cells_need_no_room():
    assert allowance(0, (1, 8, 8)).shown == PAIRS_PER_CELL

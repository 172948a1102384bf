"""Fisher's discriminant over replays, on vectors whose answer is known."""

import pytest
import torch

from leakgauge.recording.redrawn import _Outside


def products(replays, *others):
    """Inner products from the middle of the replays."""
    middle = replays.mean(0)
    vectors = torch.cat((replays - middle, torch.stack(others)))
    return vectors @ vectors.T, middle


@pytest.fixture
def drawn():
    """Draws that scatter widely along two of fifty directions, and hardly else."""
    g = torch.Generator().manual_seed(0)
    scale = torch.full((50,), 0.01, dtype=torch.float64)
    scale[:2] = 100.0
    return lambda n: scale * torch.randn(n, 50, generator=g, dtype=torch.float64)


def test_a_point_half_way_has_gone_half_of_it_however_wide_the_draws_scatter(drawn):
    replays, way = drawn(12), torch.ones(50, dtype=torch.float64)
    seen, middle = products(replays, way, 0.5 * way + drawn(1)[0])
    outside = _Outside(seen, 12)
    assert outside.gone(13, 12) == pytest.approx(0.5, abs=0.02)
    assert abs(float((0.5 * way + drawn(1)[0]) @ way / (way @ way)) - 0.5) > 0.5, "plainly it would drown"
    assert middle.shape == way.shape


def test_a_replay_that_is_judged_by_the_others_has_gone_nothing(drawn):
    replays, way = drawn(12), torch.ones(50, dtype=torch.float64)
    seen, _ = products(replays, way)
    gone = [_Outside(seen, 12, left).gone(left, 12) for left in range(12)]
    assert max(map(abs, gone)) < 0.02


def test_left_out_is_the_same_as_not_there(drawn):
    replays, way = drawn(6), torch.ones(50, dtype=torch.float64)
    seen, _ = products(replays, way)
    others = torch.cat((replays[:2], replays[3:]))
    without, middle = products(others, way, replays[2] - others.mean(0))
    assert _Outside(seen, 6, 2).gone(2, 6) == pytest.approx(_Outside(without, 5).gone(6, 5), rel=1e-6)
    assert middle.shape == way.shape

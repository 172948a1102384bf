"""Detail: dB beyond the record's own thumbnail."""

import pytest
import torch

from leakgauge.metrics.psnr import DETAIL, detail, psnr, thumbnail


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_an_exact_copy_is_far_beyond_and_the_thumbnail_itself_is_at_zero():
    true = pictures(5, 3, 32, 32)
    assert (detail(true, true) == 100 - psnr(true, thumbnail(true))).all()
    assert torch.equal(detail(true, thumbnail(true)), torch.zeros(5))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 7), (1, 1, 9), (3, 224, 224)])
def test_any_size_of_picture_has_a_thumbnail_of_its_own_shape(shape):
    true = pictures(2, *shape)
    assert thumbnail(true).shape == true.shape
    assert detail(true, true).isfinite().all()


def test_a_flat_picture_proves_nothing_however_exact_its_copy_is():
    flat = torch.full((1, 1, 16, 16), 0.3)
    assert float(detail(flat, flat)) == pytest.approx(0.0, abs=1e-4)


def test_leading_axes_are_kept():
    true = pictures(2, 4, 1, 8, 8)
    assert detail(true, pictures(2, 4, 1, 8, 8, seed=1)).shape == (2, 4)
    assert DETAIL.higher_is_better

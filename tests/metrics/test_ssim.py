"""Against two independent implementations; both dialects."""

import pytest
import torch
from torch import Tensor

from leakgauge.metrics.ssim import ssim, ssim_uniform7

metrics = pytest.importorskip("skimage.metrics")


def _pair(channels: int, height: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(channels, height, width, generator=generator)
    return truth, (truth + 0.3 * torch.randn(truth.shape, generator=generator)).clamp(0, 1)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 41), (2, 11, 11)])
def test_equals_scikit_image_with_the_gaussian_window(shape: tuple[int, int, int]):
    truth, recon = _pair(*shape)
    expected = metrics.structural_similarity(
        truth.double().numpy(),
        recon.double().numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1,
        channel_axis=0,
    )
    assert ssim(truth, recon).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 7, 9)])
def test_uniform7_equals_scikit_image_by_default(shape: tuple[int, int, int]):
    truth, recon = _pair(*shape)
    expected = metrics.structural_similarity(
        truth.double().numpy(), recon.double().numpy(), data_range=1, channel_axis=0
    )
    assert ssim_uniform7(truth, recon).item() == pytest.approx(expected, abs=1e-6)


def test_equals_torchmetrics_once_its_map_is_cropped():
    image = pytest.importorskip("torchmetrics.functional.image")
    truth, recon = (torch.stack(half) for half in zip(*(_pair(3, 32, 32, s) for s in range(4)), strict=True))
    _, quality = image.structural_similarity_index_measure(
        recon, truth, data_range=1.0, return_full_image=True, reduction="none"
    )
    cropped = quality[..., 5:-5, 5:-5].mean(dim=(1, 2, 3))
    assert torch.allclose(ssim(truth, recon), cropped, atol=1e-5)


def test_the_border_is_what_separates_us_from_torchmetrics():
    """A black frame, as MNIST has, is perfect in every reconstruction and lifts an uncropped mean."""
    image = pytest.importorskip("torchmetrics.functional.image")
    truth, recon = torch.zeros(1, 1, 28, 28), torch.zeros(1, 1, 28, 28)
    truth[..., 8:20, 8:20], recon[..., 8:20, 8:20] = torch.rand(2, 12, 12)
    uncropped = image.structural_similarity_index_measure(recon, truth, data_range=1.0).item()
    assert ssim(truth, recon).item() < uncropped - 0.1


def test_flat_images_do_not_divide_by_zero():
    black, white = torch.zeros(1, 16, 16), torch.ones(1, 16, 16)
    assert ssim(black, black).item() == pytest.approx(1)
    assert ssim(black, white).item() == pytest.approx(0.01**2 / (1 + 0.01**2), rel=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (8, 8), (10, 30)])
def test_small_images_use_the_largest_odd_window_that_fits(size: tuple[int, int]):
    truth, recon = _pair(3, *size)
    for dialect in (ssim, ssim_uniform7):
        assert dialect(truth, truth).item() == pytest.approx(1)
        assert -1 <= dialect(truth, recon).item() < 1


def test_an_inverted_image_is_negative():
    truth, _ = _pair(1, 16, 16)
    assert ssim(truth, 1 - truth).item() < -0.5

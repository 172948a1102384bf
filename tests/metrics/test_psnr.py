import math

import pytest
import torch

from leakgauge.metrics.psnr import mae, mse, psnr, psnr_as_fedkl, psnr_from_fedkl


def test_equals_scikit_image():
    metrics = pytest.importorskip("skimage.metrics")
    truth, recon = torch.rand(2, 3, 9, 8, dtype=torch.float64)
    expected = metrics.peak_signal_noise_ratio(truth.numpy(), recon.numpy(), data_range=1)
    assert psnr(truth, recon).item() == pytest.approx(expected, abs=1e-9)


def test_equals_torchmetrics_per_image():
    image = pytest.importorskip("torchmetrics.functional.image")
    truth, recon = torch.rand(2, 5, 3, 9, 8)
    expected = image.peak_signal_noise_ratio(recon, truth, data_range=1.0, dim=(1, 2, 3), reduction="none")
    assert torch.allclose(psnr(truth, recon), expected, atol=1e-4)


def test_an_exact_copy_is_capped_and_stays_finite():
    image = torch.rand(2, 3, 8, 8)
    assert psnr(image, image).tolist() == [100.0, 100.0]


def test_black_for_white_is_zero_decibels():
    assert psnr(torch.zeros(1, 4, 4), torch.ones(1, 4, 4)).item() == 0.0


@pytest.mark.parametrize(("reported", "true"), [(28.00, 7.87), (52.78, 57.43), (26.64, 5.15)])
def test_fedkl_figures_convert(reported: float, true: float):
    assert psnr_from_fedkl(reported) == pytest.approx(true, abs=0.005)
    assert psnr_as_fedkl(psnr_from_fedkl(reported)) == pytest.approx(reported)


def test_the_conversion_holds_for_the_released_formula():
    truth, recon = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    root = ((truth - recon) * 255).square().mean().sqrt().item()
    released = 10 * math.log10(255**2 / root)
    assert psnr_from_fedkl(released) == pytest.approx(psnr(truth, recon).item())


def test_a_grey_guess_of_a_photo_is_about_12_decibels():
    """The floor that any attack must clear; it moves with the photo, so name the photos beside it."""
    data = pytest.importorskip("skimage.data")
    names = ("astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry")
    photos = [torch.as_tensor(getattr(data, name)()).permute(2, 0, 1) / 255 for name in names]
    values = [psnr(photo, torch.full_like(photo, 0.5)).item() for photo in photos]
    assert sum(values) / len(values) == pytest.approx(12, abs=0.5)
    assert 9 < min(values) < max(values) < 16


def test_squared_errors_by_hand():
    truth = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])  # (1, 1, 2, 2)
    recon = torch.tensor([[[[1.0, 1.0], [0.0, 0.25]]]])
    assert mse(truth, recon).tolist() == [(1 + 0.25) / 4]


def test_mse_equals_scikit_image():
    metrics = pytest.importorskip("skimage.metrics")
    truth, recon = torch.rand(2, 3, 9, 8, dtype=torch.float64)
    expected = metrics.mean_squared_error(truth.numpy(), recon.numpy())
    assert mse(truth, recon).item() == pytest.approx(expected, abs=1e-12)


def test_absolute_errors_by_hand():
    truth = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])  # (1, 1, 2, 2)
    recon = torch.tensor([[[[1.0, 1.0], [0.0, 0.25]]]])
    assert mae(truth, recon).item() == pytest.approx(1.5 / 4)

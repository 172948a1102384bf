import pytest
import torch

from leakgauge.metrics.mse import mse


def test_by_hand():
    truth = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])  # (1, 1, 2, 2)
    recon = torch.tensor([[[[1.0, 1.0], [0.0, 0.25]]]])
    assert mse(truth, recon).tolist() == [(1 + 0.25) / 4]


def test_equals_scikit_image():
    metrics = pytest.importorskip("skimage.metrics")
    truth, recon = torch.rand(2, 3, 9, 8, dtype=torch.float64)
    expected = metrics.mean_squared_error(truth.numpy(), recon.numpy())
    assert mse(truth, recon).item() == pytest.approx(expected, abs=1e-12)

import pytest
import torch

from leakgauge.metrics.mae import mae


def test_by_hand():
    truth = torch.tensor([[[[0.0, 1.0], [0.5, 0.25]]]])  # (1, 1, 2, 2)
    recon = torch.tensor([[[[1.0, 1.0], [0.0, 0.25]]]])
    assert mae(truth, recon).item() == pytest.approx(1.5 / 4)

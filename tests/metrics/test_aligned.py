import torch

from leakgauge.metrics.aligned import align
from leakgauge.metrics.psnr import psnr


def _truth() -> torch.Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_hidden_scale_and_offset_are_undone_per_image():
    truth = _truth()
    scale = torch.tensor([3.0, -0.2]).view(2, 1, 1, 1)
    assert torch.allclose(align(truth, scale * truth + 4), truth, atol=1e-9)


def test_it_never_makes_a_reconstruction_worse():
    truth = _truth()
    recon = (truth + 0.3 * torch.randn(truth.shape)).clamp(0, 1)
    assert (psnr(truth, align(truth, recon)) >= psnr(truth, recon)).all()


def test_a_constant_becomes_the_mean():
    truth = _truth()
    mean = truth.mean((1, 2, 3), keepdim=True).expand_as(truth)
    assert torch.allclose(align(truth, torch.full_like(truth, 0.3)), mean)

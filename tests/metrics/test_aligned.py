import torch

from leakgauge.metrics.aligned import PSNR_ALIGNED, SSIM_ALIGNED, align
from leakgauge.metrics.psnr import PSNR, psnr
from leakgauge.metrics.scoring import score
from leakgauge.types import Batch, DataSpec, Reconstruction


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


def test_aligned_scores_see_what_lies_beyond_the_range():
    """Clamped first, a picture of three times the contrast would have lost its bright and dark parts."""
    data = DataSpec("pictures", (3, 8, 8), 2, "image")
    truth = Batch(_truth()[:, None], torch.zeros(2, 1, dtype=torch.long))
    zero = torch.zeros(2)
    claimed = Reconstruction(3 * truth.inputs + 4, None, objective=zero, steps=zero, evaluations=zero)
    scores = score(truth, claimed, data, (PSNR, PSNR_ALIGNED, SSIM_ALIGNED)).records
    assert (scores["psnr_aligned"] > 90).all()
    assert (scores["ssim_aligned"] > 0.999).all()
    assert (scores["psnr"] < 10).all()


def test_a_reconstruction_that_is_not_finite_is_no_claim_and_has_no_score():
    data = DataSpec("pictures", (3, 8, 8), 2, "image")
    truth = Batch(_truth()[:, None], torch.zeros(2, 1, dtype=torch.long))
    zero = torch.zeros(2)
    broken = Reconstruction(truth.inputs * torch.nan, None, objective=zero, steps=zero, evaluations=zero)
    scores = score(truth, broken, data, (PSNR_ALIGNED,))
    assert scores.failed.all()
    assert scores.records["psnr_aligned"].isnan().all()

"""What every metric promises: direction, range, a perfect score for the truth, and a value per sample."""

import pytest
import torch

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.metrics import Metric
from leakgauge.metrics.psnr import MSE
from leakgauge.metrics.ssim import SSIM
from leakgauge.types import DataSpec

IMAGES = DataSpec("pictures", (3, 16, 16), 10, "image")
TABLE = DataSpec("rows", (7,), 2, "tabular")
METRICS = [
    m for m in catalog.find("metrics").values() if "lpips" not in m.name and m.fits(IMAGES)
]  # those need weights


def test_the_folder_gives_the_metrics_by_name():
    assert {"mse", "mae", "psnr", "ssim", "lpips"} <= set(catalog.find("metrics"))


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_the_truth_scores_best_and_more_noise_scores_worse(metric: Metric):
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(2, 3, *IMAGES.shape, generator=generator)
    noise = torch.rand(truth.shape, generator=generator)
    values = torch.stack([metric(truth, truth.lerp(noise, w), IMAGES) for w in (0.0, 0.1, 0.5, 1.0)])
    assert values.shape == (4, 2, 3)
    if metric.name != "detail":  # its best depends on the picture
        assert torch.allclose(values[0], torch.full((2, 3), metric.high if metric.higher_is_better else metric.low))
    worse = values.diff(dim=0) < 0 if metric.higher_is_better else values.diff(dim=0) > 0
    assert worse.all()
    assert ((values >= metric.low) & (values <= metric.high + 1e-6)).all()


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_samples_do_not_mix(metric: Metric):
    truth, recon = torch.rand(2, 4, *IMAGES.shape, generator=torch.Generator().manual_seed(1))
    together = metric(truth, recon, IMAGES)
    alone = torch.stack([metric(truth[i], recon[i], IMAGES) for i in range(4)])
    assert torch.allclose(together, alone, atol=1e-6)


def test_a_table_row_is_one_sample():
    truth, recon = torch.rand(5, 7), torch.rand(5, 7)
    assert torch.allclose(MSE(truth, recon, TABLE), (truth - recon).square().mean(1))


def test_ssim_of_a_table_is_refused():
    with pytest.raises(BadInput, match=r"'ssim' must be image, got tabular"):
        SSIM(torch.rand(5, 7), torch.rand(5, 7), TABLE)


def test_unequal_shapes_are_refused_instead_of_broadcast():
    with pytest.raises(BadInput, match="as the truth"):
        MSE(torch.rand(5, 7), torch.rand(1, 7), TABLE)

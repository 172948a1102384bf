"""What every metric must hold to: its direction and range are what it says of itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.errors import BadInput, MissingExtra
from leakgauge.metrics import Metric
from leakgauge.types import CATEGORIES, DataSpec, Part

METRICS = catalog.find("metrics")
PARTS = (Part("numbers", (12,)), Part("words", (4,), CATEGORIES, 3))
KINDS = {
    "image": DataSpec("pictures", (3, 16, 16), 4, "image"),
    "tabular": DataSpec("table", (24,), 2, "tabular"),
    "tokens": DataSpec("text", (24,), 2, "tokens", parts=PARTS),
    "series": DataSpec("series", (2, 40), 2, "series"),
    "other": DataSpec("volumes", (2, 3, 4, 5), 2, "other"),
}
OF_THE_RECORD = ("detail",)  # counted from the record's own thumbnail, so that the best value differs by record
NOISE = (0.02, 0.1, 0.4)
every_use = pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n, m in METRICS.items() for k in KINDS if m.fits(KINDS[k])]
)


def measure(metric: Metric, truth: Tensor, recon: Tensor, data: DataSpec) -> Tensor:
    try:
        return metric(truth, recon, data)
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.fixture(params=[0, 1], ids=["smooth", "rough"])
def truth(request: pytest.FixtureRequest, kind: str) -> Tensor:
    """(2, 3, *shape) in [0, 1]: slopes, or noise."""
    shape = KINDS[kind].shape
    made = torch.rand(2, 3, *shape, generator=torch.Generator().manual_seed(1))
    return made if request.param else (made[..., :1] * 0.5 + torch.linspace(0, 0.5, shape[-1])).expand(2, 3, *shape)


def noisy(truth: Tensor, level: float) -> Tensor:
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(2))
    return (truth + level * noise).clamp(0, 1)


@pytest.mark.parametrize("name", METRICS)
def test_describes_itself(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name == name.lower()
    assert metric.summary
    assert metric.paper
    assert metric.low < metric.high
    assert set(metric.applies_to) <= set(KINDS)
    assert metric.applies_to


@every_use
def test_perfect_reconstruction_scores_best(name: str, kind: str, truth: Tensor) -> None:
    metric = METRICS[name]
    values = measure(metric, truth, truth.clone(), KINDS[kind])
    assert values.shape == (2, 3)
    if name in OF_THE_RECORD:
        assert (values > measure(metric, truth, noisy(truth, 0.001), KINDS[kind])).all()
        return
    best = metric.high if metric.higher_is_better else metric.low
    torch.testing.assert_close(values, torch.full((2, 3), best), rtol=1e-5, atol=1e-6)


@every_use
def test_more_noise_scores_worse(name: str, kind: str, truth: Tensor) -> None:
    metric = METRICS[name]
    values = [measure(metric, truth, noisy(truth, level), KINDS[kind]).mean().item() for level in NOISE]
    assert values == sorted(values, reverse=metric.higher_is_better)
    assert len(set(values)) == len(NOISE)


@every_use
def test_values_stay_in_the_declared_range(name: str, kind: str, truth: Tensor) -> None:
    metric, data = METRICS[name], KINDS[kind]
    flat = torch.full_like(truth, 0.5)
    pairs = [(truth, noisy(truth, 0.3)), (truth, 1 - truth), (truth, flat), (flat * 0, flat * 2), (flat, flat.clone())]
    for first, second in pairs:
        values = measure(metric, first, second, data)
        assert torch.isfinite(values).all()
        assert values.min() >= metric.low - 1e-6
        assert values.max() <= metric.high + 1e-6


@every_use
def test_batched_equals_one_by_one_and_inputs_stay_untouched(name: str, kind: str, truth: Tensor) -> None:
    metric, data = METRICS[name], KINDS[kind]
    recon = noisy(truth, 0.2)
    kept = truth.clone(), recon.clone()
    together = measure(metric, truth, recon, data)
    for t in range(2):
        for n in range(3):
            alone = metric(truth[t, n], recon[t, n], data)
            assert alone.shape == ()
            torch.testing.assert_close(alone, together[t, n], rtol=1e-4, atol=1e-6)
    assert torch.equal(truth, kept[0])
    assert torch.equal(recon, kept[1])


@every_use
def test_shapes_that_differ_are_refused(name: str, kind: str) -> None:
    data = KINDS[kind]
    with pytest.raises(BadInput, match=f"metric '{name}'"):
        METRICS[name](torch.zeros(2, *data.shape), torch.zeros(1, *data.shape), data)


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, m in METRICS.items() for k in KINDS if k not in m.applies_to])
def test_data_it_does_not_apply_to_is_refused(name: str, kind: str) -> None:
    data = KINDS[kind]
    with pytest.raises(BadInput, match=kind):
        METRICS[name](torch.zeros(1, *data.shape), torch.zeros(1, *data.shape), data)

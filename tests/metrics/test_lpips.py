"""Against the figures that TorchMetrics prints for torchvision's network, and against its linear heads."""

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput, MissingExtra
from leakgauge.metrics.lpips import LPIPS, Lpips, load_lpips
from leakgauge.types import DataSpec


def _load(net: str) -> Lpips:
    try:
        return load_lpips(net)
    except MissingExtra as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def alex() -> Lpips:
    return _load("alex")


@pytest.fixture(scope="module")
def vgg() -> Lpips:
    return _load("vgg")


def test_vgg_gives_the_figure_of_torchmetrics_documentation(vgg: Lpips):
    """Its example seeds with 123, builds torchvision's VGG16 and the heads, then draws: tensor(0.3493).

    Building the network takes random numbers, so the same layers are built here to draw the same images.
    """
    state = torch.get_rng_state()
    try:
        torch.manual_seed(123)
        widths = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
        for before, after in pairwise(widths):
            nn.Conv2d(before, after, 3)
        for before, after in ((25088, 4096), (4096, 4096), (4096, 1000)):
            nn.Linear(before, after)
        for width in (64, 128, 256, 512, 512):
            nn.Conv2d(width, 1, 1, bias=False)
        first, second = torch.rand(10, 3, 100, 100), torch.rand(10, 3, 100, 100)
    finally:
        torch.set_rng_state(state)
    with torch.no_grad():
        assert vgg(first, second).mean().item() == pytest.approx(0.3493, abs=6e-5)


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_heads_are_those_that_torchmetrics_carries(net: str):
    spec = find_spec("torchmetrics")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("torchmetrics is not installed")
    path = Path(spec.submodule_search_locations[0]) / "functional" / "image" / "lpips_models" / f"{net}.pth"
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    for i, head in enumerate(_load(net).heads):
        assert torch.equal(head, theirs[f"lin{i}.model.1.weight"])


# Computed with the `lpips` package 0.1.4 (normalize=True) on the same two images and the same trunks.
@pytest.mark.parametrize(("net", "expected"), [("alex", 0.103537), ("vgg", 0.316215)])
def test_equals_the_lpips_package_on_noise(net: str, expected: float):
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(3, 64, 64, generator=generator) for _ in range(2))
    assert _load(net)(first, second).item() == pytest.approx(expected, abs=1e-5)


def test_the_same_image_is_at_distance_zero_and_damage_adds_up(alex: Lpips):
    photo = torch.as_tensor(pytest.importorskip("skimage.data").astronaut()).permute(2, 0, 1) / 255
    photo = photo[:, 50:178, 150:278]
    noise = torch.rand(photo.shape, generator=torch.Generator().manual_seed(0))
    values = [alex(photo, photo.lerp(noise, w)).item() for w in (0.0, 0.1, 0.3, 1.0)]
    assert values[0] == 0
    assert values == sorted(values)
    assert 0.5 < values[-1] < LPIPS.high


def test_small_images_are_upsampled_to_64(alex: Lpips):
    first, second = torch.rand(2, 2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    larger = [nn.functional.interpolate(x, size=(64, 96), mode="bilinear") for x in (first, second)]
    assert torch.allclose(alex(first, second), alex(*larger), atol=1e-6)


def test_one_channel_counts_as_grey(alex: Lpips):
    first, second = torch.rand(2, 5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    grey = [x.expand(-1, 3, -1, -1) for x in (first, second)]
    assert torch.allclose(alex(first, second), alex(*grey))


def test_leading_axes_stay_and_chunks_do_not_show(alex: Lpips):
    first, second = torch.rand(2, 3, 25, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    together = alex(first, second)
    assert together.shape == (3, 25)
    assert together[2, 24].item() == pytest.approx(alex(first[2, 24], second[2, 24]).item(), abs=1e-5)


def test_gradients_are_finite_even_on_black(alex: Lpips):
    recon = torch.zeros(1, 3, 64, 64, requires_grad=True)
    alex(torch.rand(1, 3, 64, 64), recon).sum().backward()
    assert recon.grad is not None
    assert recon.grad.isfinite().all()


def test_the_metric_reads_the_user_s_folder(alex: Lpips):
    images = torch.rand(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    value = LPIPS(images[0], images[1], DataSpec("pictures", (3, 32, 32), 10, "image"))
    assert torch.equal(value, alex(images[0], images[1]))


def test_other_channels_and_networks_are_refused(alex: Lpips):
    with pytest.raises(BadInput, match="1 or 3 channels"):
        alex(torch.rand(2, 8, 8), torch.rand(2, 8, 8))
    with pytest.raises(BadInput, match="alex or vgg"):
        load_lpips("squeeze")

"""One sample out of whatever affine map reads it first, whatever layer that is."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.attacks.rank_one import RankOne
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import NotApplicable
from leakgauge.types import Client, SharedUpdate


class Adapted(nn.Module):
    """LoRA beside a frozen first layer: W x + up(down(x)), of which only the adapter and the head are trained."""

    def __init__(self, rank: int = 2, started: bool = True):
        super().__init__()
        self.base, self.head = nn.Linear(64, 16), nn.Linear(16, 10)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Parameter(0.1 * torch.randn(rank, 64)), nn.Parameter(torch.zeros(16, rank))
        if started:
            nn.init.normal_(self.up, std=0.1)

    def forward(self, x):
        flat = x.flatten(1)
        return self.head(F.gelu(self.base(flat) + flat @ self.down.T @ self.up.T))


class Turned(nn.Module):
    """x @ W: the inputs come first in the tensor."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(0.1 * torch.randn(64, 12)), nn.Linear(12, 10)

    def forward(self, x):
        return self.head(torch.tanh(x.flatten(1) @ self.weight))


class Normalised(nn.Module):
    """A constant scale and shift before a layer without a bias."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(64, 12, bias=False), nn.Linear(12, 10)

    def forward(self, x):
        return self.head(torch.tanh(self.first(((x - 0.3) / 0.2).flatten(1))))


def small(first: nn.Module, width: int = 12) -> nn.Module:
    return nn.Sequential(first, nn.Flatten(), nn.GELU(), nn.Linear(width, 10))


NETWORKS = {
    "without a bias": lambda: nn.Sequential(nn.Flatten(), small(nn.Linear(64, 12, bias=False))),
    "with a bias": lambda: nn.Sequential(nn.Flatten(), small(nn.Linear(64, 12))),
    "adapter": Adapted,
    "inputs first": Turned,
    "normalised inside": Normalised,
    "a convolution as large as the picture": lambda: small(nn.Conv2d(1, 12, 8, bias=False)),
    "a convolution with a bias": lambda: small(nn.Conv2d(1, 12, 8)),
}


def network(name: str) -> nn.Module:
    torch.manual_seed(3)
    return NETWORKS[name]().eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_one_sample_is_exact_and_proven(scene, name):
    made = scene(network(name), trials=3)
    result = RankOne()(made.seen, range(3))
    torch.testing.assert_close(result.inputs, made.batch.inputs, rtol=0, atol=2e-3)
    assert torch.equal(result.labels, made.batch.labels)
    assert result.certified.tolist() == [1, 1, 1]
    assert (result.objective < 1e-4).all()


@pytest.mark.parametrize("name", ["without a bias", "adapter"])
def test_several_local_steps_on_one_sample_leave_its_direction(scene, name):
    made = scene(network(name), local=Client(kind="fedavg", lr=0.1, epochs=3))
    assert (made.psnr(RankOne()(made.seen, (0, 1))) > 40).all()


def test_a_clipped_update_still_has_the_direction(scene):
    made = scene(network("with a bias"), defenses=(Clip(norm=0.1),))
    assert (made.psnr(RankOne()(made.seen, (0, 1))) > 40).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_of_sixteen_bits_are_enough(scene, dtype):
    def halved(update):
        return SharedUpdate(update.kind, {n: t.to(dtype).float() for n, t in update.tensors.items()})

    made = scene(network("without a bias"), trials=3, change=halved)
    assert (made.psnr(RankOne()(made.seen, range(3))) > (50 if dtype is torch.float16 else 30)).all()


def test_nothing_is_proven_under_noise_and_noise_alone_is_not_claimed(scene):
    some, much = (scene(network("adapter"), defenses=(Gaussian(std=s),)) for s in (1e-4, 1.0))
    assert not RankOne()(some.seen, (0, 1)).certified.any()
    assert not RankOne()(much.seen, (0, 1)).claimed.any()


def test_an_adapter_at_its_start_has_no_gradient_and_that_is_said(scene):
    torch.manual_seed(0)
    with pytest.raises(NotApplicable, match=r"'down', which is zero: so is an adapter's at its start"):
        RankOne().check(scene(Adapted(started=False).eval()).seen)


@pytest.mark.parametrize(
    ("model", "samples", "why"),
    [
        ("mlp:hidden=16", 4, "with 4 the first map's gradient is a mixture"),
        ("lenet-dlg", 1, "no tensor is one's|no shared tensor is large enough"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(scene, model, samples, why):
    with pytest.raises(NotApplicable, match=why):
        RankOne().check(scene(model, samples=samples).seen)


def test_victims_do_not_touch_one_another(scene):
    made = scene(network("without a bias"), trials=3)
    together, alone = RankOne()(made.seen, range(3)), RankOne()(made.seen.take([1]), (1,))
    torch.testing.assert_close(together.inputs[1:2], alone.inputs, rtol=0, atol=1e-5)

"""MKOR through strides in place of pooling, and through BatchNorm."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import load, public_batch
from leakgauge.errors import NotApplicable
from leakgauge.models import load_model
from leakgauge.servers.mkor import MKOR
from leakgauge.types import NLL_ON_LOGITS, Batch, Client, DataSpec, threat_model

PHOTOS = load("photos64", "test")
DIGIT = DataSpec("digit", (1, 28, 28), 4, "image")
GREY = DataSpec("grey", (1, 64, 64), 5, "image")


def recovered(server: MKOR, model: nn.Module, data: DataSpec, inputs: Tensor, mode: str = "eval") -> Tensor:
    """One record per class, classes in order, so that pictures and records stand in the same order."""
    batch = Batch(inputs[None], torch.arange(len(inputs))[None])
    known = Batch(public_batch(PHOTOS, 32, seed=9).inputs.to(inputs), torch.zeros(1, 32, dtype=torch.long))
    public = known if known.inputs.shape[2:] == inputs.shape[1:] else None
    sent = server.prepare(model, data, public)
    local = Client(loss=NLL_ON_LOGITS, batchnorm=mode)
    update = fedsgd(Client(loss=NLL_ON_LOGITS, batchnorm=mode))(sent, batch, [0])
    facts = facts_about(sent, batch, data, local, public)
    return server(observe(sent, update, threat_model("malicious-parameters"), facts), [0]).inputs[0]


def psnr(found: Tensor, truth: Tensor) -> float:
    return float(-10 * (found - truth).square().flatten(1).mean(1).log10().mean())


def test_strides_keep_every_pixel_that_their_four_phases_reach():
    model = load_model("lenet5-mkor:halving=stride", DIGIT, seed=1).double()
    inputs = torch.rand(3, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = recovered(MKOR(), model, DIGIT, inputs)
    torch.testing.assert_close(found[:, :, 4:24, 4:24], inputs[:, :, 4:24, 4:24], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[:, :, 0, 4], found[:, :, 4, 4])  # nothing speaks of the border


def test_fewer_directions_than_strides_keep_a_grid_of_pixels():
    model = load_model("lenet5-mkor:halving=stride", DIGIT, seed=1).double()
    inputs = torch.rand(3, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = recovered(MKOR(directions=1), model, DIGIT, inputs)
    torch.testing.assert_close(found[:, :, 4:24:2, 4:24:2], inputs[:, :, 4:24:2, 4:24:2], rtol=0, atol=1e-5)


def test_vgg_with_strides_gives_a_better_picture_than_with_pooling():
    inputs = public_batch(PHOTOS, 3, seed=2).inputs[0].mean(1, keepdim=True)
    data = dataclasses.replace(GREY, mean=(), std=())
    strided, pooled = (
        psnr(recovered(MKOR(), load_model(f"vgg16-mkor:width=16,hidden=16,halving={h}", data, 1), data, inputs), inputs)
        for h in ("stride", "max")
    )
    assert strided > pooled + 1


def test_a_strided_dlg_network_can_be_prepared():
    data = DataSpec("colour", (3, 32, 32), 6, "image")
    model = load_model("lenet-dlg", data, seed=0).double()
    inputs = torch.rand(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = recovered(MKOR(), model, data, inputs)
    torch.testing.assert_close(found[:, :, ::2, ::2], inputs[:, :, ::2, ::2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("design", ["rows", "block"])
def test_batchnorm_with_the_servers_statistics_changes_nothing(design):
    inputs = public_batch(PHOTOS, 3, seed=2).inputs[0]
    server = MKOR(design=design, beta=2.0)
    plain, normed = (
        psnr(
            recovered(server, load_model(f"vgg16-mkor:width=16,hidden=16{more}", PHOTOS.spec, 1), PHOTOS.spec, inputs),
            inputs,
        )
        for more in ("", ",batchnorm=true")
    )
    assert normed == pytest.approx(plain, abs=0.01 if design == "rows" else 1.5)


def test_batchnorm_with_the_clients_statistics_is_calibrated_by_public_pictures():
    """Without calibration the features have mean 0, and the ReLUs behind cut half of them off."""
    inputs = public_batch(PHOTOS, 6, seed=2).inputs[0]
    model = load_model("vgg16-mkor:width=16,hidden=16,batchnorm=true", PHOTOS.spec, 1)
    fixed, own = (psnr(recovered(MKOR(), model, PHOTOS.spec, inputs, mode), inputs) for mode in ("eval", "train"))
    assert own > fixed - 2


def test_batchnorm_stands_in_for_the_bias_of_its_convolution():
    data = DataSpec("grey", (1, 8, 8), 3, "image")
    model = (
        nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 3),
        )
        .double()
        .eval()
    )
    inputs = torch.full((2, 1, 8, 8), 0.3, dtype=torch.float64)
    torch.testing.assert_close(recovered(MKOR(), model, data, inputs), inputs, rtol=0, atol=1e-6)


class _Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.bn, self.two = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.one(x))
        return self.fc((x + self.two(x)).flatten(1))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 3)),
            "right behind a convolution",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 8, 3, 2, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 3)),
            "pooling or strides",
        ),
        (nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(512, 3)), "'0'.*no bias"),
        (
            nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3, 2, padding=1),
                nn.Sigmoid(),
                nn.Flatten(),
                nn.Linear(128, 3),
                nn.BatchNorm1d(3),
            ),
            "'7'.*BatchNorm1d",
        ),
    ],
)
def test_what_it_cannot_prepare_is_named(model, said):
    with pytest.raises(NotApplicable, match=said):
        MKOR().prepare(model, DataSpec("grey", (1, 8, 8), 3, "image"))


class _ShortcutAndActivation(_Shortcut):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.one(x))
        return self.fc(self.act(x + self.two(x)).flatten(1))


@pytest.mark.parametrize(("model", "layer"), [(_Shortcut(), "fc"), (_ShortcutAndActivation(), "act")])
def test_a_shortcut_beside_batchnorm_is_refused(model, layer):
    with pytest.raises(NotApplicable, match=rf"'{layer}'.*shortcuts"):
        MKOR().prepare(model, DataSpec("grey", (1, 8, 8), 3, "image"))

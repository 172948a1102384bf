"""What a search follows, the derivatives of the gradients, against finite differences for every kind of layer."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from leakgauge.engine.gradients import one_by_one, trial_gradients, working_model
from leakgauge.engine.layerwise import fits, layerwise_gradients
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.ways import choose_way, second_derivatives
from leakgauge.types import DataSpec

CLASSES = 4
PICTURE, SERIES, ROW = (2, 6, 6), (2, 8), (12,)


class Residual(nn.Module):
    def __init__(self, *inside: nn.Module):
        super().__init__()
        self.inside = nn.Sequential(*inside)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inside(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.squeeze, self.excite = nn.Linear(channels, 2), nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.sigmoid(self.excite(F.silu(self.squeeze(x.mean((2, 3))))))
        return x * weights[:, :, None, None]


class Attention(nn.Module):
    """With the norm in front, as in a vision transformer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        return x + self.attend(rows, rows, rows, need_weights=False)[0]


class Patches(nn.Module):
    """Patch embedding, class token and positions: a small vision transformer in front of `body`."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.embed = nn.Conv2d(2, 4, 3, stride=3)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 4)), nn.Embedding(5, 4)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        rows = self.embed(x).flatten(2).transpose(1, 2)
        rows = torch.cat((self.token.expand(len(rows), -1, -1), rows), 1)
        return self.body(rows + self.positions(torch.arange(5, device=x.device)))[:, 0]


class Tokens(nn.Module):
    """A series as (N, length, channels) for `body`, of which the mean or the last is taken."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x.transpose(1, 2))
        return (out[0] if isinstance(out, tuple) else out).mean(1)


class Tied(nn.Module):
    """One weight used twice, once turned round."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(F.linear(torch.tanh(self.layer(x)), self.layer.weight.T))


class Called(nn.Module):
    """Norms called as functions, with weights of one's own."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(12) + 0.5), nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x, (12,), self.scale, self.shift)
        x = torch.layer_norm(torch.tanh(x), [3, 4], self.scale.view(3, 4), None) if x.dim() == 3 else torch.tanh(x)
        x = torch.batch_norm(x, self.scale, self.shift, None, None, True, 0.1, 1e-5, False)
        rows = torch.tanh(x).view(-1, 3, 4)
        return torch.instance_norm(rows, self.scale[:3], self.shift[:3], None, None, True, 0.1, 1e-5, False).flatten(1)


def head(width: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(width, CLASSES)]


def on_row(*layers: nn.Module, width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 6), nn.Tanh(), *layers, *head(width))


def on_picture(*layers: nn.Module, width: int = 144) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), *layers, *head(width))


def on_series(*layers: nn.Module, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Tanh(), *layers, *head(width))


ZOO = {  # name -> shape of a sample, network
    "linear": (ROW, lambda: on_row(nn.Linear(6, 6), nn.ReLU())),
    "conv1d": (SERIES, lambda: on_series(nn.Conv1d(4, 4, 3, dilation=2, padding=2), nn.Sigmoid())),
    "conv2d-strided": (PICTURE, lambda: on_picture(nn.Conv2d(4, 4, 3, stride=2), nn.ReLU(), width=16)),
    "conv3d": ((1, 3, 4, 4), lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), *head(36))),
    "transposed": (PICTURE, lambda: on_picture(nn.ConvTranspose2d(4, 2, 3, stride=2), nn.Tanh(), width=338)),
    "depthwise": (PICTURE, lambda: on_picture(nn.Conv2d(4, 8, 3, groups=4), nn.Hardswish(), width=128)),
    "pixel-shuffle": (PICTURE, lambda: on_picture(nn.PixelShuffle(2), nn.Conv2d(1, 2, 3), nn.ELU(), width=200)),
    "upsampled": (PICTURE, lambda: on_picture(nn.Upsample(scale_factor=2, mode="bilinear"), width=576)),
    "batchnorm": (PICTURE, lambda: on_picture(nn.BatchNorm2d(4), nn.GELU())),
    "batchnorm-1d": (ROW, lambda: on_row(nn.BatchNorm1d(6), nn.Softplus())),
    "batchnorm-plain": (PICTURE, lambda: on_picture(nn.BatchNorm2d(4, affine=False), nn.Mish())),
    "batchnorm-own": (PICTURE, lambda: on_picture(nn.BatchNorm2d(4, track_running_stats=False), nn.Tanh())),
    "groupnorm": (PICTURE, lambda: on_picture(nn.GroupNorm(2, 4), nn.SiLU())),
    "groupnorm-plain": (PICTURE, lambda: on_picture(nn.GroupNorm(2, 4, affine=False), nn.SiLU())),
    "instancenorm": (PICTURE, lambda: on_picture(nn.InstanceNorm2d(4), nn.Tanh())),
    "instancenorm-affine": (PICTURE, lambda: on_picture(nn.InstanceNorm2d(4, affine=True), nn.Tanh())),
    "instancenorm-1d": (SERIES, lambda: on_series(nn.InstanceNorm1d(4, affine=True), nn.Tanh())),
    "instancenorm-kept": (
        PICTURE,
        lambda: on_picture(nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.Tanh()),
    ),
    "layernorm": (ROW, lambda: on_row(nn.LayerNorm(6), nn.GELU())),
    "layernorm-plain": (ROW, lambda: on_row(nn.LayerNorm(6, elementwise_affine=False), nn.GELU())),
    "layernorm-no-bias": (ROW, lambda: on_row(nn.LayerNorm(6, bias=False), nn.GELU())),
    "layernorm-picture": (PICTURE, lambda: on_picture(nn.LayerNorm((4, 6, 6)), nn.Tanh())),
    "rmsnorm": (ROW, lambda: on_row(nn.RMSNorm(6), nn.SiLU())),
    "local-response": (PICTURE, lambda: on_picture(nn.LocalResponseNorm(2))),
    "norms-called": (ROW, lambda: nn.Sequential(nn.Linear(12, 12), Called(), *head(12))),
    "attention": (SERIES, lambda: nn.Sequential(Tokens(nn.Sequential(nn.Linear(2, 4), Attention(4))), *head(4))),
    "vision-transformer": (
        PICTURE,
        lambda: nn.Sequential(Patches(nn.Sequential(Attention(4), nn.LayerNorm(4))), *head(4)),
    ),
    "encoder-layer": (
        SERIES,
        lambda: nn.Sequential(
            Tokens(nn.Sequential(nn.Linear(2, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))), *head(4)
        ),
    ),
    "lstm": (SERIES, lambda: nn.Sequential(Tokens(nn.LSTM(2, 5, batch_first=True)), *head(5))),
    "gru": (SERIES, lambda: nn.Sequential(Tokens(nn.GRU(2, 5, batch_first=True)), *head(5))),
    "rnn": (SERIES, lambda: nn.Sequential(Tokens(nn.RNN(2, 5, batch_first=True)), *head(5))),
    "max-pooling": (PICTURE, lambda: on_picture(nn.MaxPool2d(2), width=36)),
    "average-pooling": (PICTURE, lambda: on_picture(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), width=16)),
    "prelu": (ROW, lambda: on_row(nn.PReLU(6), nn.LeakyReLU())),
    "glu": (ROW, lambda: on_row(nn.GLU(), width=3)),
    "dropout": (ROW, lambda: on_row(nn.Dropout(0.5), nn.SELU())),
    "weight-norm": (ROW, lambda: on_row(weight_norm(nn.Linear(6, 6)), nn.Tanh())),
    "spectral-norm": (ROW, lambda: on_row(spectral_norm(nn.Linear(6, 6)), nn.Tanh())),
    "softmax": (ROW, lambda: on_row(Residual(nn.Linear(6, 6), nn.Softmax(-1)))),
    "tied": (ROW, lambda: nn.Sequential(Tied(), *head(12))),
    "residual": (PICTURE, lambda: on_picture(Residual(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.CELU()))),
    "squeeze-excite": (PICTURE, lambda: on_picture(SqueezeExcite(4))),
}
WITH_BATCHNORM = ["batchnorm", "batchnorm-1d", "batchnorm-plain", "batchnorm-own", "residual"]


def lively(network: nn.Module) -> nn.Module:
    """Every weight away from its plain start: a scale of 1 and a shift of 0 would hide errors."""
    with torch.no_grad():
        for p in network.parameters():
            p += 0.3 * torch.rand_like(p)
        for name, buffer in network.named_buffers():
            if "running" in name:
                buffer += 0.3 * torch.rand_like(buffer)
    return network


def prepared(name: str, batchnorm: str) -> tuple[nn.Module, str, Tensor, Tensor]:
    torch.manual_seed(len(name))
    shape, build = ZOO[name]
    network = lively(build())
    way = choose_way(network, DataSpec("zoo", shape, CLASSES, "other"))
    inputs = torch.rand(2, 3, *shape, dtype=torch.float64)
    return working_model(network, batchnorm).double(), way, inputs, torch.randint(CLASSES, (2, 3))


def by_finite_differences(model: nn.Module, inputs: Tensor, targets: Tensor, direction: Tensor) -> Tensor:
    """The slope along `direction` of the same combination of gradients, by values of first derivatives alone."""

    def combined(x: Tensor) -> Tensor:
        found = one_by_one(model, x, targets, differentiable=False).values()
        weights = random_like(list(middle.values()))
        return torch.stack([(w * g).sum() for w, g in zip(weights, found, strict=True)]).sum()

    middle = one_by_one(model, inputs, targets, differentiable=False)
    step = 1e-4
    ends = [combined(inputs + k * step * direction) for k in (-2, -1, 1, 2)]
    return (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)


def random_like(gradients: list[Tensor]) -> list[Tensor]:
    """The weights of the combination that `second_derivatives` differentiates."""
    sizes = torch.stack([gradient.detach().norm() for gradient in gradients])
    sizes = sizes.clamp_min(1e-3 * float(sizes.max()))
    g = torch.Generator().manual_seed(2)
    return [
        torch.randn(gradient.shape, generator=g, dtype=torch.float64) / size
        for gradient, size in zip(gradients, sizes, strict=True)
    ]


CASES = [(name, "eval") for name in ZOO] + [(name, "train") for name in WITH_BATCHNORM]


@pytest.mark.parametrize(("name", "batchnorm"), CASES)
def test_second_derivatives_of_every_kind_of_layer_are_those_of_finite_differences(name: str, batchnorm: str) -> None:
    model, _, inputs, targets = prepared(name, batchnorm)
    found = second_derivatives(lambda x: trial_gradients(model, x, targets), inputs)
    slow = second_derivatives(lambda x: one_by_one(model, x, targets), inputs)
    assert float((found - slow).norm()) <= 1e-7 * float(slow.norm())
    for seed in range(3):
        direction = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        expected = by_finite_differences(model, inputs, targets, direction)
        assert abs(float((found * direction).sum() - expected)) <= 1e-5 * float(found.norm() * direction.norm()) / 6


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize(("name", "batchnorm"), CASES)
def test_second_derivatives_layer_by_layer_are_those_of_the_loop(name: str, batchnorm: str, by_products: bool) -> None:
    model, _, inputs, targets = prepared(name, batchnorm)
    if not fits(model) or name == "tied":  # such a weight shows in first derivatives already: `choose_way` sees it
        return

    def found(x: Tensor) -> dict[str, Tensor]:
        gradients = layerwise_gradients(model, x, targets, cross_entropy, by_products)
        assert gradients is not None
        return gradients

    slow = second_derivatives(lambda x: one_by_one(model, x, targets), inputs)
    assert float((second_derivatives(found, inputs) - slow).norm()) <= 1e-7 * float(slow.norm())


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_kind_of_layer_runs_side_by_side(name: str) -> None:
    _, way, _, _ = prepared(name, "eval")
    assert way.startswith("side by side")


class OutOfReach(nn.Module):
    """A norm called where nobody can write it out."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.native_layer_norm(x, [6], self.scale, self.scale, 1e-5)[0]


def test_a_layer_whose_gradients_are_right_and_their_derivatives_wrong_runs_one_after_another() -> None:
    torch.manual_seed(0)
    network = on_row(OutOfReach())
    targets = torch.randint(CLASSES, (2, 3))
    inputs = torch.rand(2, 3, *ROW, dtype=torch.float64)
    model = working_model(network, "eval").double()
    for name, slow in one_by_one(model, inputs, targets).items():
        torch.testing.assert_close(trial_gradients(model, inputs, targets)[name], slow)
    way = choose_way(network, DataSpec("zoo", ROW, CLASSES, "other"))
    assert way.startswith("one after another, because the derivatives of its gradients, which a search follows")
    model = working_model(network, "eval").double()
    found, slow = (
        second_derivatives(lambda x, w=w: w(model, x, targets), inputs) for w in (trial_gradients, one_by_one)
    )
    torch.testing.assert_close(found, slow)

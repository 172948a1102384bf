"""Kinds of data by shape, and the check that every model must pass: twice differentiable, victims apart."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from leakgauge.engine.batchnorm import WrittenOutNorms
from leakgauge.models import load_model, parameter_count
from leakgauge.types import DataSpec

CIFAR = {"mean": (0.49147, 0.48226, 0.44677), "std": (0.24703, 0.24349, 0.26159)}


@pytest.fixture
def image() -> Callable[..., DataSpec]:
    """image(channels, side, classes), with the CIFAR-10 constants where there are three channels."""

    def make(channels: int = 3, side: int = 32, classes: int = 10, constants: bool = True) -> DataSpec:
        known = CIFAR if channels == 3 and constants else {}
        return DataSpec("pictures", (channels, side, side), classes, "image", **known)

    return make


@pytest.fixture
def table() -> DataSpec:
    return DataSpec("table", (30,), 2, "tabular")


@pytest.fixture
def count(image: Callable[..., DataSpec]) -> Callable[..., int]:
    """Parameters of a zoo model; on the meta device, so that VGG16 takes no memory."""

    def run(spec: str, channels: int = 3, side: int = 32, classes: int = 10) -> int:
        with torch.device("meta"):
            return parameter_count(load_model(spec, image(channels, side, classes), seed=0))

    return run


@pytest.fixture
def check_twice_differentiable() -> Callable[..., None]:
    """vmap(grad) agrees with a loop over victims, and so does its derivative in the inputs."""

    def run(model: nn.Module, data: DataSpec) -> None:
        model = model.double()
        parameters = {n: p.detach() for n, p in model.named_parameters()}
        inputs = torch.rand(2, 1, *data.shape, dtype=torch.float64, requires_grad=True)  # (T, N, *shape)
        labels = torch.tensor([[0], [1]])  # (T, N)

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(model, parameters, (x,)), y)

        with WrittenOutNorms():
            together = vmap(grad(loss), (None, 0, 0))(parameters, inputs, labels)
        (slope,) = torch.autograd.grad(sum(g.square().sum() for g in together.values()), inputs)
        for t in range(2):
            x = inputs[t].detach().requires_grad_(True)
            one = F.cross_entropy(model(x), labels[t])
            alone = torch.autograd.grad(one, list(model.parameters()), create_graph=True)
            (slope_alone,) = torch.autograd.grad(sum(g.square().sum() for g in alone), x)
            for name, expected in zip(parameters, alone, strict=True):
                torch.testing.assert_close(together[name][t], expected.detach(), msg=name, rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(slope[t], slope_alone, rtol=1e-6, atol=1e-9)

    return run

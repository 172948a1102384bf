"""The leak of a training step is measured without touching the training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.audit.training_loop import leak_of
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.models import load_model

DIGITS = load("digits", "test", None)


class Wrapper(nn.Module):
    """As Opacus and data parallelism put a network into another."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._module = inner

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self._module(inputs)
        return out


def step(model: nn.Module, samples: int = 1) -> tuple[Tensor, Tensor]:
    inputs, labels = DIGITS.take(torch.arange(samples))
    cross_entropy(model(inputs), labels).backward()
    return inputs, labels


def test_a_single_sample_behind_a_linear_layer_is_recovered() -> None:
    model = load_model("mlp", DIGITS.spec, 0)
    leak = leak_of(model, *step(model), DIGITS.spec)
    assert leak.scores["linear/psnr_mean_per_image"] > 60
    assert leak.scores["labels/label_accuracy"] == 1
    assert leak.errors == {}


def test_training_is_not_touched() -> None:
    model = load_model("mlp", DIGITS.spec, 0).train()
    batch = step(model)
    before = {n: (p.detach().clone(), p.grad.clone()) for n, p in model.named_parameters() if p.grad is not None}
    state = torch.get_rng_state()
    leak_of(model, *batch, DIGITS.spec, ["linear", "dlg:steps=2"])
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.detach(), before[name][0])
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, before[name][1])


def test_a_wrapped_network_is_unwrapped() -> None:
    model = Wrapper(load_model("mlp", DIGITS.spec, 0))
    assert leak_of(model, *step(model), DIGITS.spec).scores["linear/psnr_mean_per_image"] > 60


def test_an_attack_that_does_not_apply_says_why() -> None:
    model = load_model("lenet-dlg", DIGITS.spec, 0)
    leak = leak_of(model, *step(model), DIGITS.spec)
    assert "linear" in leak.errors
    assert "labels/label_accuracy" in leak.scores


def test_missing_gradients_and_other_shapes_are_refused() -> None:
    model = load_model("mlp", DIGITS.spec, 0)
    inputs, labels = DIGITS.take(torch.arange(1))
    with pytest.raises(BadInput, match="after backward"):
        leak_of(model, inputs, labels, DIGITS.spec)
    with pytest.raises(BadInput, match="samples of shape"):
        leak_of(model, inputs[:, :, :4], labels, DIGITS.spec)

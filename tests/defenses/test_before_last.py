"""What dropout and PRECODE share: the last linear layer is replaced, and every client draws for itself."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.defenses._families import with_last_linear, with_own_draws
from leakgauge.engine.randomness import uniform
from leakgauge.errors import NotApplicable
from leakgauge.models.layers import MaskedLinear
from leakgauge.types import Batch


def masked(linear):
    return MaskedLinear(linear, scale=2.0)


def test_the_last_listed_linear_layer_is_replaced_in_a_copy():
    nested = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 3), nn.Identity()))
    changed = with_last_linear(nested, "this", masked)
    assert [type(m) for m in (changed[0], changed[1][0])] == [nn.Linear, MaskedLinear]
    assert type(nested[1][0]) is nn.Linear
    assert type(with_last_linear(nn.Linear(4, 2), "this", masked)) is MaskedLinear


def test_a_model_without_one_is_refused_by_the_defenses_name():
    with pytest.raises(NotApplicable, match=r"this needs a model with an nn\.Linear layer"):
        with_last_linear(nn.Conv2d(1, 2, 3), "this", masked)


def test_every_client_has_its_own_draw_and_the_model_none():
    model = with_last_linear(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), "this", masked).eval()
    g = torch.Generator().manual_seed(0)
    batch = Batch(torch.rand(2, 1, 4, generator=g), torch.tensor([[1], [2]]))
    step = with_own_draws(fedsgd(), MaskedLinear, "mask", lambda seeds, shape: uniform(seeds, "test", shape))
    update = step(model, batch, (7, 8))
    assert (model[2].mask == 1).all()
    for trial, mask in enumerate(uniform((7, 8), "test", (6,))):
        alone = copy.deepcopy(model)
        alone[2].mask = mask
        expected = fedsgd()(alone, batch.take([trial]), (0,))
        for name, tensor in expected.tensors.items():
            torch.testing.assert_close(update.tensors[name][[trial]], tensor)

"""From what was shared to the gradient that is matched."""

import pytest
import torch
from torch import nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import classifier_layer, example_input, observed_gradient
from leakgauge.types import Client


def test_a_gradient_is_taken_as_it_is(scene):
    seen = scene().seen
    found = observed_gradient(seen)
    assert all(torch.equal(found[n], t) for n, t in seen.update.tensors.items())


def test_one_local_step_gives_back_the_gradient(scene):
    made = scene(samples=3, local=Client(kind="fedavg", lr=0.3), dtype=torch.float64)
    slow = fedsgd()(made.seen.model, made.batch, (0, 1))
    for name, found in observed_gradient(made.seen).items():
        torch.testing.assert_close(found, slow.tensors[name], rtol=1e-8, atol=1e-12)


def test_several_local_steps_give_the_average_gradient_along_the_path(scene):
    """With a tiny rate the weights hardly move, so the average is the whole batch's gradient."""
    local = Client(kind="fedavg", epochs=3, batch_size=2, lr=1e-6)
    made = scene("mlp:hidden=8,activation=sigmoid", samples=4, local=local, dtype=torch.float64)
    slow = fedsgd()(made.seen.model, made.batch, (0, 1))
    for name, found in observed_gradient(made.seen).items():
        torch.testing.assert_close(found, slow.tensors[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_example_has_the_models_precision(scene, dtype):
    example = example_input(scene(dtype=dtype).seen)
    assert example.dtype == dtype
    assert example.shape == (1, 1, 8, 8)


def test_the_classifier_is_found_by_name(scene):
    assert classifier_layer(scene("mlp").seen) == "fc2"
    assert classifier_layer(scene("lenet-dlg:filters=2").seen) == "fc"


def test_no_linear_classifier_is_not_applicable(scene):
    net = nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten())
    with pytest.raises(NotApplicable, match=r"ends in one nn\.Linear"):
        classifier_layer(scene(net).seen)

"""What a layer adds to the loss arrives in every way of taking a client's gradient, and nowhere else."""

import copy

import pytest
import torch
from torch import nn

from leakgauge.client.fedavg import fedavg
from leakgauge.engine.gradients import client_gradients, one_by_one, trial_gradients, working_model
from leakgauge.engine.layerwise import layerwise_gradients
from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.penalties import add_penalty, collecting
from leakgauge.types import Batch, Client


class Shrinking(nn.Module):
    """Passes everything on and adds the mean square of what it sees."""

    def forward(self, x):
        add_penalty(0.3 * (x**2).sum(1).mean())
        return x


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), Shrinking(), nn.Linear(4, 3))


@pytest.fixture(scope="module")
def batch():
    g = torch.Generator().manual_seed(1)
    return Batch(torch.rand(3, 4, 5, generator=g), torch.randint(3, (3, 4), generator=g))


def by_hand(model, inputs, labels):
    hidden = torch.tanh(model[0](inputs))
    loss = nn.functional.cross_entropy(model[3](hidden), labels) + 0.3 * (hidden**2).sum(1).mean()
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))


@pytest.mark.parametrize(
    "way",
    [
        trial_gradients,
        one_by_one,
        client_gradients,
        lambda model, x, y: layerwise_gradients(model, x, y, cross_entropy),
    ],
    ids=["side by side", "one by one", "client", "layer by layer"],
)
def test_every_way_of_taking_gradients_has_it(way, model, batch):
    found = way(working_model(model, "eval"), batch.inputs, batch.labels)
    for t in range(3):
        for name, expected in by_hand(model, batch.inputs[t], batch.labels[t]).items():
            torch.testing.assert_close(found[name][t], expected, msg=name)


@pytest.mark.parametrize("norm", [False, True], ids=["side by side", "with running statistics"])
def test_local_training_has_it(norm, model, batch):
    """BatchNorm in train mode takes the plain loop."""
    net = nn.Sequential(*model, nn.BatchNorm1d(3, affine=False)) if norm else model
    local = Client("fedavg", lr=0.1, batchnorm="train" if norm else "eval")
    found = fedavg(local)(net, batch, range(3)).tensors["0.weight"]
    silent = copy.deepcopy(net)
    silent[2] = nn.Identity()
    without = fedavg(local)(silent, batch, range(3)).tensors["0.weight"]
    hidden = torch.tanh(model[0](batch.inputs[0]))
    (alone,) = torch.autograd.grad(0.3 * (hidden**2).sum(1).mean(), [model[0].weight])
    torch.testing.assert_close(found[0] - without[0], -0.1 * alone, rtol=1e-3, atol=1e-6)


def test_it_is_differentiated_in_the_inputs_too(model, batch):
    x = batch.inputs.double().requires_grad_()
    net = working_model(model, "eval").double()

    def length(x):
        return sum((g**2).sum() for g in trial_gradients(net, x, batch.labels).values())

    assert torch.autograd.gradcheck(length, (x,))


def test_outside_of_a_loss_nothing_is_kept_and_blocks_do_not_see_one_another(model, batch):
    model(batch.inputs[0])
    copy.deepcopy(model)  # a tensor with a history left in the layer would be refused
    with collecting() as outer:
        model(batch.inputs[0])
        with collecting() as inner:
            model(batch.inputs[0])
            model(batch.inputs[0])
    assert (len(outer), len(inner)) == (1, 2)

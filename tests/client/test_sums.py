"""The server's mean and the step it takes."""

import math

import pytest
import torch

from leakgauge.client.fedavg import fedavg
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.sums import apply_update, mean_of_rounds, weighted_mean
from leakgauge.errors import BadInput
from leakgauge.types import Client, SharedUpdate

CLIENTS = SharedUpdate("gradient", {"w": torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])})


def test_the_mean_is_equal_by_default():
    torch.testing.assert_close(weighted_mean(CLIENTS).tensors["w"], torch.tensor([[7 / 3, 70 / 3]]))


def test_weights_are_normalised():
    mean = weighted_mean(CLIENTS, [1, 1, 2]).tensors["w"]
    torch.testing.assert_close(mean, torch.tensor([[2.75, 27.5]]))
    torch.testing.assert_close(weighted_mean(CLIENTS, [10, 10, 20]).tensors["w"], mean)


@pytest.mark.parametrize("weights", [[1, 2], [1, 1, -1], [0, 0, 0], [], [1, 1, math.nan], [1, 1, math.inf]])
def test_weights_that_are_no_shares_are_refused(weights):
    with pytest.raises(BadInput, match="aggregation weights must be 3 non-negative numbers"):
        weighted_mean(CLIENTS, weights)


def test_the_mean_of_equal_clients_is_the_whole_batchs_gradient(model, victims):
    net, batch = model(), victims(4, 2)
    mean = weighted_mean(fedsgd()(net, batch, range(4)))
    together = type(batch)(batch.inputs.reshape(1, 8, 1, 8, 8), batch.labels.reshape(1, 8))
    whole = fedsgd()(net, together, (0,))
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(mean.tensors[name], tensor)


def test_shared_buffers_are_averaged_too(model, victims):
    net = model("resnet20:width=2")
    shared = fedavg(Client(kind="fedavg", batchnorm="train"))(net, victims(2, 3), (0, 1))
    mean = weighted_mean(shared)
    assert mean.buffers.keys() == shared.buffers.keys()
    for name, both in shared.buffers.items():
        assert mean.buffers[name].shape == (1, *both.shape[1:])
        assert mean.buffers[name].dtype == both.dtype
        torch.testing.assert_close(mean.buffers[name][0], both.double().mean(0).to(both.dtype))


def test_a_gradient_is_subtracted_and_a_difference_added(model, victims):
    net, batch = model(), victims(1, 3)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    gradient = fedsgd()(net, batch, (0,))
    difference = fedavg(Client(kind="fedavg", lr=0.2))(net, batch, (0,))
    one, other = apply_update(net, gradient, lr=0.2), apply_update(net, difference)
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, before[name] - 0.2 * gradient.tensors[name][0])
        torch.testing.assert_close(a, b)
    assert all(torch.equal(p, before[n]) for n, p in net.named_parameters())


def test_rounds_are_averaged_client_by_client():
    later = CLIENTS.map(lambda _, t: 3 * t)
    mean = mean_of_rounds([CLIENTS, later])
    assert mean.kind == "gradient"
    torch.testing.assert_close(mean.tensors["w"], 2 * CLIENTS.tensors["w"])

"""Clients in a sum train apart, and only the sum arrives."""

import pytest
import torch

from leakgauge.client.chain import chain, client_step
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.summed import in_sum, seeds_of_clients, seen_step
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.secure_aggregation import SecureAggregation
from leakgauge.errors import NotApplicable
from leakgauge.types import Batch, Client

FOUR = SecureAggregation(clients=4, bits=64)
TRAININGS = [Client(), Client(kind="fedavg", lr=0.3, epochs=2, batch_size=1)]


def test_a_chain_without_a_sum_is_the_chain(model, victims):
    net, batch = model(), victims(2, 4)
    one = seen_step(client_step(Client()), Gaussian())(net, batch, (0, 1))
    other = chain(client_step(Client()), Gaussian())(net, batch, (0, 1))
    assert all(torch.equal(one.tensors[n], t) for n, t in other.tensors.items())
    assert in_sum(()) == in_sum((Gaussian(),)) == 1
    assert in_sum((Gaussian(), FOUR)) == 4


def test_the_sum_of_gradients_is_the_gradient_of_one_batch(model, victims):
    net, batch = model(), victims(3, 8)
    seen = seen_step(client_step(Client()), FOUR)(net, batch, (0, 1, 2))
    for name, tensor in fedsgd()(net, batch, (0, 1, 2)).tensors.items():
        torch.testing.assert_close(seen.tensors[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("local", TRAININGS)
def test_each_client_trains_by_itself_with_noise_of_its_own(model, victims, local):
    net, batch = model(), victims(2, 8)
    seen = seen_step(client_step(local), Gaussian(std=0.1), FOUR)(net, batch, (5, 6))
    step = chain(client_step(local), Gaussian(std=0.1))
    for trial, seed in enumerate((5, 6)):
        each = []
        for client, own in enumerate(seeds_of_clients(seed, 4)):
            mine = slice(2 * client, 2 * client + 2)
            each.append(step(net, Batch(batch.inputs[[trial], mine], batch.labels[[trial], mine]), [own]))
        for name, tensor in seen.tensors.items():
            mean = torch.stack([e.tensors[name][0] for e in each]).mean(0)
            torch.testing.assert_close(tensor[trial], mean, rtol=0, atol=1e-12)


def test_running_statistics_are_averaged_behind_masks_too(model, victims):
    local = Client(kind="fedavg", batchnorm="train")
    net, batch = model("resnet20:width=2"), victims(1, 4)
    two = SecureAggregation(clients=2)
    seen = seen_step(client_step(local), two)(net, batch, (0,))
    apart = Batch(batch.inputs.reshape(2, 2, *batch.inputs.shape[2:]), batch.labels.reshape(2, 2))
    each = client_step(local)(net, apart, (0, 1))
    for name, both in each.buffers.items():
        torch.testing.assert_close(seen.buffers[name][0], both.double().mean(0).to(both.dtype), rtol=0, atol=1e-9)


def test_samples_that_cannot_be_shared_out_are_refused(model, victims):
    with pytest.raises(NotApplicable, match="as many samples of each of its 4 clients, not 6"):
        seen_step(client_step(Client()), FOUR)(model(), victims(1, 6), (0,))


def test_the_first_client_has_the_seed_of_its_trial_and_the_others_do_not():
    seeds = seeds_of_clients(7, 5)
    assert seeds[0] == 7
    assert len(set(seeds)) == 5
    assert seeds_of_clients(7, 3) == seeds[:3]

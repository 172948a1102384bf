"""Running averages that a client shares tell the statistics of its batch."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.client.fedavg import fedavg
from leakgauge.client.observe import batchnorm_statistics, facts_about, observe
from leakgauge.types import Batch, Client, DataSpec, Fact, threat_model

DATA = DataSpec("made up", (1, 6, 6), 3, "image", mean=(0.5,), std=(0.2,))
ONE_STEP = Client(kind="fedavg", lr=0.05, batchnorm="train")


def network(momentum=0.1):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.BatchNorm1d(8, momentum=momentum),
        nn.Linear(8, 3),
    )
    return net.double().eval()


def batch(trials=2, samples=8):
    g = torch.Generator().manual_seed(1)
    return Batch(
        torch.rand(trials, samples, 1, 6, 6, generator=g).double(), torch.arange(samples).expand(trials, -1) % 3
    )


def seen(net, local, model="honest-but-curious"):
    held = batch()
    update = fedavg(local)(net, held, (0, 1))
    return observe(net, update, threat_model(model), facts_about(net, held, DATA, local, None))


@pytest.mark.parametrize("momentum", [0.1, 0.9, None], ids=str)
def test_after_one_step_they_are_read_off_exactly(momentum):
    net = network(momentum)
    read, true = seen(net, ONE_STEP).fact(Fact.BATCHNORM_STATISTICS), batchnorm_statistics(net, batch().inputs, "train")
    assert read.keys() == true.keys() == {"1", "5"}
    for name in true:
        for found, expected in zip(read[name], true[name], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_after_several_steps_they_are_near():
    net = network()
    local = dataclasses.replace(ONE_STEP, epochs=3, lr=0.01)
    read, true = seen(net, local).fact(Fact.BATCHNORM_STATISTICS), batchnorm_statistics(net, batch().inputs, "train")
    assert float((read["1"][0] - true["1"][0]).norm() / true["1"][0].norm()) < 0.05


@pytest.mark.parametrize(
    "local", [dataclasses.replace(ONE_STEP, batchnorm="eval"), Client(batchnorm="train")], ids=["eval", "gradient"]
)
def test_where_no_averages_are_shared_nothing_is_read(local):
    observation = seen(network(), local) if local.kind == "fedavg" else None
    if observation is None:
        from leakgauge.client.fedsgd import fedsgd

        net, held = network(), batch()
        update = fedsgd(Client(batchnorm="train"))(net, held, (0, 1))
        observation = observe(
            net, update, threat_model("honest-but-curious"), facts_about(net, held, DATA, local, None)
        )
    assert not observation.knows(Fact.BATCHNORM_STATISTICS)


def test_averages_that_do_not_move_say_nothing():
    assert not seen(network(momentum=0.0), ONE_STEP).knows(Fact.BATCHNORM_STATISTICS)

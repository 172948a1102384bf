"""All samples in one place: as if there were a single client."""

import torch

from leakgauge.federation.centralised import Centralised
from leakgauge.federation.federation import Federated
from leakgauge.types import Client, Federation


def built(kind, digits, net, clients, per_round, local):
    return kind(net, digits, clients, Federation(rounds=2, per_round=per_round), local, (), 0)


def test_pooled_clients_are_one_client(digits, model):
    net, local = model().float(), Client(kind="fedavg", lr=0.1)
    shares = list(torch.arange(60).split(20))
    pooled = built(Centralised, digits, net, shares, 3, local)
    single = built(Federated, digits, net, [torch.arange(60)], 1, local)
    for number in (1, 2):
        assert pooled.run_round(number) > 0
        single.run_round(number)
    for name, tensor in single.model.state_dict().items():
        torch.testing.assert_close(pooled.model.state_dict()[name], tensor, rtol=0, atol=1e-5)


def test_it_trains_on_the_clients_of_the_round_alone(digits, model):
    net, local = model().float(), Client(kind="fedavg", lr=0.1)
    shares = list(torch.arange(60).split(20))
    pooled = built(Centralised, digits, net, shares, 1, local)
    (client,) = pooled.drawn(1)
    pooled.run_round(1)
    other = built(Federated, digits, net, [shares[client]], 1, local)
    other.run_round(1)
    for name, tensor in other.model.state_dict().items():
        torch.testing.assert_close(pooled.model.state_dict()[name], tensor, rtol=0, atol=1e-5)

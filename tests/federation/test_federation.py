"""A federation against the plain loop over its clients, and what defenses do in it."""

import copy
import dataclasses
from typing import ClassVar

import pytest
import torch

from leakgauge.client.chain import client_step
from leakgauge.data import load
from leakgauge.defenses.dgc import DGC
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import BadInput
from leakgauge.federation.federation import Federated, clients_of
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, Defense, Federation, Partition, SharedUpdate

SAMPLES = load("digits", "train", None)
AVERAGED = Client(kind="fedavg", epochs=2, batch_size=4, lr=0.1)
SKEWED = Partition(kind="classes", classes=2, clients=30)


def federated(*defenses: Defense, local: Client = AVERAGED, most: int = 3, **fields) -> Federated:
    settings = Federation(**{"rounds": 3, "per_round": 5, "most": most} | fields)
    model = load_model("mlp", SAMPLES.spec, seed=0).double()
    return Federated(model, SAMPLES, clients_of(SAMPLES, SKEWED, most, 0), settings, local, defenses, 0)


def slow_round(before: Federated, number: int) -> dict[str, torch.Tensor]:
    """Each chosen client alone, then the mean of what they send."""
    from leakgauge.engine.randomness import generator

    order = torch.randperm(len(before.clients), generator=generator(0, f"round/{number}"))
    moved = {n: torch.zeros_like(p) for n, p in before.model.named_parameters()}
    chosen = order[: before.federation.per_round].tolist()
    for client in chosen:
        inputs, labels = SAMPLES.take(before.clients[client][None])
        shared = client_step(before.local)(before.model, Batch(inputs.double(), labels), [0])
        sign = -before.federation.server_lr if shared.kind == "gradient" else 1.0
        for name in moved:
            moved[name] += sign * shared.tensors[name][0].detach() / len(chosen)
    return {n: p.detach() + moved[n] for n, p in before.model.named_parameters()}


@pytest.mark.parametrize("local", [AVERAGED, Client()])
def test_a_round_equals_the_plain_loop_over_its_clients(local):
    running = federated(local=local)
    expected = slow_round(running, 1)
    assert running.run_round(1) > 0
    for name, parameter in running.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-9, atol=1e-12)


def test_clients_hold_few_samples_of_their_own_labels():
    clients = clients_of(SAMPLES, SKEWED, 3, 0)
    assert len(clients) == 30
    for indices in clients:
        labels = SAMPLES.labels[indices]
        assert len(labels.unique()) <= 2
        assert labels.bincount().max() <= 3
    assert len({len(c) for c in clients}) > 1  # not all alike, so that grouping matters
    assert len(torch.cat(clients).unique()) == sum(map(len, clients))


def test_weighting_by_samples_changes_the_mean():
    equal, weighted = federated(), federated(weighting="samples")
    equal.run_round(1)
    weighted.run_round(1)
    assert not torch.equal(equal.model.get_parameter("fc1.weight"), weighted.model.get_parameter("fc1.weight"))


def test_noise_differs_by_round_and_client_and_repeats_by_seed():
    one, again = federated(Gaussian(std=0.1)), federated(Gaussian(std=0.1))
    for running in (one, again):
        running.run_round(1)
        running.run_round(2)
    assert torch.equal(one.model.get_parameter("fc1.weight"), again.model.get_parameter("fc1.weight"))


def test_what_dgc_keeps_back_is_sent_in_a_later_round():
    """With zero momentum and a fixed gradient: sent + kept = what was computed, per client."""
    running = federated(DGC(share=0.95, momentum=0.0), per_round=30, local=Client())
    gradients = {}
    for client, indices in enumerate(running.clients):
        inputs, labels = SAMPLES.take(indices[None])
        gradients[client] = client_step(Client())(running.model, Batch(inputs.double(), labels), [0])
    shared = running._updates([3, 7], 1)
    for row, client in enumerate((3, 7)):
        kept = running.memory[client]["v/fc1.weight"]
        torch.testing.assert_close(shared.tensors["fc1.weight"][row] + kept, gradients[client].tensors["fc1.weight"][0])
    assert (kept != 0).any()


class _Twice(Defense):
    name: ClassVar[str] = "twice"
    summary: ClassVar[str] = "test"
    paper: ClassVar[str] = "none"

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        return updates.map(lambda _, t: 2 * t.mean(0, keepdim=True))


def test_a_defense_may_aggregate_but_only_one_of_them():
    plain, doubled = federated(), federated(_Twice())
    start = copy.deepcopy(plain.model.get_parameter("fc1.weight").detach())
    plain.run_round(1)
    doubled.run_round(1)
    moved, twice = (r.model.get_parameter("fc1.weight").detach() - start for r in (plain, doubled))
    torch.testing.assert_close(2 * moved, twice)
    with pytest.raises(BadInput, match="one that changes what the server does"):
        federated(_Twice(), _Twice())


def test_what_cannot_be_is_refused():
    with pytest.raises(BadInput, match="kind=iid"):
        clients_of(SAMPLES, Partition(), 0, 0)
    with pytest.raises(BadInput, match="per_round"):
        federated(per_round=31)
    with pytest.raises(BadInput, match="last"):
        federated(DGC(), Gaussian())


def test_the_given_model_is_left_alone():
    model = load_model("mlp", SAMPLES.spec, seed=0)
    before = copy.deepcopy(model.state_dict())
    running = Federated(model, SAMPLES, clients_of(SAMPLES, SKEWED, 3, 0), Federation(per_round=2), AVERAGED, (), 0)
    running.run_round(1)
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert dataclasses.is_dataclass(running)

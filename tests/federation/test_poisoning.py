"""Poisoned clients flip labels, send noise, or lie; honest ones stay as they are."""

import pytest
import torch
from torch import nn

from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.aggregator import Reported
from leakgauge.federation.poisoning import Poison
from leakgauge.types import SharedUpdate

CLIENTS = [3, 0, 1]  # as they were drawn; the first ones of the federation are poisoned


def test_flipped_labels_move_by_one_class():
    labels = torch.tensor([[0, 9], [0, 9], [4, 5]])
    assert Poison(clients=1).labels(labels, CLIENTS, 10).tolist() == [[0, 9], [1, 0], [4, 5]]
    assert torch.equal(Poison(kind="noise").labels(labels, CLIENTS, 10), labels)


def test_noise_is_as_large_as_told_and_differs_by_round():
    model = nn.Linear(100, 50)
    update = SharedUpdate("weight_delta", {n: torch.zeros(3, *p.shape) for n, p in model.named_parameters()})
    noisy = Poison(kind="noise", clients=2, scale=3.0).updates(update, model, CLIENTS, seed=0, number=1)
    assert not noisy.tensors["weight"][0].any()
    size = torch.cat([t[1].flatten() for t in noisy.tensors.values()]).norm()
    own = torch.cat([p.detach().flatten() for p in model.parameters()]).norm()
    assert abs(float(size / own) / 3 - 1) < 0.1
    again = Poison(kind="noise", clients=2, scale=3.0).updates(update, model, CLIENTS, seed=0, number=2)
    assert not torch.equal(noisy.tensors["weight"][1], again.tensors["weight"][1])
    assert Poison().updates(update, model, CLIENTS, 0, 1) is update


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_liars_praise_themselves_and_run_others_down(metric):
    reports = Reported(torch.ones(3), "equal", torch.tensor([0.3, 0.9, 0.2]), torch.full((3, 3), 0.5))
    changed = Poison(lies=True, clients=1).reported(reports, CLIENTS, metric)
    assert changed.training[1] == reports.training[2 if metric == "loss" else 1]  # the best of all
    theirs = changed.validation[:, 1]  # what the liar says of each model
    assert theirs[1] == changed.training[1]
    assert (theirs[[0, 2]] >= 5).all() if metric == "loss" else (theirs[[0, 2]] == 0).all()
    assert torch.equal(changed.validation[:, [0, 2]], reports.validation[:, [0, 2]])
    assert Poison().reported(reports, CLIENTS, metric) is reports


def test_somebody_must_be_honest():
    with pytest.raises(BadInput, match="fewer than the 3 clients"):
        Poison(clients=3).check(3)

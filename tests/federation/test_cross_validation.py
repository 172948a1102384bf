"""Local models on each other's samples, against the plain loop."""

import pytest
import torch

from leakgauge.client.sums import apply_update
from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.federation.cross_validation import local_models, split_clients, tried
from leakgauge.federation.rounds import accuracy
from leakgauge.models import load_model
from leakgauge.types import SharedUpdate

SAMPLES = load("digits", "train")
MODEL = load_model("mlp:hidden=8", SAMPLES.spec, seed=0)


def updates(kind: str) -> SharedUpdate:
    g = torch.Generator().manual_seed(1)
    return SharedUpdate(kind, {n: torch.randn(3, *p.shape, generator=g) for n, p in MODEL.named_parameters()})


@pytest.mark.parametrize("kind", ["gradient", "weight_delta"])
@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_every_model_on_every_clients_samples(kind, metric):
    held = [torch.arange(0, 5), torch.arange(5, 300), torch.arange(300, 301)]
    everything = torch.cat(held)
    owners = torch.repeat_interleave(torch.arange(3), torch.tensor([len(h) for h in held]))
    inputs, labels = SAMPLES.take(everything)
    found = tried(MODEL, local_models(MODEL, updates(kind), 0.5), inputs, labels, owners, metric)
    assert found.shape == (3, 3)
    for i in range(3):
        alone = apply_update(MODEL, updates(kind).take([i]), 0.5)
        for j, indices in enumerate(held):
            if metric == "accuracy":
                expected = accuracy(alone, SAMPLES, indices)
            else:
                x, y = SAMPLES.take(indices)
                expected = float(torch.nn.functional.cross_entropy(alone(x), y).detach())
            assert float(found[i, j]) == pytest.approx(expected, rel=1e-4)


def test_a_broken_model_spoils_only_its_own_row():
    models = local_models(MODEL, updates("weight_delta"), 1.0)
    models["fc1.weight"][1] = float("nan")
    inputs, labels = SAMPLES.take(torch.arange(10))
    found = tried(MODEL, models, inputs, labels, torch.arange(10) % 2, "loss")
    assert torch.isnan(found[1]).all()
    assert torch.isfinite(found[[0, 2]]).all()


def test_samples_kept_back_are_a_random_share_of_each_client():
    """Random, because labels may stand in a fixed order: every tenth sample could be all of one class."""
    clients = [torch.arange(0, 100), torch.arange(100, 102)]
    train, kept = split_clients(clients, 0.1, seed=0)
    assert [len(k) for k in kept] == [10, 1]
    for indices, a, b in zip(clients, train, kept, strict=True):
        assert torch.equal(torch.cat([a, b]).sort().values, indices)
    assert len((kept[0] % 2).unique()) == 2
    assert torch.equal(kept[0], split_clients(clients, 0.1, seed=0)[1][0])
    assert not torch.equal(kept[0], split_clients(clients, 0.1, seed=1)[1][0])
    assert split_clients(clients, 0.0, seed=0)[0] == clients


def test_a_client_with_one_sample_cannot_keep_any_back():
    with pytest.raises(BadInput, match="two samples or more"):
        split_clients([torch.arange(5), torch.arange(1)], 0.1, seed=0)

"""A replay is what the client would have shared, in the arithmetic and with the draws that are asked for."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.models import load_model
from leakgauge.recording.replays import SINGLE, ReplayedClient, other_trainings, rounded
from leakgauge.types import Client

SEEDS = (3, 4)
EPOCHS = Client(kind="fedavg", lr=0.1, epochs=2, batch_size=2)


@pytest.fixture(scope="module")
def batch():
    return draw_victims(load("digits"), trials=2, batch_size=4, seed=0)


def client(local=None, defenses=(), model=None):
    model = model or load_model("mlp:hidden=16", load("digits").spec, 0)
    return ReplayedClient(model, local or Client(), defenses, tuple(n for n, _ in model.named_parameters()))


def largest_gap(one, other):
    return max(float((one[n] - other[n]).abs().max()) for n in one)


@pytest.mark.parametrize("local", [Client(), EPOCHS], ids=lambda local: local.kind)
def test_it_is_the_client_step_in_double_precision_and_coarser_ones_are_near(batch, local):
    own = client(local)
    exact = own.replay(batch, SEEDS)
    shared = client_step(local)(own.model, batch, SEEDS)
    assert all(rows.dtype == torch.float64 and len(rows) == 2 for rows in exact.values())
    for name, rows in exact.items():
        assert torch.allclose(rows.float(), shared.tensors[name].flatten(1), atol=1e-5)
    gaps = [largest_gap(own.replay(batch, SEEDS, bits=bits), exact) for bits in (SINGLE, 10, 7)]
    assert 0 < gaps[0] < gaps[1] < gaps[2] < 0.1


def test_rounding_is_that_of_the_formats():
    x = torch.randn(1000, dtype=torch.float64)
    assert torch.equal(rounded(x, 7), x.bfloat16().double())
    assert torch.equal(rounded(x, SINGLE), x.float().double())


def test_only_defenses_that_draw_are_found_to_draw(batch):
    noise = Gaussian(std=0.1)
    assert client(defenses=(Clip(norm=1.0), noise)).drawing(batch, SEEDS) == (noise,)


def test_the_order_of_mini_batches_is_drawn_if_there_are_several(batch):
    own = client(EPOCHS)
    assert own.shuffles(4)
    assert not own.shuffles(2)
    assert not client().shuffles(4)
    plain, shuffled = own.replay(batch, SEEDS), own.replay(batch, SEEDS, shuffled=True)
    assert largest_gap(plain, shuffled) > 1e-4
    assert largest_gap(shuffled, own.replay(batch, SEEDS, shuffled=True)) == 0


def test_dropout_is_drawn_from_the_seed_and_the_model_stays_as_it_was(batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10)).eval()
    own, state = client(model=model), torch.get_rng_state()
    assert own.drops()
    assert not client().drops()
    one, again, other = (own.replay(batch, seeds, drops=True) for seeds in (SEEDS, SEEDS, (9, 9)))
    assert largest_gap(one, again) == 0
    assert largest_gap(one, other) > 1e-3
    assert largest_gap(one, own.replay(batch, SEEDS)) > 1e-3
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(model[2], nn.Dropout)


def test_the_claimed_training_replayed_as_another_one_is_the_same(batch):
    for local in (Client(), EPOCHS):
        own = client(local)
        plain = dataclasses.replace(next(other_trainings(own, 4)), loss=None)
        assert largest_gap(plain.replay(own, batch), own.replay(batch, SEEDS)) < 1e-9


def test_a_momentum_by_hand(batch):
    own = client(Client(kind="fedavg", lr=0.1, epochs=3))
    found = next(t for t in other_trainings(own, 4) if t.words == "SGD with momentum 0.9").replay(own, batch)
    model = load_model("mlp:hidden=16", load("digits").spec, 0).double()
    before, speed = [p.detach().clone() for p in model.parameters()], [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(3):
        loss = F.cross_entropy(model(batch.inputs[0].double()), batch.labels[0])
        with torch.no_grad():
            for p, v, g in zip(
                model.parameters(), speed, torch.autograd.grad(loss, list(model.parameters())), strict=True
            ):
                p -= 0.1 * v.mul_(0.9).add_(g)
    for (name, p), start in zip(model.named_parameters(), before, strict=True):
        assert torch.allclose(found[name][0], (p - start).flatten(), atol=1e-10)


def test_what_would_make_no_difference_is_not_tried():
    words = [t.words for t in other_trainings(client(), 4)]
    assert not any("momentum" in w or "Adam" in w for w in words)
    one_step = [t.words for t in other_trainings(client(Client(kind="fedavg")), 4)]
    assert "Adam" in one_step
    assert not any("momentum" in w for w in one_step)

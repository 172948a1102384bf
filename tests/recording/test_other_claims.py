"""Other claims are as they are written behind --local, give other updates, and are found from the update itself."""

import dataclasses

import pytest
import torch

from leakgauge.data import draw_victims, load
from leakgauge.models import load_model
from leakgauge.recording.other_claims import OtherClaim, as_text, other_claims, rounded_claims, solved_for
from leakgauge.recording.replays import ReplayedClient
from leakgauge.types import Client

SEEDS = (3,)
STEPS = Client(kind="fedavg", lr=0.1, epochs=3)


@pytest.fixture(scope="module")
def batch():
    return draw_victims(load("digits"), trials=1, batch_size=4, seed=0)


def client(local):
    model = load_model("mlp:hidden=16", load("digits").spec, 0)
    return ReplayedClient(model, local, (), tuple(n for n, _ in model.named_parameters()))


@pytest.mark.parametrize(
    "local",
    [
        Client(),
        STEPS,
        Client(kind="fedavg", lr=1e-3, optimizer="adamw", weight_decay=0.01, batch_size=2),
        Client(kind="fedavg", lr=0.02, momentum=0.9, nesterov=True, schedule="cosine", class_weights="1+2"),
    ],
    ids=as_text,
)
def test_the_text_is_read_back_as_the_same_claim(local):
    assert Client.from_text(as_text(local)) == local


def test_adamw_without_decay_is_written_as_adam():
    assert as_text(Client(kind="fedavg", optimizer="adamw")) == "kind=fedavg,lr=0.01,optimizer=adam"


def test_each_is_another_claim_and_can_be_claimed(batch):
    for local in (Client(), STEPS, dataclasses.replace(STEPS, optimizer="adam", lr=1e-3)):
        found = list(other_claims(client(local), 4))
        assert all(o.local != local or o.decay_in_gradient for o in found)
        assert all(Client.from_text(as_text(o.local)).kind == local.kind for o in found)


def test_what_would_make_no_difference_is_not_tried():
    assert not any(o.local.momentum or o.local.adaptive for o in other_claims(client(Client()), 4))
    one_step = list(other_claims(client(Client(kind="fedavg")), 4))
    assert any(o.local.optimizer == "adam" for o in one_step)
    assert not any(o.local.momentum for o in one_step)


def test_targets_of_0_and_1_are_the_one_hot_labels(batch):
    claim = next(o for o in other_claims(client(Client()), 4) if o.local.loss == "mse")
    found, own = claim.replay(client(Client()), batch, SEEDS), client(Client())
    model = own.model.double()
    targets = torch.nn.functional.one_hot(batch.labels[0], 10).double()
    loss = torch.nn.functional.mse_loss(model(batch.inputs[0].double()), targets)
    for (name, _), slope in zip(
        model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
    ):
        assert torch.allclose(found[name][0], slope.flatten(), atol=1e-10)


def test_decay_in_a_gradient_is_the_weights_times_it(batch):
    own = client(Client())
    plain = own.replay(batch, SEEDS)
    found = OtherClaim(Client(), decay_in_gradient=0.01).replay(own, batch, SEEDS)
    for name, p in own.model.named_parameters():
        assert torch.allclose(found[name][0] - plain[name][0], 0.01 * p.detach().double().flatten(), atol=1e-12)


@pytest.mark.parametrize(
    ("true", "start"),
    [
        (dataclasses.replace(STEPS, weight_decay=3e-4), STEPS),
        (dataclasses.replace(STEPS, momentum=0.7), dataclasses.replace(STEPS, momentum=0.5)),
        (dataclasses.replace(STEPS, lr=0.13, weight_decay=1e-3), STEPS),
        (
            dataclasses.replace(STEPS, optimizer="rmsprop", lr=1e-3),
            dataclasses.replace(STEPS, optimizer="rmsprop", lr=9e-4),
        ),
    ],
    ids=["decay", "momentum", "rate and decay", "rate of rmsprop"],
)
def test_rate_decay_and_momentum_are_solved_for(batch, true, start):
    own = client(true)
    seen = own.replay(batch, SEEDS)

    def replay(local):
        return dataclasses.replace(own, local=local).replay(batch, SEEDS)

    wanted = pytest.approx((true.lr, true.weight_decay, true.momentum), rel=5e-3, abs=1e-4)
    found = [c for c in solved_for(start, seen, replay, 3) if (c.lr, c.weight_decay, c.momentum) == wanted]
    assert found
    assert true in list(rounded_claims(found[0], start))

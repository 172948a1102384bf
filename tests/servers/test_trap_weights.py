"""Trap weights: a unit that answers to one sample gives it away, and agreement between rows proves it."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.errors import NotApplicable
from leakgauge.models import load_model
from leakgauge.servers.trap_weights import TrapWeights, agreement, strongest_of_each
from leakgauge.types import Batch, Client, Observation, Reconstruction, threat_model

VICTIMS, OTHERS = load("photos32"), load("photos32", "train")
DATA = VICTIMS.spec
FROZEN = nn.Linear(3072, 8).requires_grad_(False)


@dataclass(frozen=True)
class Scene:
    batch: Batch
    seen: Observation
    result: Reconstruction

    def alone(self) -> Tensor:
        """(T, N) how many units answer to this sample and to no other of its batch."""
        outputs = self.seen.model.fc1(self.seen.model[:-3](self.batch.inputs.flatten(0, 1)))
        on = (outputs > 0).reshape(*self.batch.labels.shape, -1)  # (T, N, M)
        return (on & (on.sum(1, keepdim=True) == 1)).sum(2)

    def error(self) -> Tensor:
        return torch.cdist(self.batch.inputs.flatten(2), self.result.inputs.flatten(2), p=float("inf")).amin(2)


def scene(
    attack=None, model="mlp:hidden=200", *, trials=3, samples=8, dtype=torch.float64, local=None, public=True
) -> Scene:
    attack, local = attack or TrapWeights(), local or Client()
    drawn, known = draw_victims(VICTIMS, trials, samples, 0), public_batch(OTHERS, 256, 0)
    batch = Batch(drawn.inputs.to(dtype), drawn.labels)
    known = Batch(known.inputs.to(dtype), known.labels) if public else None
    net = load_model(model, DATA, 0).to(dtype) if isinstance(model, str) else model
    sent = attack.prepare(net, DATA, known)
    update = client_step(local)(sent, batch, range(trials))
    seen = observe(sent, update, threat_model("malicious-parameters"), facts_about(sent, batch, DATA, local, known))
    return Scene(batch, seen, attack(seen, range(trials)))


@pytest.mark.parametrize("loss", ["cross-entropy", "nll-on-logits"])
@pytest.mark.parametrize(("dtype", "exact"), [(torch.float32, 1e-5), (torch.float64, 1e-8)])
def test_a_sample_that_a_unit_answers_to_alone_is_recovered_and_certified(dtype, exact, loss):
    made = scene(dtype=dtype, local=Client(loss=loss))
    certain = made.alone() > 0
    assert certain.sum() > 5
    assert made.error()[certain].max() < exact
    for trial, count in enumerate(certain.sum(1).tolist()):
        assert made.result.notes[trial].endswith(f"{count} of 8 certified")
        claims = made.result.inputs[trial, :count].flatten(1)
        nearest = torch.cdist(claims, made.batch.inputs[trial].flatten(1), p=float("inf")).amin(1)
        assert nearest.max() < exact, "the certified come first"


def test_no_sample_is_claimed_twice():
    claims = scene().result.inputs.flatten(2)
    for trial in claims:
        own = trial[(trial != 0.5).any(1)]
        distance = torch.cdist(own, own) + 10 * torch.eye(len(own), dtype=own.dtype)
        assert distance.min() > 1e-6


def test_rows_are_half_negative_and_their_opposites_shrunk():
    for size in (10, 11):
        rows = TrapWeights(scale=0.9, sigma=0.5)._rows(40, size, None)
        for row in rows:
            negative, positive = -row[row < 0], row[row > 0]
            assert len(positive) == size // 2
            assert len(negative) == size - size // 2
            gaps = (positive[:, None] / 0.9 - negative).abs().amin(1)
            assert gaps.max() < 1e-12
    assert rows[rows < 0].mean() == pytest.approx(-0.5 * (2 / torch.pi) ** 0.5, rel=0.2)
    assert not torch.equal(TrapWeights(secret=1)._rows(4, 10, None), TrapWeights(secret=2)._rows(4, 10, None))


def test_the_scale_can_be_set_by_how_many_public_samples_a_unit_answers_to():
    for share in (0.02, 0.2):
        sent = TrapWeights(active=share).prepare(load_model("mlp", DATA, 0), DATA, public_batch(OTHERS, 256, 0))
        inputs = public_batch(OTHERS, 256, 0).inputs[0].flatten(1)
        assert (sent.fc1(inputs) > 0).double().mean() == pytest.approx(share, abs=0.005)


def test_a_given_share_without_public_samples_is_refused():
    with pytest.raises(NotApplicable, match="active is measured on public samples"):
        TrapWeights(active=0.1).prepare(load_model("mlp", DATA, 0), DATA)


def test_a_normalisation_inside_the_model_is_undone():
    made = scene(model="mlp:hidden=200,normalize=data")
    plain = scene()
    torch.testing.assert_close(made.alone(), plain.alone())
    assert made.error()[made.alone() > 1].max() < 1e-8


def test_only_the_first_layer_changes_and_the_given_model_does_not():
    net = load_model("mlp", DATA, 0)
    before = copy.deepcopy(net.state_dict())
    sent = TrapWeights().prepare(net, DATA)
    for key, tensor in before.items():
        assert torch.equal(net.state_dict()[key], tensor)
        assert torch.equal(sent.state_dict()[key], tensor) == key.startswith("fc2")
    assert (sent.fc1.bias == 0).all()


def test_a_batch_of_one_is_recovered_with_its_label():
    made = scene(TrapWeights(active=0.2), samples=1)
    certain = made.alone()[:, 0] > 1
    assert certain.any()
    assert made.error()[certain].max() < 1e-8
    assert torch.equal(made.result.labels, made.batch.labels)


def test_a_batch_that_no_unit_answers_to_is_grey():
    made = scene(TrapWeights(scale=0.1))
    assert (made.result.inputs == 0.5).all()
    assert (made.result.objective == 1).all()


def test_trials_together_equal_trials_alone():
    made = scene()
    for trial in range(3):
        alone = TrapWeights()(made.seen.take([trial]), [trial])
        torch.testing.assert_close(alone.inputs[0], made.result.inputs[trial])
        assert alone.notes == made.result.notes[trial : trial + 1]


def test_local_steps_leave_rows_of_one_sample_exact():
    made = scene(local=Client(kind="fedavg", epochs=2, lr=1e-4))
    certain = made.alone() > 1
    assert (made.error()[certain] < 1e-4).double().mean() > 0.9


def test_fewer_units_than_samples_still_give_as_many_claims():
    assert scene(model="mlp:hidden=4").result.inputs.shape == (3, 8, *DATA.shape)


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(1800, 9)), r"first here is '0' \(Conv2d\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 8), nn.Sigmoid(), nn.Linear(8, 9)), "ReLU behind '1'"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 8), nn.LeakyReLU(), nn.Linear(8, 9)), "ReLU behind '1'"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 8, bias=False), nn.ReLU(), nn.Linear(8, 9)), "bias in '1'"),
        (nn.Sequential(nn.Flatten(), FROZEN, nn.ReLU(), nn.Linear(8, 9)), "'1'.*frozen"),
    ],
)
def test_refusals_name_the_layer(net, reason):
    with pytest.raises(NotApplicable, match=reason):
        TrapWeights().prepare(net, DATA)


def test_candidates_agree_only_with_their_equals():
    g = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 50, generator=g, dtype=torch.float64)
    candidates = torch.stack((first, second, first * (1 + 1e-15), (first + second) / 2, first))[None]
    valid = torch.tensor([[True, True, True, True, False]])
    agreed = agreement(candidates, valid, torch.zeros(1, 5, dtype=torch.float64))[0]
    assert agreed.sum(1).tolist() == [2, 1, 2, 1, 0]
    strength = torch.tensor([[0.1, 0.2, -0.3, 0.1, 9.0]])
    assert strongest_of_each(agreed[None], strength)[0].tolist() == [False, True, True, True, True]

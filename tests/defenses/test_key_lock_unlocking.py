"""Scale and shift of a locked normalisation are a part of the search, as far as they were not told."""

import pytest
import torch

from leakgauge.attacks.idlg import IDLG
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.key_lock import KeyLock, with_unlocking
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import matching_of
from leakgauge.models import load_model
from leakgauge.models.locked_norm import draw_locks
from leakgauge.types import Batch, Client, Known, threat_model

SEEDS = (5, 6)
TRAIN = Client(batchnorm="train")


def scene(told="nothing", act="sigmoid", length=16, dtype=torch.float32, first_lock="client"):
    data = load("digits")
    defense = KeyLock(length=length, activation=act, told=told, first_lock=first_lock)
    net = defense.prepare(load_model("lenet-dlg:filters=4", data.spec, 0)).to(dtype)
    batch = draw_victims(data, 2, 1, 0)
    batch = Batch(batch.inputs.to(dtype), batch.labels)
    update = chain(client_step(TRAIN), defense)(net, batch, SEEDS)
    facts = facts_about(net, batch, data.spec, TRAIN, None)
    observation = observe(net, update, threat_model("honest-but-curious"), facts)
    problem = matching_of(observation, batch.labels, distance="l2", prior=lambda _, x, __: x.new_zeros(len(x)))
    return batch, observation, problem, draw_locks(SEEDS, net.conv1.lock, "default")


def value(problem, z):
    return problem.evaluator(torch.arange(len(z)))(z)[0]


@pytest.mark.parametrize("act", ["identity", "sigmoid", "relu"])
@pytest.mark.parametrize("told", ["nothing", "key", "lock", "both"])
def test_at_the_truth_with_the_clients_lock_nothing_is_left(told, act):
    batch, observation, problem, drawn = scene(told, act)
    wider = with_unlocking(problem, observation)
    lock = problem.model.conv1.lock
    if told in ("nothing", "key"):  # a key without its lock says nothing
        hidden = torch.einsum("tij,tj->ti", drawn["weight"], drawn["key"]) + drawn["bias"] - lock.bias
    else:
        hidden = (drawn["key"] - lock.key)[:, : 16 if told == "lock" else 0]
    truth = torch.cat((batch.inputs.flatten(1), hidden / wider.hidden_unit), 1)
    assert wider.width == truth.shape[1]
    assert (value(wider, truth) < 1e-9).all()
    assert (value(problem, batch.inputs.flatten(1)) > 1e-6).all()


@pytest.mark.parametrize("act", ["identity", "sigmoid", "relu"])
@pytest.mark.parametrize("first_lock", ["server", "client"])
@pytest.mark.parametrize("told", ["gradient", "key-and-gradient"])
def test_the_locks_gradient_gives_the_key_and_is_matched_too(told, first_lock, act):
    batch, observation, problem, drawn = scene(told, act, first_lock=first_lock, dtype=torch.float64)
    wider = with_unlocking(problem, observation)
    assert "conv1.lock.bias" in wider.observed
    assert "conv1.lock.weight" not in wider.observed, "it is the bias's times the key, and much larger"
    torch.testing.assert_close(wider.masks["conv1.lock.key"], drawn["key"].double(), rtol=1e-9, atol=1e-9)
    hidden = torch.zeros(2, 0)
    if first_lock == "client":  # a lock that nobody else has seen: its two numbers per channel are left to find
        lock = problem.model.conv1.lock
        hidden = (torch.einsum("tij,tj->ti", drawn["weight"], drawn["key"]) + drawn["bias"] - lock.bias).detach()
    truth = torch.cat((batch.inputs.flatten(1), hidden / wider.hidden_unit), 1)
    assert wider.width == truth.shape[1]
    assert (value(wider, truth) < 1e-12).all()
    assert (value(problem, batch.inputs.flatten(1)) > 1e-6).all(), "who does not divide has another network"


@pytest.mark.parametrize("told", ["nothing", "key"])
def test_behind_the_servers_lock_only_the_key_is_hidden(told):
    batch, observation, problem, drawn = scene(told, "identity", first_lock="server")
    wider = with_unlocking(problem, observation)
    lock = problem.model.conv1.lock
    assert list(wider.hidden) == (["conv1.lock.key"] if told == "nothing" else [])
    hidden = (drawn["key"] - lock.key)[:, : 16 if told == "nothing" else 0]
    truth = torch.cat((batch.inputs.flatten(1), hidden / wider.hidden_unit), 1)
    assert (value(wider, truth) < 1e-9).all()


def test_what_is_hidden_begins_at_the_public_values():
    _, observation, problem, _ = scene()
    wider = with_unlocking(problem, observation)
    buffers = wider.buffers_in(torch.zeros(2, wider.width))
    assert torch.equal(buffers["conv1.lock.shift"], torch.zeros(2, 8))


def test_trials_together_equal_trials_alone():
    _, observation, _, _ = scene("lock", dtype=torch.float64)  # in float32 rounding grows
    attack, known = IDLG(steps=2, restarts=1), (Known(KeyLock(length=16, activation="sigmoid"), "joint"),)
    together = attack(observation, SEEDS, known=known)
    alone = attack(observation.take([1]), SEEDS[1:], known=known)
    torch.testing.assert_close(alone.inputs, together.inputs[[1]], rtol=1e-2, atol=1e-2)


def test_models_without_a_lock_are_refused():
    data = load("digits")
    net = load_model("lenet-dlg:filters=4", data.spec, 0)
    batch = draw_victims(data, 1, 1, 0)
    facts = facts_about(net, batch, data.spec, TRAIN, None)
    observation = observe(net, client_step(TRAIN)(net, batch, [0]), threat_model("eavesdropper"), facts)
    for way in KeyLock().ways(IDLG()):
        with pytest.raises(NotApplicable, match="locked normalisation"):
            IDLG()(observation, [0], known=(Known(KeyLock(), way),))

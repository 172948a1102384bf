"""A client's own key works, another does not, and without a lock this is federated averaging."""

import copy

import pytest
import torch

from leakgauge.data import load
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.errors import NotApplicable
from leakgauge.fl.federation import Federated
from leakgauge.fl.locked_training import LockedTraining, train_locked
from leakgauge.fl.partition import iid
from leakgauge.models import load_model
from leakgauge.models._key_lock import with_norm
from leakgauge.types import Federation, LocalTraining

HOW = LockedTraining(rounds=6, epochs=3, batch_size=32, lr=0.05)


@pytest.fixture(scope="module")
def federation():
    train, test = load("digits", "train"), load("digits", "test")
    return train, test, iid(train.labels, 3, seed=0)


def model():
    return load_model("lenet-dlg:filters=8,activation=relu,init=default", load("digits").spec, 0)


def test_the_own_key_opens_and_a_random_one_does_worse(federation):
    locked = with_norm(model(), "first", length=64)
    before = copy.deepcopy(locked.state_dict())
    found = train_locked(locked, *federation, HOW, seed=0)
    assert len(found.own) == len(found.other_key) == 3
    assert min(found.own) > 0.8
    assert found.server < min(found.own) - 0.1
    assert all(torch.equal(t, before[n]) for n, t in locked.state_dict().items())


def test_without_a_lock_everyone_has_the_same_model(federation):
    found = train_locked(with_norm(model(), "first"), *federation, HOW, seed=0)
    assert {*found.own, *found.other_key} == {found.server}
    assert found.server > 0.8


def test_the_same_seed_gives_the_same_accuracies(federation):
    short = LockedTraining(rounds=1)
    locked = with_norm(model(), "first", length=16, act="sigmoid")
    first, second = (train_locked(locked, *federation, short, seed=1) for _ in range(2))
    assert (first.own, first.other_key, first.server) == (second.own, second.other_key, second.server)


def test_a_federation_that_keeps_no_locks_refuses():
    train = load("digits", "train")
    with pytest.raises(NotApplicable, match="locked_training"):
        Federated(
            model(), train, iid(train.labels, 3, seed=0), Federation(per_round=3), LocalTraining(), (KeyLock(),), 0
        )

"""Defenses act in the order written."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.defenses.prune import Prune
from leakgauge.types import Client, Defense


@dataclass(frozen=True)
class Affine(Defense):
    """x -> factor x + shift: two of these do not commute."""

    name: ClassVar[str] = "affine"
    summary: ClassVar[str] = "test"
    paper: ClassVar[str] = "none"
    factor: float = 1.0
    shift: float = 0.0

    def wrap(self, step):
        return lambda *args: step(*args).map(lambda _, t: self.factor * t + self.shift)

    def prepare(self, model):
        return nn.Sequential(model, nn.Flatten()) if self.shift else model


def test_the_first_written_touches_the_update_first(model, victims):
    net, batch = model(), victims(2, 2)
    plain = client_step(Client())
    undefended = plain(net, batch, (0, 1))
    shift_then_double = chain(plain, Affine(shift=1.0), Affine(factor=2.0))(net, batch, (0, 1))
    double_then_shift = chain(plain, Affine(factor=2.0), Affine(shift=1.0))(net, batch, (0, 1))
    for name, g in undefended.tensors.items():
        torch.testing.assert_close(shift_then_double.tensors[name], 2 * (g + 1))
        torch.testing.assert_close(double_then_shift.tensors[name], 2 * g + 1)


def test_no_defense_leaves_the_step_alone(model, victims):
    step = client_step(Client())
    assert chain(step) is step


def test_pruning_before_and_after_noise_differ_in_what_is_zero(model, victims):
    net, batch = model(), victims(1, 1)
    step = client_step(Client())
    after = chain(step, Affine(shift=0.1), Prune(share=0.5))(net, batch, (0,))
    before = chain(step, Prune(share=0.5), Affine(shift=0.1))(net, batch, (0,))
    assert (after.tensors["fc1.weight"] == 0).float().mean() >= 0.5
    assert (before.tensors["fc1.weight"] == 0).float().mean() < 0.5


def test_client_step_follows_local_training(model, victims):
    net, batch = model(), victims(1, 2)
    assert client_step(Client())(net, batch, (0,)).kind == "gradient"
    assert client_step(Client(kind="fedavg"))(net, batch, (0,)).kind == "weight_delta"


def test_prepared_changes_a_network_through_every_defense(model):
    net = model()
    assert prepared(net) is net
    assert prepared(net, Affine(factor=3.0)) is net
    twice = prepared(net, Affine(shift=1.0), Affine(shift=1.0))
    assert twice[0][0] is net


def test_the_undefended_step_shows_its_training():
    """So that a defense can act inside it."""
    local = Client(kind="fedavg", epochs=2)
    assert client_step(local).local == local

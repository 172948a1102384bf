"""From local training and defenses to the one step a client runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from leakgauge.client.fedavg import fedavg
from leakgauge.client.fedsgd import fedsgd
from leakgauge.types import Batch, Client, Defense, SharedUpdate, Step


@dataclass(frozen=True)
class ClientStep:
    """The undefended step. It shows the training it runs, so that a defense can act inside it, not only around it."""

    local: Client
    shuffled: bool = False  # does it draw the order of its samples anew in every epoch?

    def __call__(self, model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        local = self.local
        step = fedsgd(local) if local.kind == "fedsgd" else fedavg(local, self.shuffled)
        return step(model, batch, seeds)


def client_step(local: Client) -> Step:
    """The undefended step that `local` describes."""
    return ClientStep(local)


def chain(step: Step, *defenses: Defense) -> Step:
    """`step` with the defenses around it; they act in the order written: the first touches the update first."""
    for defense in defenses:
        step = defense.wrap(step)
    return step


def prepared(model: nn.Module, *defenses: Defense) -> nn.Module:
    """`model` with whatever the defenses put into the network."""
    for defense in defenses:
        model = defense.prepare(model)
    return model

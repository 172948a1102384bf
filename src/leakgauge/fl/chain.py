"""From local training and defences to the one step a client runs."""

from __future__ import annotations

from torch import nn

from leakgauge.fl.fedavg import fedavg
from leakgauge.fl.fedsgd import fedsgd
from leakgauge.types import Defense, LocalTraining, Step


def client_step(local: LocalTraining) -> Step:
    """The undefended step that `local` describes."""
    return fedsgd(local.batchnorm, local.loss) if local.kind == "fedsgd" else fedavg(local)


def chain(step: Step, *defenses: Defense) -> Step:
    """`step` with the defences around it; they act in the order written: the first touches the update first."""
    for defense in defenses:
        step = defense.wrap(step)
    return step


def prepared(model: nn.Module, *defenses: Defense) -> nn.Module:
    """`model` with whatever the defences put into the network."""
    for defense in defenses:
        model = defense.prepare(model)
    return model

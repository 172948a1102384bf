"""What the tables share: the two attacks, the defenses as the paper sets them, and the federations that train."""

from __future__ import annotations

from typing import Any

from leakgauge.lab.reproduce.recipe import Run, Study
from leakgauge.lab.reproduce.training import FederatedTraining
from leakgauge.types import UNDEFENDED, Client, Federation, Partition, Scenario

DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
VICTIMS = 50
DGA = "cpl:steps=75"  # L-BFGS, 1,500 iterations at most; the paper: 500
GIA = "inverting-gradients:steps=500"  # the paper: 1,000
LENET, CONVNET = "lenet-cpl", "convnet"  # untrained, as attacked
TRAINED = (
    "lenet-cpl:activation=relu,init=default"  # the attacked network, with sigmoids, does not learn in so few rounds
)
_LABELS_KNOWN = "honest-but-curious+labels"
OF_MNIST = Partition(kind="classes", clients=100, classes=2)
OF_CIFAR = Partition(kind="classes", clients=1000, classes=2)


def by_dga(data: str, defense: str = UNDEFENDED, **more: Any) -> Run:
    """The deep gradient attack: squared distance and L-BFGS, on the sigmoid LeNet."""
    return _attacked(**{"model": LENET, "data": data, "attacks": (DGA,)} | more, defense=defense)


def by_gia(data: str, variant: str, defense: str = UNDEFENDED, **more: Any) -> Run:
    """The gradient inversion attack: cosine distance and Adam, on the convolutional network.

    Each kind of attacker is a separate run, so that none takes long. TF32 is precise enough for a direction.
    """
    given = {"model": CONVNET, "data": data, "attacks": (GIA,), "precision": "tf32"} | more
    return _attacked(**given, variants=variant if defense != UNDEFENDED else "both", defense=defense)


def _attacked(*, defense: str, **more: Any) -> Run:
    chains = () if defense == UNDEFENDED else (defense,)
    return Run(Scenario(**more, defenses=chains, threat_model=_LABELS_KNOWN, trials=VICTIMS))


def trained(data: str, defense: str = UNDEFENDED, *, rounds: int = 200, seeds: int = 1) -> Study:
    """The federation of a data set. Clients send gradients, as they do where they are attacked."""
    if data == "cifar10":
        fewer = Federation(rounds=100, per_round=20, most=20, server_lr=0.2)  # the paper: 2,000 rounds of 200 clients
        return federated(data, defense, OF_CIFAR, fewer, Client(), seeds)
    federation = Federation(rounds=rounds, per_round=10, most=10, server_lr=0.2)
    return federated(data, defense, OF_MNIST, federation, Client(), seeds)


def averaged(data: str, lr: float, batch_size: int, *, seeds: int = 1) -> Study:
    """The paper's federation for MNIST without a defense: two local epochs, weights averaged."""
    local = Client(kind="fedavg", epochs=2, lr=lr, batch_size=batch_size)
    return federated(data, UNDEFENDED, OF_MNIST, Federation(rounds=200, per_round=10, most=10), local, seeds)


def federated(
    data: str, defense: str, partition: Partition, federation: Federation, local: Client, seeds: int
) -> Study:
    training = FederatedTraining(
        model=TRAINED, data=data, defense=defense, partition=partition, federation=federation, local=local
    )
    return Study(training, seeds)

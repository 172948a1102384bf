"""What all tables of the paper share: four data sets, one network, one attack."""

from __future__ import annotations

from typing import Any

from leakgauge.lab.reproduce.recipe import Run, Study
from leakgauge.lab.reproduce.training import FederatedTraining
from leakgauge.types import UNDEFENDED, Client, Federation, Partition, Scenario

DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "lfw": "LFW"}
TRIALS = 100  # the paper: 100 images x 10 seeds
FEWER = 50  # where a defense makes the attack use all its steps
CPL = "cpl:absolute_threshold=0.0001"  # one reading: of the squared distance, whatever the gradient's size
DLG = "dlg:restarts=1,absolute_threshold=0.0001"
INVERTING = "inverting-gradients:sign=hard,decay=steps"  # as published
SCORES = ("steps_mean", "asr", "ssim", "mse")  # what Tables 6 to 9 print of every attack, in this order


def cpl(start: str = "patterned-2") -> str:
    return CPL if start == "patterned-2" else f"{CPL},init={start}"


def started(data: str, start: str = "patterned-2") -> Run:
    """CPL without any defense; the claim about the two main starts is tested at three seeds."""
    claimed = data in ("cifar10", "lfw") and start in ("patterned-2", "random")
    return attacked(data, cpl(start), seeds=3 if claimed else 1)


def attacked(
    data: str, attack: str, *, model: str = "lenet-cpl", trials: int = TRIALS, seeds: int = 1, **more: Any
) -> Run:
    """One victim per update unless `more` says otherwise."""
    return Run(Scenario(model=model, data=data, attacks=(attack,), trials=trials, **more), seeds)


def trained(data: str, defense: str = UNDEFENDED) -> Study:
    """The paper's federation: 10 of 100 clients in a round, LeNet for MNIST and LFW, ResNet-20 for CIFAR.

    Rounds, rates and local steps are ours; the paper names none.
    """
    model = "resnet20" if data.startswith("cifar") else "lenet-cpl:activation=tanh,init=default"
    return Study(
        FederatedTraining(
            model=model,
            data=data,
            defense=defense,
            partition=Partition(kind="iid", clients=100),
            local=Client(kind="fedavg", epochs=2, batch_size=32, lr=0.05, batchnorm="train"),
            federation=Federation(rounds=100, per_round=10),
        )
    )

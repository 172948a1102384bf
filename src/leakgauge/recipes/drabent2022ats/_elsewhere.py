"""Policies where they were not searched: on other data, and before the training has begun to matter."""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Table
from leakgauge.recipes.drabent2022ats._leaks import CONVENTION, named
from leakgauge.recipes.drabent2022ats._set_up import (
    AFTERWARDS,
    BETTER,
    CONVNET,
    EARLY_HYBRID,
    HYBRID,
    KNOWN,
    LBFGS,
    LENET,
    NAMES,
    OF_CONVNET,
    PLAIN,
    QUICK_LBFGS,
    RESNET,
    SHORTER,
    THROUGH,
    attacked,
    bare_figures,
    plain_figures,
    told,
    with_training,
)
from leakgauge.types import Training

_DATA = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "tiny-imagenet": "Tiny-ImageNet"}
_OWN = ("19-15-45/2-43-21", "42-28-42/14-48-48")  # found for Fashion-MNIST with ResNet20-4 and with ConvNet
_TRANSFERRED: dict[tuple[str, str], dict[str, float | None]] = {  # network, data -> policy -> the replication's PSNR
    (RESNET, "fashion-mnist"): {"": 9.81, HYBRID: None, _OWN[0]: None},
    (CONVNET, "fashion-mnist"): {"": 9.52, OF_CONVNET[-1]: 11.50, _OWN[1]: None},
    (RESNET, "tiny-imagenet"): {"": 8.96, HYBRID: 7.92},
}


def _on_other_data() -> tuple[Cell, ...]:
    cells = []
    for data, name in _DATA.items():
        policies = ("", HYBRID, OF_CONVNET[-1], *(_OWN if data == "fashion-mnist" else ()))
        for policy in policies:
            for attacker in (PLAIN, THROUGH, AFTERWARDS) if policy else (PLAIN,):
                fast = data == "cifar10" and policy in ("", HYBRID) and attacker == PLAIN
                figures = dict(KNOWN) if attacker != PLAIN else plain_figures() if policy else bare_figures()
                cells.append(
                    Cell(
                        named(policy, attacker), f"{name}, LeNet", attacked(policy, LBFGS, attacker, data=data),
                        figures, quick=1 if fast else 0, quick_attack=told(QUICK_LBFGS, policy, attacker),
                    )
                )  # fmt: skip
    for (model, data), by_policy in _TRANSFERRED.items():
        for policy, psnr in by_policy.items():
            run, column = with_training(policy, SHORTER, model=model, data=data), f"{_DATA[data]}, {NAMES[model]}"
            figures = plain_figures(psnr) if policy else bare_figures(psnr)
            cells.append(Cell(named(policy, PLAIN), column, run, figures))
            if policy:
                cells.append(Cell(named(policy, BETTER), column, run, dict(KNOWN), "adaptive"))
    return tuple(cells)


TABLE_TRANSFER = Table(
    "transfer",
    "policies of CIFAR-100 on other data",
    CONVENTION,
    "Claim 6 and the extensions. The first study says that policies carry over to other data; the replication finds "
    "that they do on Tiny-ImageNet and not on Fashion-MNIST, where pictures with the hybrid of ConvNet are recovered "
    "better than without. LeNet is untrained and attacked by L-BFGS, as in table policies; the other networks are "
    "trained for 1,173 rounds of 128 pictures. Which network the replication has on Tiny-ImageNet we do not know: "
    "its figures stand beside ResNet20-4. The last two hybrids were found for Fashion-MNIST.",
    _on_other_data(),
    heavy="the trained networks take a GPU.",
)

_ROUNDS = (0, 1, 5, 10, 20, 50)
_COLUMNS = (
    ("no policy", "", PLAIN), ("hybrid, plain", EARLY_HYBRID, PLAIN),
    (f"hybrid, {THROUGH}", EARLY_HYBRID, THROUGH), (f"hybrid, {AFTERWARDS}", EARLY_HYBRID, AFTERWARDS),
)  # fmt: skip


def _first_rounds(rounds: int, policy: str) -> Training:
    if not rounds:
        return Training()
    return Training(rounds=rounds, clients=1, batch_size=32, optimizer="sgd", lr=0.1, policy=policy)


def _early() -> tuple[Cell, ...]:
    cells = []
    for rounds in _ROUNDS:
        for model, attack in ((LENET, LBFGS), (CONVNET, SHORTER)):
            for column, policy, attacker in _COLUMNS:
                if model == CONVNET and attacker == THROUGH:
                    continue  # sixteen attempts on a hundred victims of the larger network
                run = attacked(
                    policy, attack, attacker, model=model, data="cifar10", training=_first_rounds(rounds, policy)
                )
                figures = dict(KNOWN) if attacker != PLAIN else plain_figures() if policy else bare_figures()
                fast = (rounds, model, attacker) == (0, LENET, PLAIN)
                cells.append(
                    Cell(
                        f"after {rounds} round{'' if rounds == 1 else 's'}", f"{NAMES[model]}, {column}", run, figures,
                        quick=1 if fast else 0, quick_attack=QUICK_LBFGS,
                    )
                )  # fmt: skip
    return tuple(cells)


TABLE_EARLY = Table(
    "early",
    f"the hybrid {EARLY_HYBRID} in the first rounds of training, CIFAR-10",
    CONVENTION,
    "Another study reports, without a figure that we have, that policies protect little in the first steps. Rounds of "
    "32 pictures, transformed by the policy where there is one; plain SGD at a rate of 0.1, which is our choice. "
    "One picture is behind the attacked update. LeNet starts from the weights in which it is usually attacked.",
    _early(),
    heavy="ConvNet takes a GPU.",
)

"""What the tables share: published policies, attacks, who knows the policy, and how networks are trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakgauge.data import Dataset, load
from leakgauge.defenses.ats import undoing
from leakgauge.engine.randomness import generator
from leakgauge.federation.rounds import train
from leakgauge.lab.policy_search import TRAINING
from leakgauge.lab.reproduce.recipe import Cell, Run
from leakgauge.models import load_model
from leakgauge.types import DataSpec, Scenario, Training

VICTIMS = 100  # the replication: 6
LENET, CONVNET, RESNET = "lenet-dlg", "convnet9", "resnet20-4"  # the last two have the document's 3.7 M and 4.4 M
EIGHT = "convnet"  # one convolution fewer, as in the code behind the first study; used by earlier measurements
NARROW = "convnet:width=8"  # small enough to be trained and attacked on a CPU
NAMES = {
    LENET: "LeNet",
    CONVNET: "ConvNet",
    RESNET: "ResNet20-4",
    EIGHT: "ConvNet of eight convolutions",
    NARROW: "ConvNet of eight convolutions, width 8",
}
DATA = {"cifar100": "CIFAR-100", "fashion-mnist": "Fashion-MNIST", "tiny-imagenet": "Tiny-ImageNet"}

RANDOM = "19-1-18"
OF_RESNET = ("3-1-7", "43-18-18", "3-1-7/43-18-18")  # found for CIFAR-100, each alone and as a hybrid
OF_CONVNET = ("21-13-3", "7-4-15", "21-13-3/7-4-15")
OWN = {  # found for Fashion-MNIST with each network
    RESNET: ("19-15-45", "2-43-21", "19-15-45/2-43-21"),
    CONVNET: ("42-28-42", "14-48-48", "42-28-42/14-48-48"),
}
HYBRID, EARLY_HYBRID = OF_RESNET[-1], OF_CONVNET[-1]
TRIO = f"{HYBRID}/7-4-15"  # the text draws among three policies and names two of each network: the third is ours

_ADAM = "inverting-gradients:sign=hard,decay=steps,steps={}"
ADAM = _ADAM.format(2400)  # the studies: 4,800
SHORTER = _ADAM.format(1200)  # on the larger networks
QUICK = _ADAM.format(60)
LBFGS = "cpl:steps=75"  # squared distance, 1,500 iterations at most, started from a repeated tile
QUICK_LBFGS = "cpl:steps=6"

EPOCH = 391  # rounds of 128 pictures: CIFAR-100 once
ROUNDS = 3 * EPOCH  # of the trainings that measure accuracy; the replication: 60 epochs
TRAINED = 10 * EPOCH  # behind the attacks on trained networks
NARROW_ROUNDS, NARROW_VICTIMS = 400, 20
PLAIN, THROUGH, AFTERWARDS, BETTER = ATTACKERS = (
    "plain",
    "searched through",
    "undone afterwards",
    "the better informed one",
)
WAYS = {THROUGH: undoing.THROUGH, AFTERWARDS: undoing.AFTERWARDS}  # how an attacker uses that it knows the policy

Printed = tuple[float, float] | None  # PSNR and standard deviation over six pictures; None: not in the document
KNOWN: Mapping[str, float | None] = {"psnr": None, "ssim": None, "recognised": None, "psnr_largest": None}


def plain_figures() -> dict[str, float | None]:
    """The figures of an attacker who does not know the policy."""
    return {"psnr_trained_on": None, "psnr_undone": None, **KNOWN}


def printed(policy: str, figures: Printed) -> dict[str, float | None]:
    """PSNR and its standard deviation as the document prints them: against what the client trained on."""
    psnr, std = figures or (None, None)
    if policy:
        return {"psnr_trained_on": psnr, "psnr_trained_on_std": std, "psnr_undone": None, **KNOWN}
    return {**KNOWN, "psnr": psnr, "psnr_std": std}  # without a policy both conventions are the same


def named(policy: str, attacker: str) -> str:
    if not policy:
        return "no policy"
    kind = "random " if policy == RANDOM else "hybrid " if "/" in policy else ""
    return f"{kind}{policy}, {attacker}"


def training(policy: str, rounds: int = ROUNDS) -> Training:
    """The published rule with fewer rounds; pictures are cropped and mirrored with and without a policy."""
    return Training(rounds=rounds, clients=1, batch_size=128, optimizer="nesterov", lr=0.1, policy=policy, augment=True)


def variant(attacker: str) -> str:
    """`adaptive` if this attacker knows the policy."""
    return "adaptive" if attacker in WAYS else "plain"


def attacked(
    policy: str, attack: str, attacker: str = PLAIN, *, model: str = LENET, data: str = "cifar100", **more: Any
) -> Run:
    """One attacker, and how it uses the policy if it knows it. TF32 is enough for the signs of larger networks."""
    given: dict[str, Any] = {
        "model": model,
        "data": data,
        "attacks": (attack,),
        "trials": VICTIMS,
        "defenses": (f"ats:policy={policy}",) if policy else (),
        "threat_model": "honest-but-curious+labels",
        "assume": f"ats:policy={policy}@{WAYS[attacker]}" if attacker in WAYS else "",
        "variants": variant(attacker),
        "precision": "float32" if model == LENET else "tf32",
    }
    return Run(Scenario(**given | more))


def with_training(policy: str, attack: str, *, model: str, data: str = "cifar100") -> Run:
    """The network is trained with the policy. All attackers are in one run, so that it is trained once."""
    variants = "both" if policy else "plain"
    return attacked(policy, attack, model=model, data=data, training=training(policy, TRAINED), variants=variants)


def on_trained(column: str, policy: str, figures: Printed, *, model: str, data: str) -> list[Cell]:
    """The cells of the plain and of the better informed attacker, on a network that was trained with the policy."""
    run = with_training(policy, SHORTER, model=model, data=data)
    cells = [Cell(named(policy, PLAIN), column, run, printed(policy, figures))]
    if policy:
        cells.append(Cell(named(policy, BETTER), column, run, dict(KNOWN), "adaptive"))
    return cells


_LEARNED = 0.1  # of the data
RULES = ("search", "published")
SEMI_TRAINED = 50 * 39  # rounds of 128 pictures: 50 epochs of a tenth of CIFAR-100, as the document trains


def semi_trained(
    model: str,
    data: str,
    spec: DataSpec,
    rounds: int,
    *,
    rule: str,
    policy: str = "",
    seed: int,
    device: torch.device,
    data_root: Path | None,
) -> nn.Module:
    """The network in eval mode, untrained without rounds. `rule`: that of our search (Adam), or the document's."""
    net = load_model(model, spec, seed, None).to(device)
    if not rounds:
        return net.eval()
    public = load(data, "train", data_root)
    plan = training(policy, rounds) if rule == "published" else dataclasses.replace(TRAINING, rounds=rounds)
    learned = max(int(_LEARNED * len(public)), plan.clients * plan.batch_size)
    some = torch.randperm(len(public), generator=generator(seed, "search"))[:learned]
    return train(net, Dataset(public.spec, *public.take(some)), plan, seed).eval()

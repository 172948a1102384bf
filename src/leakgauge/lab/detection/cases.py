"""The models of the study: clean ones as clients receive them, and what each server sends instead."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from leakgauge import catalog
from leakgauge.data import Dataset, load, public_batch
from leakgauge.engine.randomness import generator
from leakgauge.federation.rounds import train
from leakgauge.models import load_model
from leakgauge.types import Batch, DataSpec, TamperingServer, Training

_T = TypeVar("_T")
DIGITS, PHOTOS = "digits", "photos32"
_PROBE = 16  # samples of the client's own
_ROUNDS = (0, 1, 5, 20)
_CHANGES = ("", "", "pruned:0.5", "pruned:0.9", "quantised:8", "quantised:4")  # a third of the models is not changed

_CLEAN = (  # (model, data); every kind of layer, initialisation and size that the zoo has
    ("lenet-dlg", DIGITS),
    ("lenet-dlg", PHOTOS),
    ("lenet-dlg:init=default,activation=relu", PHOTOS),
    ("lenet-cpl", PHOTOS),
    ("lenet5-grnn", PHOTOS),
    ("lenet5-mkor", "digits:size=28"),
    ("lenet5-mkor", PHOTOS),
    ("convnet:width=8", PHOTOS),
    ("resnet20:width=8", PHOTOS),
    ("resnet20-4:width=8", PHOTOS),
    ("vgg16-mkor:width=8,hidden=64", PHOTOS),
    ("vgg16-mkor:width=16,hidden=128", "digits:size=32"),
    ("cnn-melis:width=8,hidden=32", PHOTOS),
    ("mkor-modified", PHOTOS),
    ("mlp", DIGITS),
    ("mlp:hidden=400", PHOTOS),
    ("mlp:activation=relu", PHOTOS),
)
_CHAINS = (  # networks in which MKOR can hide its parameters
    ("lenet5-mkor", "digits:size=28"),
    ("vgg16-mkor:width=16,hidden=128", "digits:size=32"),
    ("vgg16-mkor:width=8,hidden=64", PHOTOS),
)
_SERVERS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {  # family -> server specs, hosts
    "mkor, naive": (
        ("mkor",),
        (
            ("lenet5-mkor", "digits:size=28"),
            ("vgg16-mkor:width=16,hidden=128", "digits:size=32"),
            ("vgg16-mkor:width=8,hidden=64", PHOTOS),
            ("mkor-modified", PHOTOS),
        ),
    ),
    **{
        f"mkor, emptied rows, noise {noise:g}": (
            tuple(
                f"mkor:parameters=inconspicuous,design=rows,noise_on=all,noise={noise:g},link={link}{more}"
                for link in (300, 30, 1)
                for more in ("", ",leak=0.0001,pair_noise=0.1")
            ),
            _CHAINS,
        )
        for noise in (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
    },
    **{
        f"mkor, block, {dense}, beta {beta:g}": (
            tuple(
                f"mkor:parameters=inconspicuous,dense={dense},beta={beta:g},sigma={sigma:g},leak={leak:g}{more}"
                for sigma, leak in ((1e-3, 0), (1e-2, 1e-4))
                for more in (("",) if dense == "text" else (",link=300", ",link=30,pair_noise=0.1"))
            ),
            _CHAINS,
        )
        for dense in ("enlarged", "text")
        for beta in (1.0, 0.3)
    },
    "class fishing": (
        ("class-fishing:target=1", "class-fishing:target=0,magnify=0.05,other_bias=100"),
        (
            ("lenet-dlg:activation=relu,init=default", PHOTOS),
            ("convnet:width=8", PHOTOS),
            ("resnet20:width=8", PHOTOS),
            ("mlp:activation=relu", DIGITS),
        ),
    ),
    "feature fishing": (
        ("feature-fishing:target=1,along=feature,queries=1", "feature-fishing:target=1,queries=1"),
        (
            ("lenet-dlg:activation=relu,init=default", PHOTOS),
            ("convnet:width=8", PHOTOS),
            ("resnet20:width=8", PHOTOS),
            ("mlp:activation=relu", DIGITS),
        ),
    ),
    "imprint": (
        (
            "imprint:bins=100",
            "imprint:bins=20,variant=sparse",
            "imprint:variant=one-shot",
            "imprint:bins=64,as_released=true",
        ),
        (("lenet-dlg", DIGITS), ("convnet:width=8", PHOTOS), ("resnet20:width=8", PHOTOS), ("mlp", DIGITS)),
    ),
    "trap weights": (
        ("trap-weights", "trap-weights:scale=0.99,sigma=0.1", "trap-weights:scale=0.8"),
        (("mlp:activation=relu,hidden=256", DIGITS), ("mlp:activation=relu,hidden=400", PHOTOS)),
    ),
}


@dataclass(frozen=True)
class Case:
    """One model of the study."""

    family: str  # row of the table
    tampered: bool
    model: str
    data: str
    rounds: int
    change: str  # what was changed afterwards: "pruned:0.9", "quantised:4" or nothing
    server: str  # spec; empty for a clean model
    seed: int


def clean_cases(count: int, seed: int) -> list[Case]:
    """`count` clean models, every state and change among them; the family is the state."""
    cases = []
    for number in range(count):
        g = generator(seed, f"clean/{number}")
        model, data = _CLEAN[number % len(_CLEAN)]
        rounds, change = _pick(_ROUNDS, g), _pick(_CHANGES, g)
        state = "untrained" if rounds == 0 else f"after {rounds} round{'s' if rounds > 1 else ''}"
        family = f"clean, {change.partition(':')[0] or state}"
        cases.append(Case(family, False, model, data, rounds, change, "", 1000 * seed + number))
    return cases


def tampered_cases(per_server: int, seed: int) -> list[Case]:
    """`per_server` models of each family, its strengths, hosts and states in turn."""
    cases = []
    for family, (specs, hosts) in _SERVERS.items():
        for number in range(per_server):
            g = generator(seed, f"{family}/{number}")
            model, data = hosts[number % len(hosts)]
            spec = specs[number // len(hosts) % len(specs)]
            cases.append(Case(family, True, model, data, _pick(_ROUNDS, g), "", spec, 1000 * seed + number))
    return cases


def built(case: Case, data_root: Path | None = None) -> tuple[nn.Module, DataSpec, Batch]:
    """The model as the client gets it, and a few samples of the client's own."""
    train_split, test_split = (_split(case.data, split, data_root) for split in ("train", "test"))
    data = train_split.spec
    model = load_model(case.model, data, case.seed)
    if case.rounds:
        model = train(model, train_split, Training(rounds=case.rounds, clients=4, batch_size=32), case.seed)
    model = _changed(model, case.change)
    if case.server:
        server: TamperingServer = catalog.build("attacks", case.server)
        server = server.with_fields(secret=case.seed) or server  # another draw for each model
        model = server.prepare(model, data, public_batch(train_split, 256, case.seed))
    return model, data, public_batch(test_split, _PROBE, case.seed)


@cache
def _split(data: str, split: str, data_root: Path | None) -> Dataset:
    return load(data, split, data_root)


def _changed(model: nn.Module, change: str) -> nn.Module:
    """Magnitude pruning to a share of zeros, or uniform quantisation to some bits, tensor by tensor."""
    kind, _, text = change.partition(":")
    if not kind:
        return model
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            if kind == "pruned":
                least = parameter.abs().flatten().kthvalue(max(1, int(float(text) * parameter.numel()))).values
                parameter[parameter.abs() <= least] = 0
            else:
                step = parameter.abs().max().clamp_min(1e-12) / (2 ** (int(text) - 1) - 1)
                parameter.copy_((parameter / step).round() * step)
    return changed


def _pick(options: Sequence[_T], g: torch.Generator) -> _T:
    return options[int(torch.randint(len(options), (), generator=g))]

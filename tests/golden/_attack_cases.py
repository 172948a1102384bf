"""Which attacks meet which defenses in the golden files, on which networks: a few steps each, two victims."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Every defense, and every setting of one that makes another informed attack.
DEFENSES = (
    "ats:policy=3-1-7",
    "batchnorm-only",
    "clip:norm=0.1",
    "clip:norm=0.1,unit=client",
    "clip:norm=0.05,scope=layer",
    "clip:norm=0.05,scope=layer,unit=client",
    "dgc:share=0.5",
    "dp-sgd:norm=1,sigma=0.01",
    "dropout:p=0.5",
    "fed-cdp:norm=1,sigma=0.01",
    "fed-cdp:norm=1,sigma=0.01,noise=tensor",
    "fed-sdp:norm=1,sigma=0.01",
    "gaussian:std=0.01",
    "gaussian:std=0.01,relative=true",
    "key-lock:length=8",
    "key-lock:length=8,rounds=2",
    "laplace:scale=0.01",
    "laplace:scale=0.01,relative=true",
    "local-steps:steps=3",
    "low-rank:rank=1",
    "low-rank:rank=1,iterations=1",
    "mixing:clients=3",
    "mixing:clients=3,known=true",
    "mixup:alpha=1",
    "precode:width=8",
    "prune:share=0.5",
    "quantize:bits=4",
    "quantize:bits=4,rounding=stochastic",
    "random-mask:share=0.5",
    "secure-aggregation:clients=2",
    "sensitivity:std=0.01,root=4",
    "sensitivity:std=0.01,root=4,clip=1",
    "sign",
    "sign:scale=none",
    "sketch:size=0.25",
    "sketch:size=0.25,method=count",
    "soteria:share=0.6",
)
CHAINS = (
    "clip:norm=1+gaussian:std=0.01+prune:share=0.5",
    "mixup:alpha=1+gaussian:std=0.01",
    "dropout:p=0.5+quantize:bits=4",
    "key-lock:length=8+sketch:size=0.25",
)
EVERY = DEFENSES + CHAINS


@dataclass(frozen=True)
class AttackCase:
    """One attack in one setting against some defenses; `variants` as in a scenario."""

    name: str
    attack: str
    setting: Mapping[str, Any]
    defenses: tuple[str, ...]
    variants: str = "adaptive"
    undefended: bool = False

    def scenario(self, defenses: tuple[str, ...]) -> dict[str, Any]:
        shared = {"trials": 2, "precision": "float64", "attacks": [self.attack], "variants": self.variants}
        return shared | dict(self.setting) | {"defenses": list(defenses)}

    def alone(self, defense: str, first: bool) -> AttackCase:
        """The same against one defense."""
        return dataclasses.replace(self, defenses=(defense,), undefended=self.undefended and first)


# --- settings: what is attacked -------------------------------------------------------------------------------------
DENSE = {"model": "mlp:hidden=16", "data": "digits", "batch_size": 2}
DENSE_ALONE = {"model": "mlp:hidden=16", "data": "digits", "batch_size": 1}
PICTURE = {"model": "lenet-dlg:filters=3", "data": "digits", "batch_size": 1}
TABLE = {"model": "mlp:hidden=16", "data": "breast-cancer", "batch_size": 2}
PHOTO = {"model": "lenet-dlg:filters=3", "data": "photos32", "batch_size": 1}
LOCAL = {**DENSE, "local": {"kind": "fedavg", "epochs": 2, "batch_size": 1, "lr": 0.1}}
LOCAL_ALONE = {**PICTURE, "local": {"kind": "fedavg", "epochs": 2, "lr": 0.1}}
ROUNDS = {**PICTURE, "local": {"seen": 3}}
NORMALISED = {
    "model": "convnet:width=1",
    "data": "photos32",
    "batch_size": 1,
    "threat_model": "honest-but-curious+batchnorm",
    "local": {"batchnorm": "train"},
}
TRANSFORMER = {"model": "vit:embedding=64,depth=1,heads=2", "data": "digits", "batch_size": 1}
TRANSFORMERS = {**TRANSFORMER, "batch_size": 2}
SOLVABLE = {"model": "cnn6", "data": "digits", "batch_size": 1}
TAMPERED = {"model": "mlp:hidden=16", "data": "digits", "batch_size": 4, "threat_model": "malicious-architecture"}
TAMPERED_PICTURE = {**TAMPERED, "model": "lenet-dlg:filters=3"}
TAMPERED_PHOTO = {**TAMPERED, "model": "mkor-modified", "data": "photos32", "batch_size": 2}

# --- budgets: a few steps of each search ----------------------------------------------------------------------------
MATCHING = {
    "dlg": "dlg:steps=2,restarts=1,optimizer=adam",
    "idlg": "idlg:steps=2,restarts=1,optimizer=adam",
    "cpl": "cpl:steps=2,optimizer=adam",
    "inverting-gradients": "inverting-gradients:steps=3",
    "portfolio": "portfolio:steps=2,members=2",
    "gradinversion": "gradinversion:steps=3,restarts=2,warm_up=1",
    "grnn": "grnn:steps=3,noise_width=4",
}
GENERATING = {"ggl": "ggl:steps=3,restarts=2", "gias": "gias:steps=3,weight_steps=2,restarts=2"}
SEARCHING = MATCHING | GENERATING
ANALYTIC = {"linear": "linear", "peeling": "peeling", "labels": "labels"}

_PICTURE_DEFENSES = (
    "ats:policy=3-1-7/43-18-18",
    "batchnorm-only",
    "clip:norm=0.05,scope=layer",
    "dropout:p=0.5",
    "fed-sdp:norm=1,sigma=0.01",
    "gaussian:std=0.01",
    "key-lock:length=8",
    "key-lock:length=8,told=key",
    "key-lock:length=8,told=gradient",
    "low-rank:rank=1",
    "mixing:clients=3",
    "precode:width=8",
    "prune:share=0.5",
    "secure-aggregation:clients=2",
    "soteria:share=0.6",
)
_CURVED_DEFENSES = ("gaussian:std=0.01", "key-lock:length=8", "precode:width=8", "prune:share=0.5", "soteria:share=0.6")
_TABLE_DEFENSES = (
    "clip:norm=0.1",
    "gaussian:std=0.01",
    "key-lock:length=8",
    "mixup:alpha=1",
    "secure-aggregation:clients=2",
    "dropout:p=0.5+quantize:bits=4",
)
_LOCAL_DEFENSES = (
    "clip:norm=0.1",
    "clip:norm=0.1,unit=client",
    "dp-sgd:norm=1,sigma=0.01",
    "dropout:p=0.5",
    "fed-sdp:norm=1,sigma=0.01",
    "gaussian:std=0.01",
    "local-steps:steps=3",
    "mixing:clients=3",
    "prune:share=0.5",
    "quantize:bits=4",
    "secure-aggregation:clients=2",
    "clip:norm=1+gaussian:std=0.01+prune:share=0.5",
)
_ROUNDS_DEFENSES = ("dgc:share=0.5", "gaussian:std=0.01", "key-lock:length=8", "random-mask:share=0.5")
_SHORT = ("gaussian:std=0.01", "clip:norm=1+gaussian:std=0.01+prune:share=0.5")


# What can make a tampering server do something else. All others leave it as it is.
_TOLD_SERVERS = (
    "clip:norm=0.1",
    "dp-sgd:norm=1,sigma=0.01",
    "fed-cdp:norm=1,sigma=0.01",
    "gaussian:std=0.01",
    "gaussian:std=0.01,relative=true",
    "key-lock:length=8",
    "laplace:scale=0.01",
    "mixing:clients=3",
    "mixing:clients=3,known=true",
    "sensitivity:std=0.01,root=4",
    "sensitivity:std=0.01,root=4,clip=1",
    "clip:norm=1+gaussian:std=0.01+prune:share=0.5",
)
# What attacks meet that no defense informs, or few: each way in which a defense changes an update once.
_PLAIN_DEFENSES = (
    "ats:policy=3-1-7",
    "clip:norm=0.1",
    "dp-sgd:norm=1,sigma=0.01",
    "dropout:p=0.5",
    "gaussian:std=0.01",
    "local-steps:steps=3",
    "mixing:clients=3",
    "mixup:alpha=1",
    "precode:width=8",
    "prune:share=0.5",
    "quantize:bits=4",
    "secure-aggregation:clients=2",
)
_SERVED_DEFENSES = (
    "clip:norm=0.1",
    "dropout:p=0.5",
    "gaussian:std=0.01",
    "local-steps:steps=3",
    "mixup:alpha=1",
    "secure-aggregation:clients=2",
)


def attack_cases() -> tuple[AttackCase, ...]:
    """All of them; together they take about forty seconds on one core."""
    cases: list[AttackCase] = []

    def add(
        setting: str, values: Mapping[str, Any], attacks: Mapping[str, str], defenses: tuple[str, ...], **more: Any
    ) -> None:
        cases.extend(AttackCase(f"{name}-{setting}", spec, values, defenses, **more) for name, spec in attacks.items())

    def some(*names: str) -> dict[str, str]:
        return {name: SEARCHING[name] for name in names}

    both: dict[str, Any] = {"variants": "both", "undefended": True}
    # Every search, informed of every defense; and each of them uninformed.
    add("dense", DENSE, MATCHING, EVERY)
    add("alone", PICTURE, GENERATING, EVERY)
    add("plain", DENSE, MATCHING, ("gaussian:std=0.01",), variants="plain", undefended=True)
    add("plain", PICTURE, GENERATING, ("gaussian:std=0.01",), variants="plain", undefended=True)
    # Where the kind of data, of layers or of training changes what informing does.
    add("picture", PICTURE, some("inverting-gradients", "gradinversion", "grnn"), _PICTURE_DEFENSES)
    add("picture", PICTURE, {"dlg": "dlg:steps=1,restarts=1"}, _CURVED_DEFENSES)  # L-BFGS, twenty iterations
    add("table", TABLE, SEARCHING | ANALYTIC, _TABLE_DEFENSES)
    add("photo", PHOTO, some("dlg", "inverting-gradients", "gradinversion", "grnn", "ggl", "gias"), _SHORT[:1])
    add("local", LOCAL, some("dlg", "inverting-gradients", "gradinversion", "grnn") | ANALYTIC, _LOCAL_DEFENSES)
    add("local", LOCAL, some("idlg", "cpl", "portfolio"), _SHORT)
    add("local", LOCAL_ALONE, GENERATING, _LOCAL_DEFENSES)
    add("rounds", ROUNDS, some("idlg", "grnn", "gradinversion"), _ROUNDS_DEFENSES)
    add("normalised", NORMALISED, some("inverting-gradients", "gradinversion"), _SHORT[:1], undefended=True)
    # What solves equations costs little: informed of everything, and not.
    add("dense", DENSE, ANALYTIC, EVERY)
    add("plain", DENSE, ANALYTIC, _PLAIN_DEFENSES, variants="plain", undefended=True)
    add("alone", DENSE_ALONE, {"linear": "linear", "rank-one": "rank-one"}, _PLAIN_DEFENSES, **both)
    add("transformer", TRANSFORMER, {"patch-embedding": "patch-embedding"}, _PLAIN_DEFENSES, **both)
    add("transformer", TRANSFORMERS, {"labels": "labels"}, _SHORT, **both)
    add("photo", SOLVABLE, {"rgap": "rgap"}, (), **both)
    add("alone", DENSE_ALONE, {"rgap": "rgap"}, _PLAIN_DEFENSES, **both)
    # Servers that tamper.
    rows = {"imprint": "imprint:bins=8", "trap-weights": "trap-weights"}
    fishing = {"class-fishing": "class-fishing:steps=4", "feature-fishing": "feature-fishing:steps=4,queries=4"}
    for values, servers in ((TAMPERED, rows), (TAMPERED_PICTURE, fishing), (TAMPERED_PHOTO, {"mkor": "mkor"})):
        add("tampered", values, servers, _TOLD_SERVERS)
        add("plain", values, servers, _SERVED_DEFENSES, variants="plain", undefended=True)
    return tuple(cases)

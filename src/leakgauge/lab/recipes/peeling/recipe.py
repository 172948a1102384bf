"""Exact, certified recovery of batches: how much of them, by batch size, data, training and defense. Our own tables."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks.peeling import Peeling
from leakgauge.audit.run import Watch
from leakgauge.errors import LeakgaugeError
from leakgauge.execution.table_cell import TrialRun
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Recipe, Study, Table
from leakgauge.setup.plan import informed_by, parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Scenario, Training

_SAME = 0.03  # a certified sample with at most this error in every entry is a private one


@dataclass(frozen=True, kw_only=True)
class PeeledBatches(Measurement):
    """Batches of one client each, on one model of one hidden layer."""

    unit: ClassVar[str] = "batches"

    data: str
    batch_size: int
    batches: int = 20
    hidden: int = 1000
    training: str = ""  # of the model, such as "rounds=20,optimizer=sgd"
    defense: str = UNDEFENDED
    informed: bool = False  # does the attacker know the defense?

    @property
    def title(self) -> str:
        knows = " (known)" if self.informed else ""
        trained = f" after {self.training}" if self.training else ""
        return (
            f"{self.batches} batches of {self.batch_size}, {self.data}, {self.hidden} units{trained}, "
            f"{self.defense}{knows}, seed {self.seed}"
        )

    @property
    def setting(self) -> str:
        return self.training

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        scenario = Scenario(
            model=f"mlp:activation=relu,hidden={self.hidden}",
            data=self.data,
            batch_size=self.batch_size,
            trials=self.batches,
            seed=self.seed,
            training=Training.from_text(self.training),
            defenses=() if self.defense == UNDEFENDED else (self.defense,),
        )
        setup, defenses = load_setup(scenario, data_root, device), parse_chain(self.defense)
        attack, ways = Peeling(), informed_by(Peeling(), defenses) if self.informed else ((),)
        if not ways:
            raise LeakgaugeError(f"peeling gains nothing by knowing {self.defense}")
        truth = setup.behind(defenses)
        trial_run = TrialRun(setup, attack, defenses, setup.threat_model, truth, self.informed, ways[0])
        shares, whole, not_private, counts, seconds, cpu = [], [], [], [], [], []
        for trial in range(self.batches):
            began = time.process_time()
            result = trial_run.of([trial], lambda _: None)
            cpu.append(time.process_time() - began)
            assert result.inputs is not None
            assert result.certified is not None
            certified = int(result.certified[0])
            known = _private(result.inputs[0, :certified], truth.inputs[trial])
            samples = truth.inputs.shape[1]
            shares.append(certified / samples)
            whole.append(float(known == samples))
            not_private.append(float(certified - known))
            counts.append(float(certified))
            seconds.append(result.seconds)
            watch(trial, self.batches, "", 1.0)
        return {
            "certified": tuple(shares),
            "whole_batches": tuple(whole),
            "not_private": tuple(not_private),
            "certificates": tuple(counts),
            "batch_seconds": tuple(seconds),
            "batch_cpu_seconds": tuple(cpu),
        }


def _private(certified: Tensor, truth: Tensor) -> int:
    """How many distinct private samples (N, *shape) are among the certified ones (K, *shape)."""
    if not len(certified):
        return 0
    errors = torch.cdist(certified.flatten(1).double(), truth.flatten(1).double(), p=float("inf"))
    near, who = errors.min(1)
    return len(set(who[near <= _SAME].tolist()))


_SIZES = (8, 32, 64, 128, 256, 512)
_FIGURES = dict.fromkeys(
    ("certified", "whole_batches", "certificates", "not_private", "batch_seconds", "batch_cpu_seconds")
)
_ROWS = {  # row -> data, training of the model
    "CIFAR-10": ("cifar10", ""),
    "MNIST": ("mnist", ""),
    "Adult": ("adult", ""),
    "CIFAR-10, 50 rounds of SGD": ("cifar10", "rounds=50,optimizer=sgd,lr=0.05"),
    "CIFAR-10, 20 rounds of Adam": ("cifar10", "rounds=20,optimizer=adam,lr=0.01"),
}
_PROMISED = ("CIFAR-10", (64, 128))  # the cells with 100 batches: there was no false certificate among 200


def _sizes() -> tuple[Cell, ...]:
    cells = []
    for row, (data, training) in _ROWS.items():
        for size in _SIZES if not training else _SIZES[:4]:
            many = row == _PROMISED[0] and size in _PROMISED[1]
            count = 20 if many else 2 if size > 128 and data == "cifar10" else 5
            batches = PeeledBatches(data=data, batch_size=size, batches=count, training=training)
            quick = 2 if row == "CIFAR-10" and size in (8, 32) else 0
            cells.append(Cell(row, f"batch {size}", Study(batches, 5 if many else 2), _FIGURES, quick=quick))
    return tuple(cells)


TABLE_SIZES = Table(
    "sizes",
    "batches behind Linear(d, 1000) + ReLU + Linear(1000, C), PyTorch's initialisation, float32 updates",
    "certified is the mean share of a batch with a certificate; whole counts batches of which every sample was "
    "recovered to 0.03 in every entry. No private sample: certified, and further than that from all of them, or the "
    "second certificate of one sample. Several models, each with several batches.",
    "Rows over the samples that leave a unit off were added after a first measurement without them, in which one of"
    " 100 batches of 128 stopped half way and batches of 256 gave a fifth of their samples. Peeling goes on as long"
    " as each pass uncovers new rows of one sample, and then stops at once: hence all or little. Records of Adult "
    "are alike in most columns; where a batch has fewer directions than samples, certificates come from two units "
    "that agree. After 50 rounds of SGD (test accuracy 0.25 and 0.29) nothing is lost. Twenty rounds of Adam at "
    "0.01 leave 99 % of the units off for every picture, and a network that guesses (0.10 and 0.18): there is "
    "little to read in its updates. Seconds were taken with one thread on two cores that much other work used too; "
    "the time of one core is the fairer figure.",
    _sizes(),
)

_DEFENSES = (
    "gaussian:std=0.00001",
    "gaussian:std=0.01",
    "laplace:scale=0.01",
    "clip:norm=0.1",
    "dp-sgd",
    "fed-cdp",
    "fed-sdp",
    "prune:share=0.5",
    "dgc:share=0.99",
    "sign",
    "quantize:bits=8",
    "low-rank",
    "random-mask",
    "sketch",
    "dropout:p=0.5",
    "mixup",
    "local-steps:steps=5",
    "batchnorm-only",
    "key-lock",
    "precode",
    "secure-aggregation:clients=4",
    "soteria",
    "sensitivity:gamma=0.2,root=10,probes=1",
)
_KNOWN = ("clip:norm=0.1", "dropout:p=0.5", "mixup", "precode")
_OWN_LOCK = "key-lock:first_lock=client"  # the row of key-lock was measured with this
_BATCH = 16


def _defended() -> tuple[Cell, ...]:
    cells = []
    for defense in _DEFENSES:
        for column, informed in (("plain", False), ("knows the defense", True)):
            if informed and defense not in _KNOWN:
                continue
            batches = PeeledBatches(
                data="cifar10",
                batch_size=_BATCH,
                batches=5,
                informed=informed,
                defense=_OWN_LOCK if defense == "key-lock" else defense,
            )
            quick = 1 if defense in ("clip:norm=0.1", "precode") else 0
            cells.append(Cell(defense, column, Study(batches, 2), _FIGURES, quick=quick))
    return tuple(cells)


TABLE_DEFENSES = Table(
    "defenses",
    f"batches of {_BATCH} from CIFAR-10 under each defense, the same network",
    "as table sizes. Knows the defense: what samples left in the units is solved for from the update, "
    "because the network behind the layer no longer says it.",
    "Whoever alters every entry of the first layer's gradient stops it: noise, however small beside the gradient, "
    "compression, several local steps. Whoever does not touch that layer stops nothing (Soteria, BatchNorm only, "
    "and PRECODE for whoever knows it). Noise on some slices leaves whole rows clean. Under mixup what is certified"
    " is what entered the network, mostly a mixture of two private samples, and counts as no private sample. Secure"
    " aggregation adds up four clients, so the batch is 64; its sums are rounded more coarsely than float32, which "
    "the attack sees by itself. That estimate was added after a first run in which one certificate there was wrong. "
    f"The row of key-lock is `{_OWN_LOCK}`.",
    _defended(),
)

RECIPE = Recipe(
    name="peeling",
    summary="Whole batches out of a first Linear + ReLU layer, each sample with a certificate: how far it carries",
    paper="no paper: our own measurement; the idea of exact batches is that of Dimitrov et al. 2024 (SPEAR)",
    note="No optimisation and no truth in the attack. Every certificate is compared with the private samples here.",
    tables=(TABLE_SIZES, TABLE_DEFENSES),
)

"""Batches peeled one after another, each certificate checked against the private samples."""

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
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.setup.plan import informed_by, parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Scenario, Training

_SAME = 0.03  # the largest error of any entry up to which a certified sample is a private one


@dataclass(frozen=True, kw_only=True)
class PeeledBatches(Measurement):
    """Batches of one client each, on one model of one hidden layer."""

    unit: ClassVar[str] = "batches"

    data: str
    batch_size: int
    batches: int = 20
    hidden: int = 1000
    training: str = ""  # behind the model, such as "rounds=20,optimizer=sgd"
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
        shares, whole, strangers, counts, seconds, cpu = [], [], [], [], [], []
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
            strangers.append(float(certified - known))
            counts.append(float(certified))
            seconds.append(result.seconds)
            watch(trial, self.batches, "", 1.0)
        return {
            "certified": tuple(shares),
            "whole_batches": tuple(whole),
            "not_private": tuple(strangers),
            "certificates": tuple(counts),
            "batch_seconds": tuple(seconds),
            "batch_cpu_seconds": tuple(cpu),
        }


def _private(certified: Tensor, truth: Tensor) -> int:
    """How many distinct private samples (N, *shape) are among the certified ones (K, *shape)."""
    if not len(certified):
        return 0
    apart = torch.cdist(certified.flatten(1).double(), truth.flatten(1).double(), p=float("inf"))
    near, who = apart.min(1)
    return len(set(who[near <= _SAME].tolist()))

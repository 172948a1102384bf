"""How much of the layers that nobody saw follows from those that were seen?

The attack finds samples that explain the seen layers. The gradient of those samples is the attacker's guess of the
whole update; it is compared with the true one on the unseen layers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.audit.run import Watch
from leakgauge.client.chain import client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.engine.randomness import uniform
from leakgauge.lab.reproduce.recipe import Figures, Measurement
from leakgauge.metrics.distances import gradient_similarity
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Batch, Client, Scenario

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class InferredGradient(Measurement):
    """One sample per update. Cosine and relative error of the unseen layers, and the cosine that noise would have."""

    unit: ClassVar[str] = "victims"

    model: str
    data: str
    attack: str
    shared_layers: str
    defense: str = UNDEFENDED
    batchnorm: str = "eval"
    victims: int = 50

    @property
    def title(self) -> str:
        return (
            f"the gradient of {self.model} inferred from {self.shared_layers}, {self.defense}, {self.data}: "
            f"{self.size} victims, seed {self.seed}"
        )

    def figures(self, device: str, data_root: Path | None, watch: Watch) -> Figures:
        watch(0, 1, "", 0.0)
        chain = () if self.defense == UNDEFENDED else (self.defense,)
        scenario = Scenario(
            model=self.model,
            data=self.data,
            attacks=(self.attack,),
            shared_layers=self.shared_layers,
            trials=self.victims,
            local=Client(batchnorm=self.batchnorm),
            defenses=chain,
            seed=self.seed,
        )
        setup, defenses = load_setup(scenario, data_root, device), parse_chain(self.defense)
        sent, whole = prepared(setup.model, *defenses), setup.update(defenses, setup.model)
        told = setup.threat_model
        facts = facts_about(sent, setup.batch, setup.data, scenario.local, setup.public, told.facts)
        seen = observe(sent, whole, told, facts, scenario.shared_layers)
        found = catalog.build("attacks", self.attack)(seen, scenario.seeds)
        assert found.inputs is not None
        assert found.labels is not None
        noise = uniform(scenario.seeds, "inferred/noise", found.inputs.shape[1:]).to(found.inputs)
        true = {name: tensor for name, tensor in whole.tensors.items() if name not in seen.update.tensors}
        inferred, blind = (
            client_step(scenario.local)(sent, Batch(inputs, found.labels), scenario.seeds).tensors
            for inputs in (found.inputs, noise)
        )
        return inferred_figures(true, dict(inferred), dict(blind))


def inferred_figures(true: Tensors, inferred: Tensors, blind: Tensors) -> Figures:
    """One number per victim each; of the tensors of `true`, which are the unseen ones."""
    mine, noise = ({name: tensors[name] for name in true} for tensors in (inferred, blind))
    apart, size = (
        torch.stack([(t[n] - o[n] if o else t[n]).double().flatten(1).square().sum(1) for n in true]).sum(0).sqrt()
        for t, o in ((true, mine), (true, None))
    )
    return {
        "inferred_cosine": tuple(gradient_similarity(true, mine).tolist()),
        "inferred_error": tuple((apart / size.clamp_min(1e-300)).tolist()),
        "inferred_cosine_blind": tuple(gradient_similarity(true, noise).tolist()),
    }

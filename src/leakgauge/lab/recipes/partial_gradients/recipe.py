"""Which layers suffice: gradient matching on subsets of the layers of the two LeNets.

The thesis of Ren (Swansea 2023) names partial gradients as future work and has no figures. Its Claim 4 says that the
gradient of a BatchNorm layer contains the input and the label.

The last table asks how much of the unseen layers follows from the seen ones. The attack finds samples that explain the
seen layers. The gradient of those samples is the guess of the whole update; it is compared with the true update on the
unseen layers alone.
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
from leakgauge.lab.reproduce.recipe import Cell, Figures, Measurement, Recipe, Run, Study, Table
from leakgauge.metrics.distances import gradient_similarity
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import UNDEFENDED, Batch, Client, Scenario

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class InferredGradient(Measurement):
    """One sample per update. Cosine and relative error of the unseen layers, and the cosine of a gradient of noise."""

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
        threat = setup.threat_model
        facts = facts_about(sent, setup.batch, setup.data, scenario.local, setup.public, threat.facts)
        seen = observe(sent, whole, threat, facts, scenario.shared_layers)
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
    """Three figures with one number per victim, over the tensors of `true`, which are the unseen ones."""
    mine, noise = ({name: tensors[name] for name in true} for tensors in (inferred, blind))
    difference, size = (
        torch.stack([(t[n] - o[n] if o else t[n]).double().flatten(1).square().sum(1) for n in true]).sum(0).sqrt()
        for t, o in ((true, mine), (true, None))
    )
    return {
        "inferred_cosine": tuple(gradient_similarity(true, mine).tolist()),
        "inferred_error": tuple((difference / size.clamp_min(1e-300)).tolist()),
        "inferred_cosine_blind": tuple(gradient_similarity(true, noise).tolist()),
    }


_LAYERS = {"lenet-dlg": ("conv1", "conv2", "conv3", "fc"), "lenet-cpl": ("conv1", "conv2", "conv3", "conv4", "fc")}
_DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
_ATTACK = "dlg:restarts=1,init=patterned-4,labels=optimise"
_FIGURES = {"psnr": None, "psnr_above(20)": None, "recognised": None, "label_accuracy": None}


def _subsets(layers: tuple[str, ...]) -> list[str]:
    """All, then one alone, growing from either end, and all but one."""
    count = len(layers)
    ends = [f"{end}:{n}" for end in ("first", "last") for n in range(2, count)]
    all_but_one = [
        "+".join(kept for kept in layers if kept != left) for left in layers[1:-1]
    ]  # the first and the last are in `ends`
    return ["all", *layers, *ends, *all_but_one]


def _table(id: str, model: str) -> Table:
    return Table(
        id,
        f"{model}, one image per update",
        "PSNR in dB, images in [0, 1]; recognised is the share with an SSIM of 0.6 or more.",
        "A layer is its weight and its bias. The label is searched for with the image, because most subsets lack the "
        "last layer, which gives it away. 300 steps, one attempt.",
        tuple(
            Cell(
                subset,
                name,
                Run(Scenario(model=model, data=data, attacks=(_ATTACK,), shared_layers=subset, trials=50)),
                dict(_FIGURES),
                quick=2 if data == "cifar10" and subset in ("conv1", "fc") else 0,
                quick_attack=f"{_ATTACK},steps=60",
            )
            for data, name in _DATA.items()
            for subset in _subsets(_LAYERS[model])
        ),
    )


TABLE_KNOWN = Table(
    "labels",
    "lenet-dlg on CIFAR-10 with the labels told",
    "as in the other tables.",
    "What is missing here is not the label.",
    tuple(
        Cell(
            subset,
            "CIFAR-10, labels told",
            Run(
                Scenario(
                    model="lenet-dlg",
                    data="cifar10",
                    attacks=(_ATTACK,),
                    shared_layers=subset,
                    trials=50,
                    threat_model="honest-but-curious+labels",
                )
            ),
            {name: None for name in _FIGURES if name != "label_accuracy"},
            quick=2 if subset == "conv1" else 0,
            quick_attack=f"{_ATTACK},steps=60",
        )
        for subset in _subsets(_LAYERS["lenet-dlg"])
    ),
)

_NORM, _BN = "batchnorm-only", ("conv1.layer", "conv1.norm", "conv2", "conv3", "fc")
_CLAIM_4 = ("all", *_BN, "conv1.norm+fc", "conv1.layer+conv1.norm", "conv1.layer+conv2+conv3+fc")

TABLE_BATCHNORM = Table(
    "batchnorm",
    "lenet-dlg with a BatchNorm behind its first convolution, one image per update",
    "as in the other tables; aligned PSNR fits one scale and one offset per image to the truth first, because "
    "BatchNorm in train mode hides both for a single image.",
    "Claim 4 of the thesis: the gradient of a BatchNorm layer contains the input and the label. *conv1.norm* shows "
    "its 24 numbers alone. Whether they show the label stands in the label accuracy, by chance 0.1; whether they show "
    "the picture, in the aligned PSNR. The last row has everything but them. Supports the claim as to the label and "
    "contradicts it as to the picture, at ten victims: 24 numbers do not hold it.",
    tuple(
        Cell(
            subset,
            name,
            Run(
                Scenario(
                    model="lenet-dlg",
                    data=data,
                    attacks=(_ATTACK,),
                    defenses=(_NORM,),
                    shared_layers=subset,
                    trials=50,
                    local=Client(batchnorm="train"),
                    metrics=("psnr_aligned",),
                    variants="adaptive",  # an attacker who knows the BatchNorm stretches the result
                )
            ),
            {"psnr_aligned": None, "psnr_aligned_above(20)": None, "label_accuracy": None},
            "adaptive",
            quick=2 if data == "cifar10" and subset == "conv1.norm" else 0,
            quick_attack=f"{_ATTACK},steps=60",
        )
        for data, name in _DATA.items()
        for subset in _CLAIM_4
    ),
)


def _inferred() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            subset,
            f"{name}{', BatchNorm' if norm else ''}",
            Study(
                InferredGradient(
                    model="lenet-dlg",
                    data=data,
                    attack=f"{_ATTACK},steps=100",
                    shared_layers=subset,
                    defense=_NORM if norm else "none",
                    batchnorm="train" if norm else "eval",
                )
            ),
            {"inferred_cosine": None, "inferred_error": None, "inferred_cosine_blind": None},
            quick=2 if data == "cifar10" and subset == "conv2" and not norm else 0,
        )
        for data, name in _DATA.items()
        for norm, layers in ((False, _LAYERS["lenet-dlg"]), (True, _BN))
        for subset in (*layers, "last:2", "last:3", "first:2", "first:3")
    )


TABLE_INFERRED = Table(
    "inferred",
    "how well the unseen layers follow from the seen ones, one image per update",
    "the attack finds a picture that explains the seen layers; the gradient of that picture is compared with the true "
    "one on the unseen layers alone. A cosine of 1 and an error of 0: the whole update follows from the part.",
    "An own score: Claim 4 and the thesis' summary say that the input passes through all layers, so that a part "
    "should give the rest. 100 steps, one attempt, label searched for. The cosine with noise has the label that was "
    "found and a picture of noise: what is above it came with the picture. Supports the thesis at ten victims where "
    "the picture is found, mostly from the first layers: there the error is small; from the last two it is not.",
    _inferred(),
)

RECIPE = Recipe(
    name="partial_gradients",
    summary="which layers of an update suffice to recover the image",
    paper="own measurement; named as future work by Ren 2023",
    note="The attacker is shown the tensors of some layers and nothing of the others.",
    tables=(_table("dlg", "lenet-dlg"), _table("cpl", "lenet-cpl"), TABLE_KNOWN, TABLE_BATCHNORM, TABLE_INFERRED),
)

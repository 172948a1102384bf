"""Which layers suffice: gradient matching on subsets of the layers of the two LeNets.

The thesis of Ren (Swansea 2023) names partial gradients as future work and has no figures.
"""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Recipe, Run, Table
from leakgauge.types import Scenario

_LAYERS = {"lenet-dlg": ("conv1", "conv2", "conv3", "fc"), "lenet-cpl": ("conv1", "conv2", "conv3", "conv4", "fc")}
_DATA = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
_ATTACK = "dlg:restarts=1,init=patterned-4,labels=optimise"
_FIGURES = {"psnr": None, "psnr_above(20)": None, "recognised": None, "label_accuracy": None}


def _subsets(layers: tuple[str, ...]) -> list[str]:
    """All, then one alone, growing from either end, and all but one."""
    count = len(layers)
    ends = [f"{end}:{n}" for end in ("first", "last") for n in range(2, count)]
    all_but_one = ["+".join(kept for kept in layers if kept != left) for left in layers[1:-1]]  # the ends are above
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
                subset, name,
                Run(Scenario(model=model, data=data, attacks=(_ATTACK,), shared_layers=subset, trials=50)),
                dict(_FIGURES), quick=2 if data == "cifar10" and subset in ("conv1", "fc") else 0,
                quick_attack=f"{_ATTACK},steps=60",
            )
            for data, name in _DATA.items()
            for subset in _subsets(_LAYERS[model])
        ),
    )  # fmt: skip


TABLE_KNOWN = Table(
    "labels",
    "lenet-dlg on CIFAR-10 with the labels told",
    "as in the other tables.",
    "What is missing here is not the label.",
    tuple(
        Cell(
            subset, "CIFAR-10, labels told",
            Run(
                Scenario(
                    model="lenet-dlg", data="cifar10", attacks=(_ATTACK,), shared_layers=subset, trials=50,
                    threat_model="honest-but-curious+labels",
                )
            ),
            {name: None for name in _FIGURES if name != "label_accuracy"}, quick=2 if subset == "conv1" else 0,
            quick_attack=f"{_ATTACK},steps=60",
        )
        for subset in _subsets(_LAYERS["lenet-dlg"])
    ),
)  # fmt: skip

RECIPE = Recipe(
    name="partial_gradients",
    summary="which layers of an update suffice to recover the image",
    paper="own measurement; named as future work by Ren 2023",
    note="The attacker is shown the tensors of some layers and nothing of the others.",
    tables=(_table("dlg", "lenet-dlg"), _table("cpl", "lenet-cpl"), TABLE_KNOWN),
)

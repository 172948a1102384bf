"""Section 4.2.3: does mixing protect a client from another client?"""

from __future__ import annotations

from leakgauge.lab.reproduce.recipe import Cell, Run, Table
from leakgauge.types import UNDEFENDED, Scenario

_VICTIMS = 50
_SETUPS = {"linear, ReLU network": ("linear", "mlp"), "dlg, sigmoid LeNet": ("dlg:steps=100", "lenet-dlg")}
_WAYS = {
    "no mixing": (UNDEFENDED, "plain"),
    "mixture taken for the update": ("mixing:clients=3", "plain"),
    "weights unknown": ("mixing:clients=3", "adaptive"),
    "weights unknown, freely shared out": ("mixing:clients=3,fusing=free", "adaptive"),
    "weights known": ("mixing:clients=3,known=True", "adaptive"),
    "as released, 0.9 for everybody": ("mixing:clients=3,fusing=fixed,share=0.9", "adaptive"),
}


def _cell(row: str, column: str) -> Cell:
    (defense, variant), (attack, model) = _WAYS[row], _SETUPS[column]
    chain = () if defense == UNDEFENDED else (defense,)
    scenario = Scenario(model=model, data="digits", attacks=(attack,), defenses=chain, trials=_VICTIMS)
    quick = 2 if attack == "linear" else 0
    return Cell(row, column, Run(scenario), dict.fromkeys(("recognised", "psnr", "ssim")), variant=variant, quick=quick)


TABLE_MIXING = Table(
    "4.2.3",
    "mixing against a fellow client (the thesis measures accuracy alone)",
    "Handwritten digits, 50 victims with one sample each, each in a round of three clients; the attacker is another "
    "client of the round and has all three mixtures and its own update.",
    "The thesis claims protection among clients and tests no attack. Where the network has ReLUs it gives none: "
    "weights that were never told are read off the update's zeros. Where it has sigmoids they can only be bounded.",
    tuple(_cell(row, column) for row in _WAYS for column in _SETUPS),
    heavy="the searches take minutes",
)

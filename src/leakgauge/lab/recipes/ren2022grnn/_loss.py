"""Table 3.12: the parts of GRNN's loss, each alone and together."""

from __future__ import annotations

import dataclasses

from leakgauge.lab.recipes.ren2022grnn._cells import SMALL, attacked
from leakgauge.lab.reproduce.recipe import Cell, Table

_COMBINATIONS = {  # of the loss's parts, in the thesis's order -> fields
    "MSE": "wd=0,tv=0",
    "WD": "mse=0,tv=0",
    "CD": "mse=0,wd=0,cosine=1,tv=0",
    "MSE & WD": "tv=0",
    "MSE & CD": "wd=0,cosine=1,tv=0",
    "MSE & CD & TVLoss": "wd=0,cosine=1",
    "MSE & WD & TVLoss": "",
    "MSE & the released WD": "as_released=true,tv=0",
    "MSE & the released WD & TVLoss": "as_released=true",
}


def _with_fields(attack: str, fields: str) -> str:
    return f"{attack},{fields}" if fields else attack


TABLE_12 = Table(
    "3.12",
    "the loss's parts, MNIST, LeNet, one image per update",
    "all rows have the same 50 victims, ten on each of five networks. MSE is the sum of squared differences between "
    "the gradients, WD the sum of the differences between their sorted values (one scale, as Eq. 3.4 weighs them "
    "alike), CD one minus their cosine, TVLoss 0.001 times the sum of absolute differences of neighbouring pixels. The "
    "released WD is the plain norm of the difference, and the variation beside it is squared.",
    "The thesis shows two pictures a row and no figure, and calls MSE & WD & TVLoss the best.",
    tuple(
        Cell(
            row,
            f"MNIST, {steps:,} steps",
            dataclasses.replace(
                attacked(SMALL, "mnist", trials=10, attack=_with_fields(f"grnn:steps={steps}", fields)), seeds=5
            ),
            {"psnr": None, "recognised": None, "label_accuracy": None},
            quick=1 if (row, steps) == ("MSE", 1500) else 0,
            quick_attack="grnn:steps=1200,wd=0,tv=0",
        )
        for steps in (1500, 8000)
        for row, fields in _COMBINATIONS.items()
    ),
)

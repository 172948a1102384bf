"""Table 3.15: who can be recognised on a recovered face."""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022grnn._cells import DLG, GRNN, SMALL
from leakgauge.lab.recipes.ren2022grnn._faces import Recognised
from leakgauge.lab.reidentification import CEILING
from leakgauge.lab.reproduce.recipe import Cell, Study, Table

_SHOWN = {  # row -> attack, images in an update, faces
    "true faces": (CEILING, 1, 50),
    "DLG": (DLG, 1, 50),
    "CPL": ("cpl", 1, 50),
    "GRNN": (GRNN[SMALL], 1, 50),
    "GRNN, 4 images": (GRNN[SMALL], 4, 48),
    "GRNN, 8 images": (GRNN[SMALL], 8, 48),
    "GRNN, 16 images": (GRNN[SMALL], 16, 48),
    "mean of public faces": ("mean-image", 1, 50),
}
_NAMED = {  # column -> row -> top-1, top-3, top-5
    "LFW, LeNet": {  # where the thesis asks its ResNet-18
        "DLG": (0.2514, 0.4557, 0.5186),
        "GRNN": (0.3066, 0.7479, 0.8840),
        "GRNN, 4 images": (0.1745, 0.2464, 0.3111),
        "GRNN, 8 images": (0.0614, 0.1358, 0.2213),
        "GRNN, 16 images": (0.0290, 0.1043, 0.2208),
    },
    "LFW, LeNet, beside the thesis' DenseNet-121": {
        "DLG": (0.1557, 0.3357, 0.4214),
        "GRNN": (0.1146, 0.4312, 0.6303),
        "GRNN, 4 images": (0.0953, 0.1987, 0.2680),
        "GRNN, 8 images": (0.0306, 0.1025, 0.1983),
        "GRNN, 16 images": (0.0152, 0.0823, 0.1912),
    },
}
_NOT_PRINTED = (None, None, None)

TABLE_15 = Table(
    "3.15",
    "who is on a recovered face: top-1, top-3 and top-5",
    "every recovery counts, failed ones as misses; exact binomial intervals. Chance is 0.02, 0.06 and 0.10. Both "
    "columns show what our one classifier answers; the thesis asks a ResNet-18 and a DenseNet-121.",
    "The thesis has 100 people of VGG-Face, chance 0.01, 0.03 and 0.05, a ResNet-18 that names 97.27 % of its training "
    "pictures and a DenseNet-121 that names 97.11 %, and only successful recoveries: 700 for each attack at one image, "
    "1,112, 2,224 and 4,352 for GRNN at 4, 8 and 16. "
    "Ours are 50 people of LFW at 32 pixels, and a network of six convolutions that "
    "has never seen a victim's picture: the last line says how many other held-out pictures it names. The better "
    "recoveries here are due to an L-BFGS that shortens its steps, and to LeNet with sigmoids and weights U(-0.5, "
    "0.5).",
    tuple(
        Cell(
            row,
            column,
            Study(Recognised(model=SMALL, attack=attack, batch_size=images, victims=faces)),
            {f"top_{k}": f for k, f in zip((1, 3, 5), by_row.get(row, _NOT_PRINTED), strict=True)}
            | {"classifier_right": None},
        )
        for column, by_row in _NAMED.items()
        for row, (attack, images, faces) in _SHOWN.items()
        if column == "LFW, LeNet" or row in by_row
    ),
    heavy="a classifier is trained for each row, three minutes on one core.",
)

"""Tables 3.4, 3.12 and 3.16: how good one picture is: without noise, by parts of the loss, and with noise."""

from __future__ import annotations

import dataclasses

from leakgauge.lab.recipes.ren2022grnn._cells import BESIDE, DATA, DLG, LARGE, LOSS, SMALL, attacked, psnrs, victims
from leakgauge.lab.reproduce.recipe import Cell, Table
from leakgauge.types import Training

_NAMES = {SMALL: "LeNet", LARGE: "ResNet-18"}
_STATES = ("untrained", "trained")
_TRAINED = {
    SMALL: Training(rounds=3000, optimizer="adam", lr=0.003),
    LARGE: Training(rounds=1000, optimizer="adam", lr=0.001),
}
_QUALITY: dict[str, dict[str, tuple[float | None, float | None]]] = {  # network -> data -> untrained, converged
    SMALL: {"mnist": (56.61, 30.81), "cifar100": (47.03, 28.75), "lfw": (43.01, 28.21)},
    LARGE: {"mnist": (37.27, 38.67), "cifar100": (29.57, 27.93), "lfw": (31.07, 27.91)},
}
_BY_DLG: dict[str, tuple[float | None, float | None]] = {  # of LeNet
    "mnist": (53.67, None),
    "cifar100": (49.05, 33.81),
    "lfw": (41.97, None),
}


def _training(model: str, state: str) -> Training:
    return _TRAINED[model] if state == "trained" else Training()


TABLE_4 = Table(
    "3.4",
    "PSNR of one image per update",
    "the thesis computes 10 log10(255^2 / RMSE), the root where the error belongs; the true PSNR is twice that "
    "minus 48.13 dB. Both are shown. Ours is clamped to [0, 1] and capped at 100 dB per image. Rows without the name "
    "of an attack are GRNN's; all rows of one network and state have the same victims.",
    "Whether this table used that formula is inferred from its floor of 28 to 31 dB for destroyed images. The thesis "
    "calls a network converged when its loss changes by less than 1e-4; ours has had as many rounds of federated "
    "SGD as the cells say. ResNet-18 normalises by the statistics of the one image, there and here, which hides the "
    "image's contrast and brightness: ours are recognised by SSIM at a PSNR that looks like failure. LeNet depends on "
    "the weights that were drawn: these victims share one network (seed 0); on another, at seed 500, 20 of 20 "
    "CIFAR-100 images came back above 35 dB, 45.5 dB on average. A cosine decay of the rate or the released loss "
    "change neither. Two attempts, of which the one with the lower loss is kept, do: of the first 20 of these victims "
    "16 come back above 35 dB with one attempt and all 20 with two, 43.7 [42.3, 45.2] dB on average "
    "(`leakgauge attack grnn --model lenet-dlg --data cifar100 --trials 20 --restarts 2 --scale mixed --variation "
    "squared`, 42 minutes of a shared CPU). The one attempt ran on a GPU and before the smaller generator for single "
    "images, which takes the same steps but for rounding; it was not repeated with it. The thesis has no figure for "
    "DLG where it saw no picture: MNIST and LFW, converged, and every ResNet-18.",
    tuple(
        Cell(
            f"{_NAMES[model]}, {state}",
            DATA[data],
            attacked(model, data, trials=50 if model == SMALL else 10, training=_training(model, state)),
            psnrs(figures[place]),
            quick=1 if (model, data, place) == (SMALL, "mnist", 0) else 0,
            quick_attack=f"grnn:steps=1200,{LOSS}",
        )
        for model, by_data in _QUALITY.items()
        for place, state in enumerate(_STATES)
        for data, figures in by_data.items()
    )
    + tuple(
        Cell(
            f"{name}, {_NAMES[model]}, {state}",
            DATA[data],
            attacked(model, data, trials=50 if model == SMALL else 10, attack=attack, training=_training(model, state)),
            psnrs(_BY_DLG[data][place] if (name, model) == ("DLG", SMALL) else None),
        )
        for name, attack in BESIDE.items()
        for model in (SMALL, LARGE)
        for place, state in enumerate(_STATES)
        for data in DATA
    ),
    heavy="the rows of ResNet-18 have ten victims: 8,000 steps of a network with 11 million weights for each.",
)

_SCALES = (1e-1, 1e-2, 1e-3, 1e-4)
_X = None  # no picture
_Four = tuple[float | None, float | None, float | None, float | None]
_NOISE: dict[str, dict[str, dict[int, _Four]]] = {  # noise -> data -> images in an update -> by scale
    "gaussian:std": {
        "mnist": {
            1: (31.33, 31.33, 46.27, 56.89),
            4: (_X, 31.19, 31.21, 40.73),
            8: (_X, 32.07, 31.17, 33.29),
            16: (_X, _X, 31.33, 31.43),
        },
        "cifar100": {
            1: (_X, 28.23, 35.43, 43.37),
            4: (_X, _X, 28.45, 33.15),
            8: (_X, _X, 28.23, 30.39),
            16: (_X, _X, _X, 29.17),
        },
        "lfw": {1: (_X, 28.17, 35.31, 44.39), 4: (_X, _X, 28.37, 33.05), 8: (_X, _X, _X, _X), 16: (_X, _X, _X, _X)},
    },
    "laplace:scale": {
        "mnist": {
            1: (31.25, 30.97, 42.03, 55.47),
            4: (_X, 31.21, 31.53, 42.65),
            8: (_X, _X, 31.19, 33.91),
            16: (_X, _X, 31.11, 31.87),
        },
        "cifar100": {
            1: (_X, 28.13, 32.21, 44.27),
            4: (_X, _X, 28.15, 32.51),
            8: (_X, _X, 28.03, 30.15),
            16: (_X, _X, _X, _X),
        },
        "lfw": {1: (_X, 28.05, 33.79, 44.05), 4: (_X, _X, 28.25, 32.39), 8: (_X, _X, _X, _X), 16: (_X, _X, _X, _X)},
    },
}


def _row(noise: str, scale: float, images: int) -> str:
    return f"{noise}={scale:g}" if images == 1 else f"{noise}={scale:g}, {images} images"


def _others() -> tuple[Cell, ...]:
    """Single images to both, four images to DLG alone, as the thesis has it."""
    return tuple(
        Cell(
            _row(noise, scale, images),
            f"{DATA[data]}, {name}",
            attacked(
                SMALL,
                data,
                trials=victims(data, images),
                attack=attack,
                batch_size=images,
                defenses=(f"{noise}={scale:g}",),
            ),
            psnrs(None) | {"label_accuracy": None},
            quick=1 if (data, noise, scale, images, attack) == ("mnist", "gaussian:std", 1e-4, 1, DLG) else 0,
            quick_attack="dlg:restarts=1,steps=30",
        )
        for name, attack in BESIDE.items()
        for images in ((1, 4) if attack == DLG else (1,))
        for noise, by_data in _NOISE.items()
        for data in by_data
        for scale in _SCALES
    )


TABLE_16 = Table(
    "3.16",
    "additive noise, LeNet",
    "as in Table 3.4. Rows without a number have one image per update. All columns of one data set have the same "
    "victims and the same noise.",
    "No figure of the thesis means that nothing was recovered there; for DLG that is every cell, single images at "
    "0.0001 included, and it adds that DLG infers no label either. The adaptive attacker is told the kind of noise and "
    "its scale; the thesis has none.",
    tuple(
        Cell(
            _row(noise, scale, images),
            f"{DATA[data]}, {variant}",
            attacked(SMALL, data, trials=victims(data, images), batch_size=images, defenses=(f"{noise}={scale:g}",)),
            (psnrs(figure) if variant == "plain" else psnrs(None)) | {"label_accuracy": None},
            variant=variant,
            quick=1 if (data, noise, scale, images) == ("mnist", "gaussian:std", 1e-4, 1) else 0,
            quick_attack=f"grnn:steps=600,{LOSS}",
        )
        for noise, by_data in _NOISE.items()
        for data, by_size in by_data.items()
        for images, figures in by_size.items()
        for variant in (("plain", "adaptive") if images == 1 else ("plain",))
        for scale, figure in zip(_SCALES, figures, strict=True)
    )
    + _others(),
)


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

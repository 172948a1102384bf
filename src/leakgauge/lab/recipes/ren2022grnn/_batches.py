"""Tables 3.6, 3.9, 3.11 and 3.13: batches, resolution and labels."""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022grnn._cells import BESIDE, DATA, IG, LARGE, LOSS, SIZES, SMALL, attacked, victims
from leakgauge.lab.reproduce.recipe import Cell, Table

_Figures = dict[str, tuple[tuple[float, float], ...]]  # data -> by batch size: label accuracy, its standard deviation
_LABELS: _Figures = {  # GRNN on LeNet
    "mnist": (
        (1.0, 0.0),
        (1.0, 0.0),
        (0.975, 0.05),
        (0.975, 0.0415),
        (0.975, 0.0187),
        (0.9625, 0.0188),
        (0.9625, 0.0171),
        (0.9637, 0.0165),
    ),
    "cifar100": (
        (1.0, 0.0),
        (1.0, 0.0),
        (1.0, 0.0),
        (0.9938, 0.0188),
        (0.9969, 0.0094),
        (0.9891, 0.0122),
        (0.9875, 0.008),
        (0.968, 0.0108),
    ),
    "lfw": (
        (1.0, 0.0),
        (0.975, 0.075),
        (0.9875, 0.0375),
        (1.0, 0.0),
        (1.0, 0.0),
        (0.9969, 0.0062),
        (0.9969, 0.0071),
        (0.9984, 0.0019),
    ),
}
_BY_DLG: _Figures = {
    "mnist": (
        (1.0, 0.0),
        (0.975, 0.075),
        (1.0, 0.0),
        (0.9438, 0.0337),
        (0.9062, 0.0242),
        (0.9031, 0.026),
        (0.9141, 0.0152),
        (0.9242, 0.0181),
    ),
    "cifar100": (
        (1.0, 0.0),
        (0.975, 0.075),
        (0.9875, 0.0375),
        (0.975, 0.0306),
        (0.925, 0.0287),
        (0.8984, 0.0329),
        (0.8633, 0.0295),
        (0.857, 0.0289),
    ),
    "lfw": (
        (1.0, 0.0),
        (0.8, 0.3317),
        (0.9, 0.1561),
        (0.85, 0.2358),
        (0.8844, 0.1683),
        (0.7062, 0.3924),
        (0.8953, 0.2985),
        (0.7969, 0.3985),
    ),
}
_SURE = (1.0, 0.0)
_RESNET: _Figures = {  # up to 32 images
    "mnist": (_SURE,) * 5,
    "cifar100": (_SURE,) * 5,
    "lfw": (*(_SURE,) * 4, (0.9406, 0.0452)),
}
_RESNET_VICTIMS = {1: 10, 4: 4, 8: 3, 16: 2, 32: 1}
_ABOVE = "ssim_above(0.2)"  # Figure 3.5's mark
_MIDDLE = "psnr_quantile(40)"  # what six in ten images pass


def _asked(figure: tuple[float, float] | None, above: float | None = None) -> dict[str, float | None]:
    accuracy, std = figure or (None, None)
    return {
        "recognised": None,
        "ssim": None,
        "psnr": None,
        "label_accuracy": accuracy,
        "label_accuracy_std": std,
        _ABOVE: above,
        _MIDDLE: None,
    }


def _of_dlg_above(name: str, data: str, size: int) -> float | None:
    """Figure 3.5, CIFAR-100: about 0.7 of single images, none of more."""
    return (0.7 if size == 1 else 0.0) if (name, data) == ("DLG", "cifar100") else None


TABLE_6 = Table(
    "3.6",
    "batches: which are recognised, and (Table 3.13) their labels",
    "recognised is the share of images with an SSIM of 0.6 or more after the best matching; label accuracy is the "
    "overlap of the multisets of labels, its standard deviation that over updates. The share over an SSIM of 0.2 and "
    "the PSNR that six in ten images pass are Figure 3.5's, whose MSE of 0.05 is a PSNR of 13.0 dB and 0.17 one of "
    "7.7. Rows without a network have LeNet; columns without an attack are GRNN's; all columns of one data set have "
    "the same victims.",
    "The thesis judges by eye, on LeNet. GRNN: MNIST up to 256 images, CIFAR-100 up to 128 (its text says 64), LFW up "
    "to 64 (its text says 128); on ResNet-18 MNIST up to 16. DLG: MNIST up to 8, CIFAR-100 and LFW single images. Its "
    "label accuracies are means of ten updates: over all sizes 0.9773, 0.9919 and 0.9943 for GRNN on LeNet, 0.9423 "
    "(its row gives 0.9458), 0.9351 and 0.8541 for DLG, and 1, 1 and 0.9881 for GRNN on ResNet-18. Its Figure 3.5 has "
    "more than 0.77 of GRNN's CIFAR-100 images over an SSIM of 0.2 at any size. Quality does not fall steadily with "
    "the size: a single attempt is solved or fails, and its own loss says which. Of 20 updates of 4 CIFAR-100 images "
    "12 ended below 0.0005, at 28 to 32 dB, and 8 above 6, at 7 to 8 dB; of 10 updates of 8 images 4 and 6; at 16 all "
    "but one or two are solved.",
    tuple(
        Cell(
            f"{size}",
            DATA[data],
            attacked(SMALL, data, trials=victims(data, size), batch_size=size),
            _asked(figure),
            quick=1 if data == "mnist" and size == 1 else 0,
            quick_attack=f"grnn:steps=1200,{LOSS}",
        )
        for data, figures in _LABELS.items()
        for size, figure in zip(SIZES, figures, strict=True)
        if victims(data, size)
    )
    + tuple(
        Cell(
            f"{size}",
            f"{DATA[data]}, {name}",
            attacked(SMALL, data, trials=victims(data, size), batch_size=size, attack=attack),
            _asked(figure if name == "DLG" else None, _of_dlg_above(name, data, size)),
        )
        for name, attack in BESIDE.items()
        for data, figures in _BY_DLG.items()
        for size, figure in zip(SIZES, figures, strict=True)
        if victims(data, size)
    )
    + tuple(
        Cell(f"ResNet-18, {size}", DATA[data], attacked(LARGE, data, trials=trials, batch_size=size), _asked(figure))
        for data, figures in _RESNET.items()
        for (size, trials), figure in zip(_RESNET_VICTIMS.items(), figures, strict=True)
    ),
    heavy="the rows of ResNet-18 have up to ten victims: 8,000 steps of a network with 11 million weights for each.",
)

_GRID = {  # pixels -> images in an update -> victims
    32: {1: 10, 4: 4, 8: 3, 16: 2, 32: 1},
    64: {1: 4, 4: 2, 8: 1, 16: 1, 32: 1},
    128: {1: 4, 4: 1, 8: 1, 16: 1, 32: 1},
    256: {1: 4, 4: 1, 8: 1, 16: 1, 32: 1},
}

TABLE_9 = Table(
    "3.9",
    "ResNet-18: batches and resolution, CIFAR-100 enlarged",
    "as in Table 3.6.",
    "The thesis recognises GRNN's images up to 32 in an update at 32 pixels, up to 8 at 64, and single ones at 128 and "
    "256. It prints no figures and no other attack here.",
    tuple(
        Cell(
            f"{size} at {side} px",
            name,
            attacked(LARGE, "cifar100", trials=trials, size=side, batch_size=size, attack=attack),
            {"recognised": None, "ssim": None, "psnr": None, "label_accuracy": None},
        )
        for side, by_size in _GRID.items()
        for size, trials in by_size.items()
        for name, attack in (("GRNN", None), ("Inverting Gradients", IG))
    ),
    heavy="ResNet-18 at up to 256 pixels: a few victims take minutes on a GPU.",
)

_PRINTED = {  # method -> twelve images: MSE of values up to 255, PSNR, SSIM
    "GRNN": (
        (4107.90, 3656.38, 45.75, 53.21, 1482.89, 5996.54, 1391.17, 1799.29, 4874.68, 1280.33, 1441.29, 3380.90),
        (11.99, 12.50, 31.52, 30.87, 16.42, 10.35, 16.70, 15.58, 11.25, 17.06, 16.54, 12.84),
        (0.49, 0.90, 0.95, 0.98, 0.90, 0.61, 0.75, 0.86, 0.54, 0.59, 0.70, 0.54),
    ),
    "Inverting Gradients": (
        (2272.82, 4853.13, 94.19, 1729.50, 2261.19, 4481.52, 716.74, 2147.60, 4836.14, 3309.53, 2693.98, 3059.81),
        (14.57, 11.27, 28.39, 15.75, 14.59, 11.62, 19.58, 14.81, 11.29, 12.93, 13.83, 13.27),
        (0.31, 0.26, 0.85, 0.55, 0.39, 0.34, 0.56, 0.40, 0.24, 0.28, 0.35, 0.33),
    ),
}


def _printed_means(name: str) -> dict[str, float | None]:
    mse, psnr, ssim = (sum(values) / len(values) for values in _PRINTED[name])
    return {"mse": round(mse / 255**2, 4), "psnr": round(psnr, 2), "ssim": round(ssim, 3), "recognised": None}


TABLE_11 = Table(
    "3.11",
    "GRNN and Inverting Gradients at 256 pixels, untrained ResNet-18, one image per update",
    "true PSNR and SSIM, and MSE of values from 0 to 1, means over images; the means of the thesis' twelve images "
    "stand here.",
    "The thesis' GRNN has the higher SSIM on all twelve images, as it says, and the lower PSNR on five. Its images "
    "are said to be CIFAR-100, enlarged; the photographs are public and sharp.",
    tuple(
        Cell(
            name,
            column,
            attacked(LARGE, data, trials=trials, size=256, attack=attack),
            _printed_means(name) if data == "cifar100" else dict.fromkeys(_printed_means(name)),
        )
        for column, data, trials in (("CIFAR-100", "cifar100", 12), ("photographs", "photos64", 4))
        for name, attack in (("GRNN", None), ("Inverting Gradients", IG))
    ),
    heavy="ResNet-18 at 256 pixels: a few victims take minutes on a GPU.",
)

"""Table 5.6: every figure the thesis prints of its attacks, without the lock and with it."""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022fedkl._cells import (
    CONVENTION,
    GRNN,
    LOCKS,
    MATCHING,
    METRICS,
    NAMES,
    NONE,
    PERCEPTUAL,
    SERVERS_LOCKS,
    attacked,
)
from leakgauge.lab.reproduce.recipe import Cell, Table
from leakgauge.metrics.psnr import psnr_from_fedkl

_Printed = tuple[float, float, float, float, float]  # "MSE", "PSNR", LPIPS with VGG, with AlexNet, SSIM
_GRNN_LARGE = f"{GRNN},tv=1e-06"
_NETWORKS = {  # the thesis' name -> network, activation of the released code's lock, victims of GRNN, GRNN
    "LeNet": ("lenet-dlg", "relu", 20, GRNN),
    "ResNet-20": ("resnet20:activation=sigmoid", "sigmoid", 10, _GRNN_LARGE),
    "ResNet-18": ("resnet18-grnn", "sigmoid", 4, _GRNN_LARGE),
}
_PRINTED: dict[tuple[str, str, str], tuple[_Printed, _Printed]] = {  # method, network, data -> without, with
    ("DLG", "LeNet", "mnist:size=32"): ((49.97, 32.71, 0.27, 0.13, 0.724), (140.87, 26.64, 0.70, 0.56, -0.003)),
    ("DLG", "LeNet", "cifar10"): ((29.62, 41.14, 0.13, 0.08, 0.724), (98.76, 28.20, 0.48, 0.32, 0.006)),
    ("DLG", "LeNet", "cifar100"): ((25.30, 39.85, 0.08, 0.04, 0.859), (101.44, 28.09, 0.49, 0.33, 0.009)),
    ("GRNN", "LeNet", "mnist:size=32"): ((0.35, 52.78, 0.00, 0.00, 1.000), (103.46, 28.00, 0.69, 0.45, 0.108)),
    ("GRNN", "LeNet", "cifar10"): ((0.78, 49.29, 0.00, 0.00, 1.000), (92.12, 28.52, 0.49, 0.26, 0.101)),
    ("GRNN", "LeNet", "cifar100"): ((1.05, 48.65, 0.00, 0.00, 0.999), (100.82, 28.18, 0.49, 0.28, 0.085)),
    ("GRNN", "ResNet-20", "mnist:size=32"): ((1.62, 47.82, 0.04, 0.00, 0.998), (101.28, 28.14, 0.64, 0.36, 0.010)),
    ("GRNN", "ResNet-20", "cifar10"): ((9.12, 40.86, 0.00, 0.00, 0.984), (86.42, 28.85, 0.43, 0.24, 0.051)),
    ("GRNN", "ResNet-20", "cifar100"): ((20.79, 38.09, 0.00, 0.00, 0.963), (99.25, 28.28, 0.45, 0.25, 0.032)),
    ("GRNN", "ResNet-18", "cifar10:size=256"): ((15.59, 38.41, 0.01, 0.01, 0.965), (72.55, 29.56, 0.46, 0.54, 0.153)),
    ("GRNN", "ResNet-18", "cifar100:size=256"): ((34.63, 34.13, 0.03, 0.02, 0.917), (85.33, 28.97, 0.48, 0.55, 0.159)),
    ("GRNN", "ResNet-18", "photos64:size=256"): ((13.26, 38.36, 0.04, 0.03, 0.932), (62.87, 30.22, 0.40, 0.48, 0.273)),
    ("GGL", "ResNet-18", "cifar10"): ((63.59, 30.22, 0.40, 0.39, 0.231), (87.22, 28.79, 0.47, 0.46, 0.180)),
}


def _reported(printed: _Printed) -> dict[str, float | None]:
    rmse, psnr, vgg, alex, ssim = printed
    return {
        "rmse_thesis": rmse,
        "psnr_thesis": psnr,
        "psnr": round(psnr_from_fedkl(psnr), 2),
        "lpips_vgg": vgg,
        "lpips": alex,
        "ssim": ssim,
        "psnr_aligned": None,
        "ssim_aligned": None,
    }


def _row(method: str, network: str, data: str) -> str:
    name = NAMES[data] if data in NAMES else NAMES[data.partition(":")[0]]
    return f"{method}, {network}, {'ILSVRC' if method == 'GGL' or data.startswith('photos') else name}"


def _cells() -> tuple[Cell, ...]:
    found = []
    for (method, network, data), (without, locked) in _PRINTED.items():
        model, act, painted, grnn = _NETWORKS[network]
        if method == "GGL":
            model = "lenet-dlg"
        attack, victims = {"DLG": (MATCHING, 50), "GRNN": (grnn, painted), "GGL": ("ggl", 10)}[method]
        quick = {"DLG": f"{MATCHING},steps=60", "GRNN": f"{GRNN},steps=150", "GGL": "ggl:steps=20"}[method]
        for column, defense, printed in (
            ("without", NONE, without),
            ("with, as the text has it", SERVERS_LOCKS["identity"], locked),
            ("with, as the code has it", LOCKS[act], locked),
        ):
            run = attacked(model, data, attack, defense, victims, (*METRICS, *PERCEPTUAL))
            fast = 2 if (method, data, column) == ("DLG", "mnist:size=32", "without") else 0
            found.append(
                Cell(_row(method, network, data), column, run, _reported(printed), quick=fast, quick_attack=quick)
            )
    return tuple(found)


TABLE_6 = Table(
    "5.6",
    "the thesis' figures of DLG, GRNN and GGL, one image per update, the attacker ignores the lock",
    f"{CONVENTION} What the thesis calls MSE is the root mean square error of pixels from 0 to 255. Its LPIPS was fed "
    "with such pixels, blue first, and ours with red first from -1 to 1, small pictures enlarged to 64 pixels a side: "
    "the two do not compare.",
    "The thesis prints one figure with the lock; it stands beside the linear lock of the text, which begins with the "
    "server's lock, and beside that of the released code (ReLU on LeNet, sigmoid on ResNets, each client its own). "
    "Without a lock LeNet has no normalisation. Ours on ILSVRC are public photographs under GRNN, and under GGL "
    "CIFAR-10 on LeNet with principal components for a generator. What an attacker gets who does not ignore the lock "
    "is in 5.4 and 5.7. Cannot tell: its cells wait for a GPU; for what was measured of them see 5.4 and 5.5.",
    _cells(),
    heavy="GRNN has 20, 10 or 4 victims and GGL ten.",
)

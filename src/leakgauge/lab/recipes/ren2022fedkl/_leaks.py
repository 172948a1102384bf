"""Tables 5.4 to 5.7: what leaks without a lock, with BatchNorm alone, and with a lock; and what is shared of it."""

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
    PLAIN_NORM,
    SEARCH,
    SERVERS_LOCKS,
    TILED,
    attacked,
    quality,
    variant,
)
from leakgauge.lab.reproduce.recipe import Cell, Table
from leakgauge.metrics.psnr import psnr_from_fedkl

_GRNN_LARGE = f"{GRNN},tv=1e-06"  # on the ResNets
_Row = tuple[str, str | None, str]  # configuration, how an attacker who knows it uses that, the thesis' figure


def _rows() -> dict[str, _Row]:
    """Row -> configuration, way, and which of the thesis' figures stands there."""
    found: dict[str, _Row] = {
        "no lock": (NONE, None, "without"),
        "BatchNorm only": (PLAIN_NORM, None, ""),
        "BatchNorm only, stretched": (PLAIN_NORM, "", ""),
    }
    for act, lock in LOCKS.items():
        found |= {
            f"{act} lock, ignored": (lock, None, "with" if act == "relu" else ""),
            f"{act} lock, searched for": (lock, SEARCH, ""),
            f"{act} lock, searched for, stretched": (lock, "joint", ""),
            f"{act} lock, searched for, matched behind it": (lock, "behind the lock, not stretched", ""),
            f"{act} lock, known": (f"{lock},told=both", SEARCH, ""),
            f"{act} lock of the server, searched for": (SERVERS_LOCKS[act], SEARCH, ""),
        }
    return found


def _three_rounds() -> tuple[Cell, ...]:
    """An attacker with three updates: the lock and the picture of the client stay, the weights change."""
    return tuple(
        Cell(
            f"{act} lock, searched for, three rounds seen",
            NAMES["cifar10"],
            attacked("lenet-dlg", "cifar10", TILED, f"{lock},rounds=3", trials=20, way=SEARCH),
            quality(),
            "adaptive",
        )
        for act, lock in LOCKS.items()
        if act != "sigmoid"  # one round is enough
    )


def _leaks(
    attacks: tuple[str, str], rows: dict[str, _Row], thesis: dict[str, dict[str, tuple[float, float]]], quick: str
) -> tuple[Cell, ...]:
    """Every configuration on LeNet; `attacks` are for no normalisation and for one, `thesis` has data -> figures."""
    fast = ("BatchNorm only", "sigmoid lock, searched for")
    return tuple(
        Cell(
            row,
            NAMES[data],
            attacked("lenet-dlg", data, attacks[defense != NONE], defense, way=way),
            quality(figures.get(known)),
            variant(way),
            quick=2 if data == "cifar10" and row in fast else 0,
            quick_attack=f"{attacks[1]}{quick}",
        )
        for data, figures in thesis.items()
        for row, (defense, way, known) in rows.items()
    )


TABLE_4 = Table(
    "5.4",
    "gradient matching on LeNet, one image per update",
    CONVENTION,
    "The thesis gives the attacker the label; ours reads it off the last layer. Its LeNet without a lock has no "
    "normalisation. The two attackers behind BatchNorm start from a repeated tile and not from noise, which was "
    "chosen on three victims of CIFAR-10, seed 0; so was the unit in which scale and shift are searched. The thesis' "
    "lock on LeNet is the one with a ReLU, which switches channels off. Of three rounds the first is that of the "
    "other rows; in the later ones every weight was moved at random by a tenth of its tensor's size, in place of a "
    "training. Contradicts the thesis' claim that BatchNorm or the lock stop DLG: BatchNorm hides brightness and "
    "contrast alone, and an attacker who searches for scale and shift sees through a sigmoid lock in every case and "
    "through the linear one in part; supports it for the attacker who ignores the lock, and for a ReLU lock on "
    "CIFAR-10.",
    (
        *_leaks(
            (MATCHING, TILED),
            _rows(),
            {
                "mnist:size=32": {"without": (32.71, 0.724), "with": (26.64, -0.003)},
                "cifar10": {"without": (41.14, 0.724), "with": (28.20, 0.006)},
            },
            ",steps=60",
        ),
        *_three_rounds(),
    ),
    heavy="the rows of three rounds have 20 victims: each evaluation is of three networks.",
)

_GRNN_ROWS = {row: parts for row, parts in _rows().items() if "identity" not in row}
_LARGE = {  # model -> data, victims, without and with the lock
    "resnet20:activation=sigmoid": ("cifar10", 10, (40.86, 0.984), (28.85, 0.051)),
    "resnet18-grnn": ("photos64:size=256", 4, (38.36, 0.932), (30.22, 0.273)),
}

TABLE_4_GRNN = Table(
    "5.4-grnn",
    "GRNN, one image per update",
    CONVENTION,
    "The thesis runs 20,000 steps at 32 pixels, ours 8,000. Its ResNet-20 with a lock has ReLU blocks, the one "
    "without sigmoid; ours has sigmoid in both, and the lock the thesis uses on ResNets, with a sigmoid. Ours at 256 "
    "pixels are public photographs, its own are from ImageNet. Contradicts the claim that the lock stops GRNN: it is "
    "found by the search, with a ReLU too; supports it for the attacker who ignores the lock. For the ResNets it "
    "cannot tell: they wait for a GPU.",
    (
        *_leaks(
            (GRNN, GRNN),
            _GRNN_ROWS,
            {
                "mnist:size=32": {"without": (52.78, 1.0), "with": (28.00, 0.108)},
                "cifar10": {"without": (49.29, 1.0), "with": (28.52, 0.101)},
            },
            ",steps=150",
        ),
        *(
            Cell(
                f"{'ResNet-18' if model == 'resnet18-grnn' else 'ResNet-20'}, {row}",
                NAMES[data],
                attacked(model, data, _GRNN_LARGE, defense, trials, way=way),
                quality(thesis),
                variant(way),
            )
            for model, (data, trials, without, locked) in _LARGE.items()
            for row, way, defense, thesis in (
                ("no lock", None, NONE, without),
                ("sigmoid lock, ignored", None, LOCKS["sigmoid"], locked),
                ("sigmoid lock, searched for", SEARCH, LOCKS["sigmoid"], None),
                ("sigmoid lock, known", SEARCH, f"{LOCKS['sigmoid']},told=both", None),
            )
        ),
    ),
    heavy="the rows of the ResNets have ten and four victims: minutes each on a GPU. Without a lock they have "
    "BatchNorm in its place, which is the ablation.",
)

TABLE_5 = Table(
    "5.5",
    "GGL, one image per update",
    CONVENTION,
    "The thesis has ImageNet and a generator for it; ours draws on principal components of public samples of "
    "CIFAR-10. GGL ignores the lock here: it runs with the public guess of scale and shift. What the generator draws "
    "from any update is measured on decoys, see the attack's page. Cannot tell: another generator, network and data "
    "set, ten pictures, and none of the columns is recovered beyond what the generator draws anyway.",
    tuple(
        Cell(
            row,
            "CIFAR-10",
            attacked("lenet-dlg", "cifar10", "ggl", defense),
            quality(thesis),
            quick=quick,
            quick_attack="ggl:steps=20",
        )
        for row, defense, thesis, quick in (
            ("no lock", NONE, (30.22, 0.231), 1),
            ("BatchNorm only", PLAIN_NORM, None, 0),
            ("sigmoid lock", LOCKS["sigmoid"], (28.79, 0.180), 0),
            ("relu lock", LOCKS["relu"], None, 0),
        )
    ),
)


_Printed = tuple[float, float, float, float, float]  # "MSE", "PSNR", LPIPS with VGG, with AlexNet, SSIM
_NETWORKS_6 = {  # the thesis' name -> network, activation of the released code's lock, victims of GRNN, GRNN
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


def _row_6(method: str, network: str, data: str) -> str:
    name = NAMES[data] if data in NAMES else NAMES[data.partition(":")[0]]
    return f"{method}, {network}, {'ILSVRC' if method == 'GGL' or data.startswith('photos') else name}"


def _cells_6() -> tuple[Cell, ...]:
    found = []
    for (method, network, data), (without, locked) in _PRINTED.items():
        model, act, by_grnn, grnn = _NETWORKS_6[network]
        if method == "GGL":
            model = "lenet-dlg"
        attack, victims = {"DLG": (MATCHING, 50), "GRNN": (grnn, by_grnn), "GGL": ("ggl", 10)}[method]
        quick = {"DLG": f"{MATCHING},steps=60", "GRNN": f"{GRNN},steps=150", "GGL": "ggl:steps=20"}[method]
        for column, defense, printed in (
            ("without", NONE, without),
            ("with, as the text has it", SERVERS_LOCKS["identity"], locked),
            ("with, as the code has it", LOCKS[act], locked),
        ):
            run = attacked(model, data, attack, defense, victims, (*METRICS, *PERCEPTUAL))
            fast = 2 if (method, data, column) == ("DLG", "mnist:size=32", "without") else 0
            found.append(
                Cell(_row_6(method, network, data), column, run, _reported(printed), quick=fast, quick_attack=quick)
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
    _cells_6(),
    heavy="GRNN has 20, 10 or 4 victims and GGL ten.",
)


_SHARED = {"nothing": "nothing", "key": "key", "lock": "gradient", "both": "key-and-gradient"}
_STEPS = f"{TILED},steps=100"
_NETWORKS_7 = {  # name -> network, data sets, victims under matching and under GRNN, GRNN
    "LeNet": ("lenet-dlg", ("mnist:size=32", "cifar10", "cifar100"), 50, 20, GRNN),
    "ResNet-20": ("resnet20:activation=sigmoid", ("mnist:size=32", "cifar10", "cifar100"), 0, 10, _GRNN_LARGE),
    "ResNet-18": ("resnet18-grnn", ("cifar10:size=256", "cifar100:size=256", "photos64:size=256"), 0, 4, _GRNN_LARGE),
}


def _cells_7() -> tuple[Cell, ...]:
    found = []
    for network, (model, sets, matched, by_grnn, grnn) in _NETWORKS_7.items():
        attackers = (
            ("matching", _STEPS, SEARCH, matched),
            ("matching, key not read", _STEPS, None, matched),
            ("GRNN", grnn, SEARCH, by_grnn),
            ("GRNN, key not read", grnn, None, by_grnn),
        )
        for data in sets:
            for shared, given in _SHARED.items():
                for column, attack, way, victims in attackers:
                    if not victims or ("not read" in column and shared not in ("nothing", "lock")):
                        continue
                    lock = f"{SERVERS_LOCKS['identity']},told={given}"
                    quick = 2 if (network, data, shared, column) == ("LeNet", "cifar10", "lock", "matching") else 0
                    found.append(
                        Cell(
                            f"{network}, {NAMES.get(data) or NAMES[data.partition(':')[0]]}, {shared}",
                            column,
                            attacked(model, data, attack, lock, victims, way=way),
                            quality(),
                            variant(way),
                            quick=quick,
                            quick_attack=f"{TILED},steps=30",
                        )
                    )
    return tuple(found)


TABLE_7 = Table(
    "5.7",
    "what is shared of key and lock besides the update, one image per update",
    CONVENTION,
    "The thesis has pictures and no figures here, and says that the key alone lets GRNN succeed at 32 pixels, that "
    "the lock alone does not, and that both give the best pictures. *Lock* is the gradient of the lock layer, as its "
    "section 5.3.4 has it, and the server made the first lock and knows it. Whoever reads the key off that gradient "
    "by division (all columns but those that say otherwise) knows as much as one who was given it, so *lock* and "
    "*key* are one case: the claim that the lock alone does not help holds only for an attacker who does not divide. "
    "The linear lock is the text's. DLG never succeeds in the thesis; matching here is that attack with the label "
    "read off the last layer, from a repeated tile, 100 steps. GGL on ImageNet is not here: its generator is not ours "
    "to give. Contradicts the thesis for LeNet: with the first lock known, matching "
    "finds as much whatever is shared, nothing included, on MNIST, CIFAR-10 and CIFAR-100, and the lock's gradient is "
    "as good as the key; supports it for the attacker who does not divide. GRNN finds every picture of MNIST where "
    "nothing is shared; for its other cells and the ResNets it cannot tell, they were not run.",
    _cells_7(),
    heavy="GRNN has 20, 10 or 4 victims: minutes each on a GPU.",
)

TABLE_7_OWN = Table(
    "5.7-own-locks",
    "what the attacker is told of a key and a lock that the client drew itself, CIFAR-10 on LeNet",
    CONVENTION,
    "Not the protocol of the text: here every client draws its own first lock (`first_lock=client`), and *told lock* "
    "gives the values of that lock, not its gradient. A key without a lock says nothing about scale and shift, which "
    "are searched for as if nothing were told. A lock without a key leaves the key to be searched for; with more "
    "numbers in the key than in scale and shift that is the same problem in other coordinates. Cannot tell what the "
    "thesis claims: nothing is left to gain by being told, since the search finds a sigmoid lock by itself.",
    tuple(
        Cell(
            f"told {given}",
            f"{name}, length {length}",
            attacked("lenet-dlg", "cifar10", attack, f"{LOCKS['sigmoid']},length={length},told={given}", way=SEARCH),
            quality(),
            "adaptive",
            quick=1 if (given, name, length) == ("lock", "matching", 1024) else 0,
            quick_attack=f"{TILED},steps=60",
        )
        for name, attack in (("matching", TILED), ("GRNN", GRNN))
        for length in (1024, 8)
        for given in ("nothing", "key", "lock", "both")
    ),
)

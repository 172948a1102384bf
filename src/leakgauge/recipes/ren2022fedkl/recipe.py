"""Ren, "Gradient Leakage and Protection for Federated Learning", thesis, Swansea 2023, chapter 5 (FedKL).

Beside every locked network stands the same one with a plain BatchNorm, and beside every attack the one that knows.
"""

from __future__ import annotations

from leakgauge.metrics.psnr import psnr_from_fedkl
from leakgauge.recipes._recipe import Cell, Recipe, Run, Study, Table
from leakgauge.recipes.ren2022fedkl._locked import LockedFederation
from leakgauge.types import LocalTraining, Scenario

_NAMES = {"mnist:size=32": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "photos64:size=256": "photographs"}
_METRICS = ("psnr_aligned", "ssim_aligned")
_TRAIN = LocalTraining(batchnorm="train")  # the statistics of the one image, as in the thesis
_NONE, _PLAIN_NORM = "none", "batchnorm-only"
_LOCKS = {act: f"key-lock:activation={act},first_lock=client" for act in ("identity", "sigmoid", "relu")}
_MATCHING = "idlg:restarts=1"


def _leak(
    model: str, data: str, attack: str, defense: str, trials: int = 50, oracle: str = "honest-but-curious"
) -> Run:
    """One attack, one configuration: what the attacker knows stands in its fields."""
    return Run(
        Scenario(
            model=model, data=data, local=_TRAIN, attacks=(attack,), metrics=_METRICS, variants="plain",
            defenses=() if defense == _NONE else (defense,), trials=trials, threat_model=oracle,
        )
    )  # fmt: skip


def _quality(thesis: tuple[float, float] | None = None) -> dict[str, float | None]:
    """The thesis' "PSNR" and SSIM, the true PSNR behind the former, and the aligned scores, which it does not have."""
    psnr, ssim = thesis or (None, None)
    true = None if psnr is None else round(psnr_from_fedkl(psnr), 2)
    return {
        "psnr_thesis": psnr, "psnr": true, "ssim": ssim, "psnr_aligned": None, "ssim_aligned": None,
        "psnr_aligned_above(20)": None,
    }  # fmt: skip


def _with(attack: str, fields: str) -> str:
    return f"{attack}{',' if ':' in attack else ':'}{fields}" if fields else attack


_ACCURACY = {  # model -> data -> FedAvg, FedKL, lost with a random key; in percent
    "lenet-dlg:activation=relu,init=default": {"mnist": (98.14, 97.45, 87.00)},
    "resnet20": {"cifar10": (91.20, 88.45, 9.28), "cifar100": (58.58, 61.97, 33.46)},
    "resnet32": {"cifar10": (91.37, 89.29, 13.38), "cifar100": (61.91, 64.17, 19.03)},
    "resnet18": {"cifar10": (89.50, 91.66, 2.25), "cifar100": (68.59, 74.19, 12.59)},
}
_TRAINED = {"resnet20": "ResNet-20", "resnet32": "ResNet-32", "resnet18": "ResNet-18"}


def _study(model: str, data: str, defense: str) -> Study:
    return Study(LockedFederation(model=model, data=data, defense=defense))


def _row(model: str, data: str) -> str:
    return f"{_TRAINED.get(model, 'LeNet')}, {_NAMES.get(data, 'MNIST')}"


TABLE_1 = Table(
    "5.1",
    "test accuracy of federated training",
    "each client's own key and lock in the global model, mean over three clients. The thesis counts correct answers "
    "over whole batches, which caps 10,000 test images at 99.52 %.",
    "The thesis trains for 200 rounds with falling rates; ours has as many rounds as the cells say, with a constant "
    "rate. Its LeNet without a lock has no normalisation at all, and its ResNet-20 with one has other blocks and "
    "shortcuts than the one without: the column in between tells what BatchNorm alone does. On the ResNets, which "
    "have one, it is the column before. The row of ResNet-20 was trained for three rounds of 20,000 "
    "pictures on two busy cores: too few to judge accuracy by, and its round times are not comparable.",
    tuple(
        Cell(
            _row(model, data), column, _study(model, data, defense), {"accuracy": reported, "round_ms": None},
            quick=1 if data == "mnist" else 0,
        )
        for model, by_data in _ACCURACY.items()
        for data, (plain, locked, _) in by_data.items()
        for column, defense, reported in (
            ("no lock", _NONE, plain / 100), ("BatchNorm only", _PLAIN_NORM, None),
            ("locked, ReLU", _LOCKS["relu"], locked / 100), ("locked, linear", _LOCKS["identity"], None),
        )
    ),
    heavy="trainings; those of the ResNets take a GPU.",
)  # fmt: skip

TABLE_3 = Table(
    "5.3",
    "test accuracy without the key",
    "the thesis' figure is its accuracy with the key less the gap it prints. With a random key: in the client's own "
    "lock, and in a lock as it is first drawn, which is what a server could try.",
    "In the released code the lock that is tested here is all zeros, which gives chance accuracy and cannot have "
    "given the printed figures.",
    tuple(
        Cell(
            _row(model, data), act, _study(model, data, _LOCKS[act]),
            {
                "accuracy": None, "accuracy_other_key": None,
                "accuracy_server": round((locked - gap) / 100, 4) if act == "relu" else None,
            },
            quick=1 if data == "mnist" and act != "sigmoid" else 0,
        )
        for model, by_data in _ACCURACY.items()
        for data, (_, locked, gap) in by_data.items()
        for act in _LOCKS
    ),
    heavy="trainings; those of the ResNets take a GPU.",
)  # fmt: skip

_CONVENTION = (
    "the thesis computes 10 log10(255^2 / RMSE), the root where the error belongs; the true PSNR is twice that minus "
    "48.13 dB. Raw scores are clamped to [0, 1]. Aligned ones fit one scale and one offset per image to the truth "
    "first: train-mode BatchNorm hides both for a single image."
)
_START = "init=patterned-4"
_SEARCH = f"{_START},unlock=True"


def _rows(start: str, search: str) -> dict[str, tuple[str, str, str]]:
    """Row -> the attacker's fields, the configuration, and which of the thesis' figures stands there."""
    found = {
        "no lock": ("", _NONE, "without"),
        "BatchNorm only": (start, _PLAIN_NORM, ""),
        "BatchNorm only, stretched": (f"{start},stretch=True".lstrip(","), _PLAIN_NORM, ""),
    }
    for act, lock in _LOCKS.items():
        found |= {
            f"{act} lock, ignored": (start, lock, "with" if act == "relu" else ""),
            f"{act} lock, searched for": (search, lock, ""),
            f"{act} lock, searched for, stretched": (f"{search},stretch=True", lock, ""),
            f"{act} lock, searched for, matched behind it": (f"{search},skip=lock", lock, ""),
            f"{act} lock, known": (search, f"{lock},told=both", ""),
        }
    return found


def _three_rounds() -> tuple[Cell, ...]:
    """The client's lock and picture stay while the weights move: an attacker who keeps three updates."""
    return tuple(
        Cell(
            f"{act} lock, searched for, three rounds seen", _NAMES["cifar10"],
            _leak("lenet-dlg", "cifar10", _with(_MATCHING, _SEARCH), f"{lock},rounds=3", trials=20), _quality(),
        )
        for act, lock in _LOCKS.items()
        if act != "sigmoid"  # one round is enough
    )  # fmt: skip


def _leaks(
    attack: str, rows: dict[str, tuple[str, str, str]], thesis: dict[str, dict[str, tuple[float, float]]], quick: str
) -> tuple[Cell, ...]:
    """Every configuration under one attack on LeNet; `thesis` has data -> figures without and with the lock."""
    fast = ("BatchNorm only", "sigmoid lock, searched for")
    return tuple(
        Cell(
            row, _NAMES[data], _leak("lenet-dlg", data, _with(attack, fields), defense),
            _quality(figures.get(known)), quick=2 if data == "cifar10" and row in fast else 0,
            quick_attack=_with(quick, fields),
        )
        for data, figures in thesis.items()
        for row, (fields, defense, known) in rows.items()
    )  # fmt: skip


TABLE_4 = Table(
    "5.4",
    "gradient matching on LeNet, one image per update",
    _CONVENTION,
    "The thesis gives the attacker the label; ours reads it off the last layer. Its LeNet without a lock has no "
    "normalisation. The two attackers behind BatchNorm start from a repeated tile and not from noise, which was chosen "
    "on three victims of CIFAR-10, seed 0; so was the unit in which scale and shift are searched. The thesis' lock "
    "on LeNet is the one with a ReLU, which switches channels off. Of three rounds the first is that of the other "
    "rows; in the later ones every weight was moved at random by a tenth of its tensor's size, in place of a "
    "training.",
    (
        *_leaks(
            _MATCHING, _rows(_START, _SEARCH),
            {
                "mnist:size=32": {"without": (32.71, 0.724), "with": (26.64, -0.003)},
                "cifar10": {"without": (41.14, 0.724), "with": (28.20, 0.006)},
            },
            "idlg:restarts=1,steps=60",
        ),
        *_three_rounds(),
    ),
    heavy="the rows of three rounds have 20 victims: each evaluation is of three networks.",
)  # fmt: skip

_GRNN_ROWS = {row: parts for row, parts in _rows("", "unlock=True").items() if "identity" not in row}
_LARGE = {  # model -> data, victims, without and with the lock
    "resnet20:activation=sigmoid": ("cifar10", 10, (40.86, 0.984), (28.85, 0.051)),
    "resnet18-grnn": ("photos64:size=256", 4, (38.36, 0.932), (30.22, 0.273)),
}

TABLE_5 = Table(
    "5.5",
    "GRNN, one image per update",
    _CONVENTION,
    "The thesis runs 20,000 steps at 32 pixels, ours 8,000. Its ResNet-20 with a lock has ReLU blocks, the one without "
    "sigmoid; ours has sigmoid in both, and the lock the thesis uses on ResNets, with a sigmoid. Ours at 256 pixels "
    "are public photographs, its own are from ImageNet.",
    (
        *_leaks(
            "grnn", _GRNN_ROWS,
            {
                "mnist:size=32": {"without": (52.78, 1.0), "with": (28.00, 0.108)},
                "cifar10": {"without": (49.29, 1.0), "with": (28.52, 0.101)},
            },
            "grnn:steps=150",
        ),
        *(
            Cell(
                f"{'ResNet-18' if model == 'resnet18-grnn' else 'ResNet-20'}, {row}", _NAMES[data],
                _leak(model, data, _with("grnn:tv=1e-06", fields), defense, trials), _quality(thesis),
            )
            for model, (data, trials, without, locked) in _LARGE.items()
            for row, fields, defense, thesis in (
                ("no lock", "", _NONE, without),
                ("sigmoid lock, ignored", "", _LOCKS["sigmoid"], locked),
                ("sigmoid lock, searched for", "unlock=True", _LOCKS["sigmoid"], None),
                ("sigmoid lock, known", "unlock=True", f"{_LOCKS['sigmoid']},told=both", None),
            )
        ),
    ),
    heavy="the rows of the ResNets have ten and four victims: minutes each on a GPU. Without a lock they have "
    "BatchNorm in its place, which is the ablation.",
)  # fmt: skip

TABLE_6 = Table(
    "5.6",
    "GGL, one image per update",
    _CONVENTION,
    "The thesis has ImageNet and a generator for it; ours draws on principal components of public samples of "
    "CIFAR-10. GGL knows no lock: it runs with the public guess of scale and shift. What the generator draws from any "
    "update is measured on decoys, see the attack's page.",
    tuple(
        Cell(row, "CIFAR-10", _leak("lenet-dlg", "cifar10", "ggl", defense), _quality(thesis), quick=quick,
             quick_attack="ggl:steps=20")
        for row, defense, thesis, quick in (
            ("no lock", _NONE, (30.22, 0.231), 1), ("BatchNorm only", _PLAIN_NORM, None, 0),
            ("sigmoid lock", _LOCKS["sigmoid"], (28.79, 0.180), 0), ("relu lock", _LOCKS["relu"], None, 0),
        )
    ),
)  # fmt: skip

TABLE_7 = Table(
    "5.7",
    "what the attacker is told of key and lock, CIFAR-10 on LeNet, one image per update",
    _CONVENTION,
    "The thesis' attacker always holds the true lock, so that its key shared is both told here: there it re-enables "
    "GRNN. A key without a lock says nothing about scale and shift, which are searched for as if nothing were told. A "
    "lock without a key leaves the key to be searched for; with more numbers in the key than in scale and shift that "
    "is the same problem in other coordinates. Were the lock's gradient shared, its weight divided by its bias would "
    "be the key, which is both told again.",
    tuple(
        Cell(
            f"told {told}", f"{name}, length {length}",
            _leak("lenet-dlg", "cifar10", _with(attack, fields), f"{_LOCKS['sigmoid']},length={length},told={told}"),
            _quality(), quick=1 if (told, name, length) == ("lock", "matching", 1024) else 0,
            quick_attack=f"idlg:restarts=1,steps=60,{_SEARCH}",
        )
        for name, attack, fields in (("matching", _MATCHING, _SEARCH), ("GRNN", "grnn", "unlock=True"))
        for length in (1024, 8)
        for told in ("nothing", "key", "lock", "both")
    ),
)  # fmt: skip

RECIPE = Recipe(
    name="ren2022fedkl",
    summary="FedKL: accuracy with and without the key, and what leaks with the lock and with BatchNorm alone",
    paper="Ren 2023, Gradient Leakage and Protection for Federated Learning, thesis, Swansea, chapter 5",
    note="The question behind all tables: does the lock add anything to BatchNorm? Read aligned figures of *BatchNorm "
    "only* beside those of *searched for*. Which table of the thesis has which number is partly inferred.",
    tables=(TABLE_1, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7),
)

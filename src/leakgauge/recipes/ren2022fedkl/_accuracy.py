"""Tables 5.1 and 5.3: accuracy."""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Study, Table
from leakgauge.recipes.ren2022fedkl._cells import LOCKS, NAMES, NONE, PLAIN_NORM
from leakgauge.recipes.ren2022fedkl._locked import LockedFederation

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
    return f"{_TRAINED.get(model, 'LeNet')}, {NAMES.get(data, 'MNIST')}"


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
            ("no lock", NONE, plain / 100), ("BatchNorm only", PLAIN_NORM, None),
            ("locked, ReLU", LOCKS["relu"], locked / 100), ("locked, linear", LOCKS["identity"], None),
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
            _row(model, data), act, _study(model, data, LOCKS[act]),
            {
                "accuracy": None, "accuracy_other_key": None,
                "accuracy_server": round((locked - gap) / 100, 4) if act == "relu" else None,
            },
            quick=1 if data == "mnist" and act != "sigmoid" else 0,
        )
        for model, by_data in _ACCURACY.items()
        for data, (_, locked, gap) in by_data.items()
        for act in LOCKS
    ),
    heavy="trainings; those of the ResNets take a GPU.",
)  # fmt: skip

"""Labels recovered from the gradient of a batch: rules, by batch size, state of the model and noise."""

from __future__ import annotations

from leakgauge.lab.reproduce.recipe import Cell, Recipe, Run, Table
from leakgauge.matching.label_counts import RULES
from leakgauge.types import Scenario, Training

_DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
_SIZES = {1: (100, 1), 8: (100, 1), 64: (100, 1), 256: (25, 2), 1024: (9, 6), 4096: (2, 25)}  # victims, base seeds
_RELU = "lenet-dlg:activation=relu,init=default"
_TRAINED = Training(rounds=200, optimizer="adam", lr=0.003)
_STATES = {  # state of the network -> its name, its training
    "untrained": (_RELU, Training()),
    "trained": (_RELU, _TRAINED),
    "untrained, U(-0.5, 0.5)": ("lenet-dlg", Training()),
}
_NOISES = (0.0, 1e-4, 1e-3, 1e-2)
_NOISY_SIZE = 64
_NAMES = ("auto", *RULES)


def _attacked(data: str, state: str, rule: str, size: int, noise: float = 0.0) -> Run:
    model, training = _STATES[state]
    trials, seeds = _SIZES[size]
    return Run(
        Scenario(
            model=model,
            data=data,
            batch_size=size,
            attacks=(f"labels:rule={rule}" if rule != "auto" else "labels",),
            training=training,
            defenses=(f"gaussian:std={noise:g}",) if noise else (),
            variants="plain",
            trials=trials,
        ),
        seeds,
    )


def _cells(data: str) -> tuple[Cell, ...]:
    """The uniform first weights are DLG's; they are measured on one data set."""
    states = list(_STATES) if data == "mnist" else list(_STATES)[:2]
    return tuple(
        Cell(
            f"{state}: {rule}",
            f"{size}",
            _attacked(data, state, rule, size),
            {"label_accuracy": None},
            quick=8 if (state, rule, size) == ("untrained", "auto", 8) else 0,
        )
        for state in states
        for rule in _NAMES
        for size in _SIZES
        if data == "mnist" or size <= 1024
    )


def _noisy_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            f"{state}: {rule}",
            f"{noise:g}",
            _attacked("mnist", state, rule, _NOISY_SIZE, noise),
            {"label_accuracy": None},
            quick=8 if (state, rule, noise) == ("untrained", "auto", 1e-3) else 0,
        )
        for state in _STATES
        for rule in _NAMES
        for noise in _NOISES
    )


_SIZES_NOTE = (
    "Columns are batch sizes. `sign`, `llg` and `bias` take a sample's weight from the negative entries alone, which "
    "is too little once a batch holds most of the classes; `llg-plus`, `llg-star`, `exact` and `presence` learn it "
    "from other inputs. A trained network hardly answers to samples that it is sure of: their labels are filled in by "
    "what is usual in the public data. `auto` is chosen for even and for uneven batches alike, so on even ones another "
    "rule can do better."
)
_OVERLAP = "share of a batch's labels that the claimed ones cover, each as often as it occurs, averaged over batches."

RECIPE = Recipe(
    name="label_counts",
    summary="How many of a batch's labels the last layer's gradient gives away: rules, batch sizes, training, noise",
    paper="Tables of our own; the rules are those of Zhao et al. 2020, Yin et al. 2021, Wainakh et al. 2022, Ma et al. "
    "2023, and two of ours",
    note="Untrained means PyTorch's initialisation and ReLU; U(-0.5, 0.5) is the start of DLG with its sigmoids; "
    "trained is the first after 200 rounds of ten clients with 32 samples. Batches are drawn from the test split at "
    "random, so their labels are nearly even, and a rule that answers evenly (yin, once N exceeds the classes) looks "
    "good on large ones without reading anything. The attacker holds 512 public samples. Each base seed is another "
    "network. `exact`, `presence` and `auto` took their form after 27 variants were compared on batches of these same "
    "test splits, labels in hand, with the network of seed 0: their figures here are not from unseen data.",
    tables=(
        *(
            Table(str(number), f"label accuracy against batch size, {_DATA[data]}", _OVERLAP, _SIZES_NOTE, _cells(data))
            for number, data in enumerate(_DATA, 1)
        ),
        Table(
            "4",
            f"label accuracy against noise, MNIST, batches of {_NOISY_SIZE}",
            _OVERLAP,
            "Columns are the standard deviation of the Gaussian noise in every entry of the update.",
            _noisy_cells(),
        ),
    ),
)

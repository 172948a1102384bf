"""The attacker that the paper does not consider, and what compensation does to a signal of low rank."""

from __future__ import annotations

from leakgauge.lab.recipes.wang2022protect._compensation import Compensation
from leakgauge.lab.recipes.wang2022protect._set_up import CONVNET, DATA, LENET, by_dga, by_gia, trained
from leakgauge.lab.reproduce.recipe import Cell, Run, Study, Table

_MLP = "mlp"
_LEAK = {"psnr": None, "psnr_median": None, "recognised": None}


def _on(model: str, defense: str, variant: str) -> Run:
    """The attack that suits the network: the first-layer ratio where the first layer is dense."""
    if model == CONVNET:
        return by_gia("cifar10", variant, defense)
    attack = {"attacks": ("linear",)} if model == _MLP else {}
    return by_dga("cifar10", defense, model=model, **attack)


def _slices() -> tuple[Cell, ...]:
    names = {LENET: "lenet-cpl", "lenet-dlg": "lenet-dlg", CONVNET: "convnet", _MLP: "mlp, first-layer ratio"}
    cells = []
    for model, column in names.items():
        for share in (20, 30, 50):
            for row, more, variant in (
                ("plain", "", "plain"),
                ("slices known", "", "adaptive"),
                ("choice known", ",secret=false", "adaptive"),
            ):
                run = _on(model, f"sensitivity:gamma={share / 100},std=0.1{more}", variant)
                named = {"slices_named": None} if row == "slices known" and model != _MLP else {}
                quick = 2 if model == _MLP and share == 30 and not more else 0
                cells.append(Cell(f"gamma {share} %, {row}", column, run, _LEAK | named, variant, quick))
    for share in (20, 30, 50):  # the noise of the released code
        run = by_dga("cifar10", f"sensitivity:gamma={share / 100},std=0.0005")
        for row, variant in (("plain", "plain"), ("slices known", "adaptive")):
            cells.append(Cell(f"gamma {share} %, std 0.0005, {row}", names[LENET], run, _LEAK, variant))
    return tuple(cells)


TABLE_SLICES = Table(
    "slices",
    "the attacker who knows the public slices: CIFAR-10, noise of std 0.1 unless written",
    "mean and median PSNR over victims, label known, untrained networks; noised slices named: of those that were "
    "noised, the share that the attack called so.",
    "Slices are public, because every client has to cut alike; the choice among them is not. *Choice known* draws it "
    "from a known seed, as the released code does, and so tells the attacker the clean slices: what naming them costs "
    "is the difference. These are other slices than the clients' own, so the rows are compared as samples, not victim "
    "by victim. On the convolutional network the attack compares directions. The released code's noise is so small "
    "that slices are weighted instead of dropped.",
    _slices(),
)

_FIRST = ",keep=above,recut=true,root=10,probes=1"

TABLE_Q = Table(
    "q",
    "a first look at Q, the aspect of the matrix that the server looks for noise in, one gradient a round, one seed",
    "as table cost, at gamma 30 %.",
    "The paper's figures and federation are in table 3D. Here the slices were cut anew in each round, and eigenvalues "
    "above the band alone were kept; *as released* also cuts and noises other slices, and takes out nothing; its row "
    "was called *no compensation* when it was measured, and renamed when a row without any was added after seeing it. "
    "Cannot tell: one seed of another federation says nothing about the paper's table.",
    tuple(
        Cell(
            row,
            DATA[data],
            trained(data, f"sensitivity:gamma=0.3,std=0.1{_FIRST}{more}"),
            {"accuracy": None, "accuracy_lost": None},
            quick=2 if (row, data) == ("Q = 6", "mnist") else 0,
        )
        for data in ("mnist", "cifar10")
        for row, more in (
            ("Q = 1", ",q=1"),
            ("Q = 6", ""),
            ("Q = 12", ",q=12"),
            ("Q = 20", ",q=20"),
            ("as released", ",as_released=true"),
            ("no compensation", ",compensate=false"),
        )
    ),
)

_WAYS = {
    "variance of the mean": {},
    "variance of the mean, what lies below kept too": {"keep_below": True},
    "the paper's variance, as released": {"paper_variance": True, "keep_below": True},
    "the paper's variance, only what lies above": {"paper_variance": True},
}

TABLE_COMPENSATION = Table(
    "compensation",
    "the mean of ten clients that noise half of their slices, before and after compensation",
    "relative Euclidean error of the mean. 15,826 entries (lenet-dlg on CIFAR-10), noise of std 0.0005 as released; "
    "the true update has rank 3 and entries of std 0.00017.",
    "Averaging m clients divides the noise's variance by m; the printed formula multiplies by m, which is right for a "
    "sum. The noise of a mean then lies below the band, and the released code keeps what is there, so it takes out no "
    "noise. At Q = 6 the true update is just large enough that now and then one of its own directions reaches that "
    "band and is thrown out, which makes the error larger. Taking only what lies above that band loses the signal with "
    "the noise. A real gradient need not have rank 3: see table fig-2 for what compensation does in training. With the "
    "variance of the mean this supports the paper's claim that noise can be taken out of a signal of few directions.",
    tuple(
        Cell(
            row,
            f"Q = {q}",
            Study(Compensation(q=q, **way)),
            {"error_before": None, "error_after": None, "directions_kept": None},
            quick=2 if q == 6 else 0,
        )
        for row, way in _WAYS.items()
        for q in (6, 12)
    ),
)

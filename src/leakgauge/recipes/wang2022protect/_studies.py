"""The paper's smaller studies, the attacker it does not consider, and what compensation does."""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Run, Study, Table
from leakgauge.recipes.wang2022protect._compensation import Compensation
from leakgauge.recipes.wang2022protect._roots import NoisedShare, RootSet
from leakgauge.recipes.wang2022protect._set_up import CONVNET, DATA, LENET, by_dga, by_gia, trained

_MLP = "mlp"
_LEAK = {"psnr": None, "psnr_median": None, "recognised": None}
_SEEDS = 3


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
                ("plain", "", "plain"), ("slices known", "", "adaptive"), ("choice known", ",secret=false", "adaptive"),
            ):  # fmt: skip
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

_PACKINGS = {
    "balanced": "", "left to right": ",packing=sweep", "as released": ",as_released=true",
}  # fmt: skip
_SENSITIVITY_SLICING = {"mnist": 9.83, "cifar10": 10.11}


def _slicing() -> tuple[Cell, ...]:
    cells = []
    for row, more in _PACKINGS.items():
        for data in ("mnist", "cifar10"):
            reported = _SENSITIVITY_SLICING[data] if row == "left to right" else None
            run = by_gia(data, "plain", f"sensitivity:gamma=0.3,std=0.1{more}")
            cells.append(Cell(row, f"{DATA[data]}, GIA", run, _LEAK | {"psnr": reported}))
            run = by_dga(data, f"sensitivity:gamma=0.3,std=0.1{more}")
            cells.append(Cell(row, f"{DATA[data]}, DGA", run, _LEAK))
            cells.append(Cell(row, f"{DATA[data]}, DGA, slices known", run, _LEAK, "adaptive"))
        share = NoisedShare(
            data="cifar10", noised=2, packing="sweep" if "sweep" in more else "balanced", as_released="released" in more
        )
        cells.append(
            Cell(row, "entries at gamma 20 %", Study(share, _SEEDS), {"share_least": None, "share_most": None}, quick=1)
        )
    return tuple(cells)


TABLE_SLICING = Table(
    "slicing",
    "how slices are cut",
    "as table slices; the last column is the share of the network's entries in the two smallest and the two largest of "
    "ten slices, on lenet-cpl, over three models.",
    "The paper compares slices of equal risk with slices of equal size: PSNR 9.83 against 14.51, 9.91 against 13.70 "
    "and 10.11 against 15.02 on the three data sets. Real bin packing gives every slice a like part of "
    "every tensor, and is then both. A sweep from left to right, as the released code has it, leaves whole layers "
    "in one slice. The released risk is zero for the last layer, which falls into the last slice.",
    _slicing(),
)

_ROOT_SIZES = (50, 100, 200, 300, 400)
_ROOT_PSNR = (11.40, 9.83, 9.71, 9.68, 9.66)
_BIASES = (0.1, 0.5, 1.0)
_MOVED = {"risk_apart": None, "entries_moved": None}


def _roots() -> tuple[Cell, ...]:
    cells = []
    for root, psnr in zip(_ROOT_SIZES, _ROOT_PSNR, strict=True):
        run = by_gia("mnist", "plain", f"sensitivity:gamma=0.3,std=0.1,root={root}")
        cells.append(Cell(f"{root} root samples", "MNIST, GIA", run, _LEAK | {"psnr": psnr}))
        for packing, column in (("balanced", "slices, balanced"), ("sweep", "slices, left to right")):
            study = Study(RootSet(data="mnist", root=root, packing=packing), _SEEDS)
            cells.append(Cell(f"{root} root samples", column, study, _MOVED, quick=10 if root == 50 else 0))
    for bias in _BIASES:
        for packing, column in (("balanced", "slices, balanced"), ("sweep", "slices, left to right")):
            study = Study(RootSet(data="mnist", root=100, bias=bias, packing=packing), _SEEDS)
            cells.append(Cell(f"100 root samples, {bias:.0%} of one label", column, study, _MOVED))
    return tuple(cells)


TABLE_ROOTS = Table(
    "roots",
    "size and bias of the root set",
    "PSNR as in table 3. Slices: beside those of 400 even MNIST pictures, the largest relative change of a tensor's "
    "share of the risk, and the share of entries that fall into another slice; means over three models, lenet-cpl.",
    "The paper's root samples are real; under GIA on MNIST it reports 9.89, 10.32, 10.53, 11.68 and 13.66 dB for five "
    "biases from 0.1 (even) to 1.0. Ours are made up and even, so that a client needs none; hence no attack on a "
    "biased root set, and the columns of slices show instead what a root set of real pictures can change at all.",
    _roots(),
)

_Q = {"mnist": (0.8292, 0.8687, 0.8699, 0.8610), "cifar10": (0.4164, 0.4773, 0.4785, 0.4734)}

TABLE_Q = Table(
    "q",
    "Q, the aspect of the matrix that the server looks for noise in",
    "as table cost, at gamma 30 %.",
    "The paper's figures are those of its larger network. Gradients need not be of low rank: what compensation drops "
    "of them is the price of the noise it takes out, and with noise of std 0.1 on gradients of a few samples that is "
    "everything. *As released* also cuts and noises other slices, and takes out nothing; its row was called "
    "*no compensation* when it was measured, and renamed when a row without any was added after seeing it.",
    tuple(
        Cell(
            row, DATA[data], trained(data, f"sensitivity:gamma=0.3,std=0.1,root=10,probes=1{more}"),
            {"accuracy": accuracy, "accuracy_lost": None}, quick=2 if (row, data) == ("Q = 6", "mnist") else 0,
        )
        for data, figures in _Q.items()
        for (row, more), accuracy in zip(
            (("Q = 1", ",q=1"), ("Q = 6", ""), ("Q = 12", ",q=12"), ("Q = 20", ",q=20"),
             ("as released", ",as_released=true"), ("no compensation", ",compensate=false")),
            (*figures, None, None), strict=True,
        )
    ),
)  # fmt: skip

_CLIPPED = {"mnist": (9.95, 12.36), "fashion-mnist": (10.02, 12.74), "cifar10": (10.66, 13.28)}


def _clipping() -> tuple[Cell, ...]:
    cells = []
    for data, (clipped, bare) in _CLIPPED.items():
        for row, more, psnr in (("clipped to 1", ",clip=1", clipped), ("not clipped", "", bare)):
            defense = f"sensitivity:gamma=0.3,std=0.1{more}"
            for attacker, variant in (("plain", "plain"), ("knows", "adaptive")):
                reported = _LEAK | ({"psnr": psnr} if attacker == "knows" else {})
                run = by_dga(data, defense)
                quick = 1 if data == "mnist" and more else 0
                cells.append(Cell(f"{row}, {attacker}", DATA[data], run, reported, variant, quick))
    for row, more in (("clipped to 1", ",clip=1"), ("not clipped", "")):
        study = trained("mnist", f"sensitivity:gamma=0.3,std=0.1,root=10,probes=1{more}")
        cells.append(Cell(row, "MNIST, training", study, {"accuracy": None, "accuracy_lost": None}))
    return tuple(cells)


TABLE_CLIPPING = Table(
    "clipping",
    "clipping each sample's gradient against a server that abuses compensation",
    "as table 2; *knows* is the best of an attacker who knows the slices and one who takes the noise out first.",
    "The paper's server takes the noise out of one client's update, under GIA; ours does that and also names slices. "
    "The noise is std times the bound. The released clipping fails to run, so its bound is ours: 1.",
    _clipping(),
)

_WAYS = {
    "variance of the mean": {},
    "the paper's variance, as released": {"paper_variance": True, "keep_below": True},
    "the paper's variance, only what lies above": {"paper_variance": True},
}

TABLE_COMPENSATION = Table(
    "compensation",
    "the mean of ten clients that noise half of their slices, before and after compensation",
    "relative Euclidean error of the mean. 15,826 entries (lenet-dlg on CIFAR-10), noise of std 0.0005 as released; "
    "the true update has rank 3 and entries of std 0.00017.",
    "Averaging m clients divides the noise's variance by m; the paper multiplies by m instead. All of the noise then "
    "lies below the band, and the released code keeps what is there, so it takes out no noise. At Q = 6 the true "
    "update is just large enough that now and then one of its own directions reaches that band and is thrown out, "
    "which makes the error larger. Taking only what lies above the band, as the text says, loses the signal with the "
    "noise. A real gradient need not have rank 3: see table q for what compensation does in training.",
    tuple(
        Cell(
            row, f"Q = {q}", Study(Compensation(q=q, **way)),
            {"error_before": None, "error_after": None, "directions_kept": None}, quick=2 if q == 6 else 0,
        )
        for row, way in _WAYS.items()
        for q in (6, 12)
    ),
)  # fmt: skip

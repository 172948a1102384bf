"""Tables 2 and 3: CPL beside DLG and Inverting Gradients."""

from __future__ import annotations

from leakgauge.lab.recipes.wei2020cpl._set_up import CPL, DATA, DLG, INVERTING, attacked, cpl, started
from leakgauge.lab.reproduce.recipe import Cell, Run, Table
from leakgauge.types import Training

_PRINTED = ("iterations", "asr", "label_accuracy", "ssim_of_successes", "mse_of_successes")
_CPL = {
    "cifar10": (28.3, 0.973, 1, 0.9985, 2.2e-4),
    "cifar100": (61.8, 0.981, 1, 0.959, 5.4e-4),
    "lfw": (25, 1, 1, 0.998, 2.2e-4),
    "mnist": (11.5, 1, 1, 0.99, 1.5e-5),
}
_DLG = {
    "cifar10": (114.5, 0.754, 0.965, 0.9982, 2.5e-4),
    "cifar100": (125, 0.85, 0.94, 0.953, 6.5e-4),
    "lfw": (69.2, 0.857, 0.951, 0.997, 2.9e-4),
    "mnist": (18.4, 0.686, 0.951, 0.985, 1.7e-5),
}
_IG = {
    "cifar10": (6725, 0.958, 1, 0.9984, 2.2e-4),
    "cifar100": (6813, 0.978, 1, 0.958, 5.4e-4),
    "lfw": (4527, 0.974, 1, 0.9978, 2.3e-4),
    "mnist": (3265, 0.784, 1, 0.989, 1.6e-5),
}
_OF_ALL = ("steps_mean", "recognised", "label_accuracy", "ssim", "mse")  # without a threshold there are no successes
_RELATIVE = (
    ("CPL, relative stop", "cpl", _CPL),
    ("CPL, norm below 1e-4", "cpl:absolute_threshold=1e-8", _CPL),
    ("DLG, relative stop", "dlg:restarts=1", _DLG),
)


def _on_trained(data: str, attack: str) -> Run:
    """The networks of the paper, trained: LeNet for MNIST and LFW, ResNet-20 for CIFAR."""
    model = "resnet20" if data.startswith("cifar") else "lenet-cpl:activation=tanh,init=default"
    return attacked(data, attack, model=model, trials=50, training=Training(rounds=300, lr=0.003))


TABLE_2 = Table(
    "2",
    "CPL, DLG and Inverting Gradients compared",
    "success (ASR) is convergence: gradient distance below 1e-4 within 300 steps. Iterations, SSIM and MSE are "
    "means over the successes; label accuracy is the paper's ASR_l. 'Relative stop' asks for 1e-7 of the update's own "
    "squared norm (DLG: 1e-8) and at least one step. 'Norm below 1e-4' reads the paper's threshold as that of "
    "the distance itself, not of its square. Inverting Gradients has no such threshold: its 4800 steps are spent on "
    "every "
    "victim, and the share of victims recognised (SSIM of 0.6 or more) stands beside the paper's ASR.",
    "At a gradient distance of 1e-4 pictures have 20 to 35 dB, so SSIM and MSE say more about the threshold than "
    "about the attack. The released notebooks log the L2 norm under the name MSE and call SSIM with a data range "
    "of 0; ours are the mean of squares and SSIM with data range 1. Our attacks shorten steps that do not go "
    "down; a shortened step costs an evaluation and counts in the iterations. Full steps are the published rule, "
    "which diverges for some seeds: those are failures here. One attempt each, as published. DLG as published then "
    "succeeds for 52 to 70 % of the victims, in the paper for 69 to 86 %; with shortened steps for 98 % and more, so "
    "most of its failures are the optimiser's. Inverting Gradients is run as published; why it recognises "
    "so few victims on CIFAR-10 and LFW and all on CIFAR-100 we have not examined (4800 steps, raw pixels). The paper "
    "says that its networks are trained (accuracy 0.957 on MNIST, 0.695 on LFW, 0.863 on CIFAR-10); its released code "
    "attacks fresh ones, and so do all rows but those that end in 'trained', of 300 rounds of FedSGD. "
    "The claim that CPL needs fewest iterations and succeeds most often: supported against DLG as published; "
    "against DLG with shortened steps the success rates cannot be told apart.",
    tuple(
        Cell(
            row,
            DATA[data],
            started(data) if attack == cpl() else attacked(data, attack),
            dict(zip(_PRINTED, figures, strict=True)),
            quick=2 if data == "mnist" and row in ("CPL", "DLG") else 0,
        )
        for row, attack, known in (
            ("CPL", cpl(), _CPL),
            ("CPL, full steps", f"{cpl()},line_search=fixed", _CPL),
            *_RELATIVE,
            ("DLG", DLG, _DLG),
            ("DLG, full steps", f"{DLG},line_search=fixed", _DLG),
        )
        for data, figures in known.items()
    )
    + tuple(
        Cell("Inverting Gradients", DATA[data], attacked(data, INVERTING), dict(zip(_OF_ALL, figures, strict=True)))
        for data, figures in _IG.items()
    )
    + tuple(
        Cell(
            f"{row}, trained",
            DATA[data],
            _on_trained(data, attack),
            {"recognised": None} | dict(zip(statistics, figures, strict=True)),
        )
        for row, attack, known, statistics in (
            ("CPL", "cpl", _CPL, _PRINTED),
            ("DLG", "dlg:restarts=1", _DLG, _PRINTED),
            ("Inverting Gradients", INVERTING, _IG, _OF_ALL),
        )
        for data, figures in known.items()
    ),
)

_ROWS: dict[str, dict[str, tuple[float, ...]]] = {  # data -> attack -> ASR_c, ASR_l, MSE
    "adult": {"CPL": (1, 1, 1.82e-4), "DLG": (0.99, 1, 3.23e-4), "Inverting Gradients": (1, 1, 4.97e-3)},
    "breast-cancer": {
        "CPL": (1, 1, 4.61e-4),
        "DLG": (0.35, 0.56, 6.15e-4),
        "Inverting Gradients": (0.78, 0.94, 6.29e-4),
    },
}
_TABULAR = {
    "CPL": (CPL, ("asr", "label_accuracy", "mse_of_successes")),
    "DLG": (DLG, ("asr", "label_accuracy", "mse_of_successes")),
    "Inverting Gradients": ("inverting-gradients:sign=hard,decay=steps,tv=0", ("recognised", "label_accuracy", "mse")),
}

TABLE_3 = Table(
    "3",
    "attributes of tables",
    "ASR as in Table 2; MSE over the successes, attributes scaled to [0, 1]. Inverting Gradients has no threshold: the "
    "share of rows recognised (MSE of 0.001 or less) stands beside the paper's ASR, and its MSE is that of all rows.",
    "We do not know the network of the paper; ours has one hidden layer of 128 sigmoid units, all parameters "
    "U(-0.5, 0.5). Categories are one-hot columns here. CPL solves it in one to three steps and more exactly than the "
    "paper's; seven of the hundred rows of Adult are missed in the one attempt that CPL makes. Total variation means "
    "nothing between columns and is switched off for Inverting Gradients. The claim that all three succeed on Adult: "
    "supported. The claim that CPL leads on Breast Cancer and DLG recovers a third: contradicted, all three recover "
    "nearly every row there.",
    tuple(
        Cell(
            {"adult": "Adult", "breast-cancer": "Breast Cancer"}[data],
            name,
            attacked(data, _TABULAR[name][0], model="mlp:activation=sigmoid,init=uniform"),
            dict(zip(_TABULAR[name][1], figures, strict=True))
            | ({"iterations": None, "recognised": None} if name != "Inverting Gradients" else {"steps_mean": None}),
            quick=8 if data == "breast-cancer" and name == "CPL" else 0,
        )
        for data, by_attack in _ROWS.items()
        for name, figures in by_attack.items()
    ),
)

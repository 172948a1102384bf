"""Tables 7 and 8: what is left out of the message, and what is added to it."""

from __future__ import annotations

from leakgauge.lab.recipes.wei2020cpl._set_up import DATA, FEWER, SCORES, attacked, cpl, started, trained
from leakgauge.lab.reproduce.recipe import Cell, Table
from leakgauge.types import UNDEFENDED

_PERCENT = (0, 1, 10, 20, 30, 40, 50, 70, 80, 90)  # 0: the paper's "original"
_ACCURACY = {
    "lfw": (0.695, 0.697, 0.705, 0.701, 0.71, 0.709, 0.713, 0.711, 0.683, 0.676),
    "cifar100": (0.67, 0.673, 0.679, 0.685, 0.687, 0.695, 0.689, 0.694, 0.676, 0.668),
    "cifar10": (0.863, 0.864, 0.867, 0.872, 0.868, 0.865, 0.868, 0.861, 0.864, 0.859),
    "mnist": (0.9568, 0.9567, 0.9577, 0.957, 0.9571, 0.9575, 0.9572, 0.9576, 0.9573, 0.9556),
}


def _pruning(percent: int) -> str:
    return f"prune:share={percent / 100:g},scope=global"


TABLE_7A = Table(
    "7a",
    "accuracy under gradient compression",
    "test accuracy of a federation of 100 clients, ten in a round, after as many rounds as n says.",
    "Rounds, rates and local steps are ours (two passes at 0.05 in mini-batches of 32); the paper names none, and "
    "accumulates what was left out, which one-shot pruning does not. Its LeNet reaches 0.957 on MNIST; ours has tanh, "
    "because sigmoids hardly train by plain descent. The claim that compression up to 90 % costs about 1 %: cannot "
    "tell, "
    "as nothing was trained long enough yet; each cell takes 100 rounds, minutes of a GPU.",
    tuple(
        Cell(
            f"{percent} %",
            DATA[data],
            trained(data, _pruning(percent) if percent else UNDEFENDED),
            {"accuracy": accuracy} | ({"accuracy_lost": None} if percent else {}),
            quick=1 if data == "lfw" and percent == 90 else 0,
        )
        for data, figures in _ACCURACY.items()
        for percent, accuracy in zip(_PERCENT, figures, strict=True)
    ),
)

_PRUNED = {  # data -> iterations, ASR, SSIM, MSE at each percentage
    "lfw": (
        (25, 25, 24.9, 24.9, 25, 24.8, 25, 24.6, 24.5, 300),
        (1, 1, 1, 1, 1, 1, 1, 1, 1, 0),
        (0.998, 0.9996, 0.9997, 0.9978, 0.9978, 0.9975, 0.998, 0.9981, 0.951, 0.004),
        (2.2e-4, 1.8e-4, 1.7e-4, 4.9e-4, 4.8e-4, 5.1e-4, 4.5e-4, 4.6e-4, 1.6e-3, 1.6e-1),
    ),
    "cifar100": (
        (61.8, 61.8, 61.8, 61.7, 61.7, 61.8, 61.8, 60.1, 59.8, 300),
        (1, 1, 1, 1, 1, 1, 1, 1, 1, 0),
        (0.959, 0.9994, 0.9981, 0.9981, 0.998, 0.9983, 0.9982, 0.9983, 0.895, 0.016),
        (5.4e-4, 3.3e-4, 3.7e-4, 3.7e-4, 3.8e-4, 3.5e-4, 3.6e-4, 3.7e-4, 1.5e-3, 1.2e-1),
    ),
    "cifar10": (
        (28.3, 28.3, 28.1, 26.5, 25.8, 25.3, 300, 300, 300, 300),
        (1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
        (0.9985, 0.9996, 0.9996, 0.9997, 0.9992, 0.87, 0.523, 0.0017, 0.0019, 0.0018),
        (2.2e-4, 1.3e-4, 1.2e-4, 1.2e-4, 2.1e-4, 3.1e-3, 9.6e-3, 3.3e-1, 3.3e-1, 3.3e-1),
    ),
    "mnist": (
        (11.5, 11.5, 11.2, 10.7, 7.2, 300, 300, 300, 300, 300),
        (1, 1, 1, 1, 1, 0, 0, 0, 0, 0),
        (0.99, 0.9899, 0.9891, 0.9563, 0.9289, 0.8889, 0.8137, 0.425, 0.433, 0.43),
        (2.4e-4, 2.4e-4, 2.2e-4, 1.7e-3, 8.8e-3, 2.8e-2, 5.8e-2, 2.7e-1, 2.7e-1, 2.7e-1),
    ),
}
_INFORMED = {  # around the paper's last success, and the extremes
    "mnist": (10, 20, 30, 40, 50, 60, 70, 80, 90),
    "cifar10": (10, 20, 30, 40, 50, 90),
    "cifar100": (50, 80, 90),
    "lfw": (50, 80, 90),
}


def _printed(data: str, percent: int) -> dict[str, float | None]:
    figures = (
        (row[_PERCENT.index(percent)] for row in _PRUNED[data]) if percent in _PERCENT else (None, None, None, None)
    )
    return dict(zip(SCORES, figures, strict=True)) | {"ssim_of_successes": None, "recognised": None}


TABLE_7B = Table(
    "7b",
    "gradient compression: the smallest entries are not sent",
    "ASR as in Table 2, judged in gradient space; recognised is the share of victims with an SSIM of 0.6 or more. The "
    "paper's ASR is 0 or 1, so that its other figures are those of all victims: they stand beside our mean steps, SSIM "
    "and MSE of all.",
    "The experiment is one-shot pruning over the whole update, without the accumulation that the text describes; "
    "so is ours (`prune:scope=global`). The last rows are what the text describes: deep gradient compression, "
    "whose third message is attacked. The text claims success at 90 % on CIFAR-100 and LFW, its table shows 0; its "
    "MSE of "
    "MNIST without compression is 2.4e-4 here and 1.5e-5 in Tables 2 and 9, and its ASR of CIFAR-10 and CIFAR-100 is 1 "
    "here and 0.973 and 0.981 there. An "
    "attacker who sees the zeros compares only the entries that survived, with a little smoothness for the holes: "
    "the adaptive columns, which have no counterpart in the paper. There the objective contains the smoothness "
    "and the ASR would mean nothing. ASR ends earlier here than in the paper; at the true picture the distance is "
    "already the sum of squares of what was cut off, which may be all of the reason (not measured). The "
    "pictures are recognised longer than that on all sets but CIFAR-10 at 40 %, where the paper succeeds always and "
    "we recognise 42 %; the reason was not found. The informed attacker at 90 % recognises 94 to 100 % of the victims, "
    "the plain one none. Against accumulated messages neither works, see the defense's description. The claim "
    "that more classes leak under more compression: supported for the plain attacker, as CIFAR-100 holds out to 80 % "
    "and CIFAR-10 to 40 %; contradicted for the informed one, who recognises nearly all everywhere.",
    tuple(
        Cell(
            f"{percent} %",
            f"{DATA[data]}, plain",
            attacked(data, cpl(), trials=FEWER, defenses=(_pruning(percent),)) if percent else started(data),
            _printed(data, percent),
            quick=2 if data == "mnist" and percent == 40 else 0,
        )
        for data in _PRUNED
        for percent in sorted({*_PERCENT, *_INFORMED[data]})
    )
    + tuple(
        Cell(
            f"{percent} %",
            f"{DATA[data]}, adaptive",
            attacked(data, cpl(), trials=FEWER, defenses=(_pruning(percent),)),
            {"recognised": None, "ssim": None},
            variant="adaptive",
        )
        for data in _PRUNED
        for percent in _INFORMED[data]
    )
    + tuple(
        Cell(
            f"DGC {percent} %, round 3",
            f"{DATA[data]}, {variant}",
            attacked(data, cpl(), trials=FEWER, defenses=(f"dgc:share={percent / 100:g},rounds=3",)),
            {"recognised": None, "ssim": None},
            variant=variant,
        )
        for data in _PRUNED
        for variant in ("plain", "adaptive")
        for percent in ((50, 90) if data == "mnist" else (90,))
    ),
)

_NOISE: dict[str, dict[str, tuple[float, ...]]] = {  # data -> noise -> accuracy, iterations, ASR, SSIM, MSE
    "cifar100": {
        UNDEFENDED: (0.67, 61.8, 1, 0.9995, 5.4e-4),
        "gaussian:std=1e-4": (0.664, 61.8, 1, 0.9976, 6.9e-4),
        "gaussian:std=1e-3": (0.647, 61.8, 1, 0.8612, 4.1e-3),
        "gaussian:std=1e-2": (0.612, 300, 0, 0.019, 3.0e-1),
        "laplace:scale=1e-4": (0.651, 61.8, 1, 0.9956, 6.4e-4),
        "laplace:scale=1e-3": (0.609, 61.8, 1, 0.7309, 6.4e-3),
        "laplace:scale=1e-2": (0.578, 300, 0, 0.017, 3.1e-1),
    },
    "lfw": {
        UNDEFENDED: (0.695, 25, 1, 0.998, 2.2e-4),
        "gaussian:std=1e-4": (0.692, 25, 1, 0.9976, 3.7e-4),
        "gaussian:std=1e-3": (0.653, 25, 1, 0.8645, 3.0e-3),
        "gaussian:std=1e-2": (0.636, 300, 0, 0.013, 1.9e-1),
        "laplace:scale=1e-4": (0.683, 25, 1, 0.9965, 4.0e-4),
        "laplace:scale=1e-3": (0.632, 25, 1, 0.803, 3.9e-3),
        "laplace:scale=1e-2": (0.597, 300, 0, 0.009, 2.0e-1),
    },
}

TABLE_8 = Table(
    "8",
    "additive noise",
    "the paper's iterations, SSIM and MSE beside those of all victims; its ASR beside the share of victims recognised "
    "(SSIM of 0.6 or more); its benign accuracy beside that of a federation as in Table 7a.",
    "The paper labels its noise 10e-4, 10e-3 and 10e-2; its notebook reads that as 1e-4, 1e-3 and 1e-2, and so do "
    "we. With noise of standard deviation s on P entries the gradient distance at the true image is already P "
    "s^2: 9e-4 for 1e-4 on the 89 thousand entries of CIFAR-100. It cannot fall below the threshold of 1e-4, so "
    "success is judged by the picture here. Laplace(b) has the variance 2 b^2. The paper's SSIM of CIFAR-100 without "
    "noise is "
    "0.9995 here and 0.959 in Tables 2 and 7. The adaptive attacker knows the "
    "scale: at 1e-2, where the plain attack recognises nobody, it recognises nearly all. Against weak Laplace noise "
    "it does worse than the plain one (SSIM 0.70 against 0.99 at 1e-4): it matches in the L1 distance, the likelihood "
    "of this noise, whose kinks may be what L-BFGS takes badly (not examined). An attacker would try both, and the "
    "verdict of an audit takes the worse. The claim that noise of 1e-2 stops the attack: supported for the plain "
    "attacker, contradicted for one who knows the noise. What it costs in accuracy: cannot tell, as the accuracy "
    "columns were not trained yet.",
    tuple(
        Cell(
            noise,
            f"{DATA[data]}, {variant}",
            started(data) if noise == UNDEFENDED else attacked(data, cpl(), trials=FEWER, defenses=(noise,)),
            dict(zip(("steps_mean", "recognised", "ssim", "mse"), figures[1:], strict=True))
            if variant == "plain"
            else {"recognised": None, "ssim": None},
            variant=variant,
            quick=1 if data == "lfw" and noise == "gaussian:std=1e-2" else 0,
        )
        for data, by_noise in _NOISE.items()
        for variant in ("plain", "adaptive")
        for noise, figures in by_noise.items()
        if variant == "plain" or noise != UNDEFENDED
    )
    + tuple(
        Cell(
            noise,
            f"{DATA[data]}, accuracy",
            trained(data, noise),
            {"accuracy": figures[0]} | ({} if noise == UNDEFENDED else {"accuracy_lost": None}),
        )
        for data, by_noise in _NOISE.items()
        for noise, figures in by_noise.items()
    ),
)

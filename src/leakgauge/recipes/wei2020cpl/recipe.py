"""Wei et al., "A Framework for Evaluating Client Privacy Leakages in Federated Learning", ESORICS 2020: nine tables.

The paper's tables 2, 4, 7, 8 and 9 are known by number; 1, 3, 5 and 6 are our assignment of the other results. All
networks are untrained, as in the released code.
"""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Recipe, Table
from leakgauge.recipes.wei2020cpl._conditions import TABLE_6, TABLE_7, TABLE_8, TABLE_9
from leakgauge.recipes.wei2020cpl._set_up import DATA, DLG, INVERTING, attacked, cpl, started

# Iterations: average, fewest, most, "var"; of the random start only the average is known.
_PATTERNED = {
    "mnist": (11.5, 7, 19, 3.8), "lfw": (25, 18, 125, 14.3), "cifar10": (28.3, 17, 86, 18.1),
    "cifar100": (61.8, 24, 133, 25.3),
}  # fmt: skip
_RANDOM = {"mnist": 18.4, "lfw": 69.2, "cifar10": 114.5, "cifar100": 125.0}

TABLE_1 = Table(
    "1",
    "iterations to success, patterned and random start",
    "iterations of the successes only: L-BFGS steps of up to 20 iterations until the gradient distance is below 1e-4.",
    "The paper's fourth figure is called a variance, but its size beside the extremes suggests a standard "
    "deviation, so both are measured. Its average for the random start is the one it gives for DLG in Table 2, "
    "while Table 4 gives 91.14 on CIFAR-10. Ours starts `cpl` at N(0, 1): the label is read off the last layer, "
    "only the image is optimised. Our steps shorten when the objective does not fall, which costs evaluations "
    "(counted) and prevents divergence. The claim that a repeated tile needs less than half the steps of noise "
    "holds on CIFAR-10 (medians 44 and 98 over 300 victims) and all but holds on LFW (42 and 83). Our tiled starts "
    "need more steps than the paper's on CIFAR-10 and LFW and fewer on CIFAR-100, with full steps too (Table 2), so "
    "shortening is hardly the reason. We have not found it; images, network seed (see Table 4) and the number of "
    "people differ. The released notebook's own "
    "trace on one LFW picture takes 35 steps, between both. A victim with 0 steps has a gradient so small that the "
    "start already lies below the threshold: a success by this criterion, without a picture.",
    tuple(
        Cell(
            start, DATA[data], started(data, init),
            dict(zip(("iterations", "iterations_min", "iterations_max", "iterations_var"), figures, strict=True))
            | {"iterations_std": None, "steps_median": None},
            quick=2 if data == "mnist" else 0,
        )
        for start, init, known in (
            ("patterned 2x2", "patterned-2", _PATTERNED),
            ("random", "random", {data: (mean, None, None, None) for data, mean in _RANDOM.items()}),
        )
        for data, figures in known.items()
    ),
)  # fmt: skip

# Iterations, ASR, and for CPL SSIM and MSE.
_CPL = {
    "cifar10": (28.3, 0.973, 0.9985, 2.2e-4), "cifar100": (61.8, 0.981, 0.959, 5.4e-4), "lfw": (25, 1, 0.998, 2.2e-4),
    "mnist": (11.5, 1, 0.99, 1.5e-5),
}  # fmt: skip
_DLG = {"cifar10": (114.5, 0.754), "cifar100": (125, 0.85), "lfw": (69.2, 0.857), "mnist": (18.4, 0.686)}
_IG = {"cifar10": (6725, 0.958), "cifar100": (6813, 0.978), "lfw": (4527, 0.974), "mnist": (3265, 0.784)}

TABLE_2 = Table(
    "2",
    "CPL, DLG and Inverting Gradients compared",
    "success (ASR) is convergence: gradient distance below 1e-4 within 300 steps. Iterations, SSIM and MSE are "
    "means over the successes. Inverting Gradients has no such threshold: its 4800 steps are spent on every "
    "victim, and the share of victims recognised (SSIM of 0.6 or more) stands beside the paper's ASR.",
    "At a gradient distance of 1e-4 pictures have 20 to 35 dB, so SSIM and MSE say more about the threshold than "
    "about the attack. The released notebooks log the L2 norm under the name MSE and call SSIM with a data range "
    "of 0; ours are the mean of squares and SSIM with data range 1. Our attacks shorten steps that do not go "
    "down; a shortened step costs an evaluation and counts in the iterations. Full steps are the published rule, "
    "which diverges for some seeds: those are failures here. One attempt each, as published. DLG as published then "
    "succeeds for 52 to 70 % of the victims, in the paper for 69 to 86 %; with shortened steps for 98 % and more, so "
    "most of its failures are the optimiser's. Inverting Gradients is run as published; why it recognises "
    "so few victims on CIFAR-10 and LFW and all on CIFAR-100 we have not examined (4800 steps, raw pixels).",
    tuple(
        Cell(
            row, DATA[data], started(data) if attack == cpl() else attacked(data, attack),
            dict(zip(("iterations", "asr", "ssim_of_successes", "mse_of_successes"), figures, strict=True)),
            quick=2 if data == "mnist" and row in ("CPL", "DLG") else 0,
        )
        for row, attack in (("CPL", cpl()), ("CPL, full steps", f"{cpl()},line_search=fixed"))
        for data, figures in _CPL.items()
    )
    + tuple(
        Cell(
            row, DATA[data], attacked(data, attack),
            {"iterations": iterations, "asr": asr, "ssim_of_successes": None, "label_accuracy": None},
            quick=2 if data == "mnist" and row in ("CPL", "DLG") else 0,
        )
        for row, attack in (("DLG", DLG), ("DLG, full steps", f"{DLG},line_search=fixed"))
        for data, (iterations, asr) in _DLG.items()
    )
    + tuple(
        Cell(
            "Inverting Gradients", DATA[data], attacked(data, INVERTING),
            {"steps_mean": iterations, "recognised": asr, "ssim": None},
        )
        for data, (iterations, asr) in _IG.items()
    ),
)  # fmt: skip

TABLE_3 = Table(
    "3",
    "attributes of tables",
    "ASR as in Table 2; MSE over the successes, attributes scaled to [0, 1].",
    "We do not know the network of the paper; ours has one hidden layer of 128 sigmoid units, all parameters "
    "U(-0.5, 0.5). Categories are one-hot columns here. It is solved in one to three steps and more exactly than the "
    "paper's; seven of the hundred rows of Adult are missed in the one attempt that CPL makes.",
    tuple(
        Cell(
            name, "CPL", attacked(data, cpl(), model="mlp:activation=sigmoid,init=uniform"),
            {"asr": 1.0, "mse_of_successes": mse, "iterations": None, "recognised": None},
            quick=8 if data == "breast-cancer" else 0,
        )
        for name, data, mse in (("Adult", "adult", 1.82e-4), ("Breast Cancer", "breast-cancer", 4.61e-4))
    ),
)  # fmt: skip

_STARTS = {
    "random": "random", "patterned 2x2": "patterned-2", "patterned 4x4": "patterned-4", "dark": "dark",
    "light": "light", "red": "red", "green": "green", "blue": "blue", "optimal": "optimal",
}  # fmt: skip
_BY_START = {
    "cifar10": (
        (91.14, 0.871), (28.3, 0.973), (24.8, 0.976), (34, 0.99), (52.3, 1), (35.9, 0.99), (77.5, 0.96), (79.1, 0.96),
        (23.2, 1),
    ),
    "cifar100": (
        (125, 1), (61.8, 0.981), (57.2, 0.995), (57.5, 1), (65.3, 1), (59.4, 1), (61.3, 0.88), (62.4, 1), (35.3, 1),
    ),
    "lfw": ((71.1, 0.86), (25, 1), (18.6, 0.997), (34, 1), (50.8, 1), (20.3, 1), (28, 1), (42.1, 1), (13.3, 1)),
}  # fmt: skip

TABLE_4 = Table(
    "4",
    "where the attack starts",
    "iterations of the successes, and ASR, as in Table 2.",
    "The paper disagrees with itself about the random start: 91.14 iterations and ASR 0.871 on CIFAR-10 here, "
    "114.5 and 0.754 in Tables 1, 2 and 5. The optimal start is another real image of the same kind of data; ours "
    "comes from the public half, never from the victims. All rows are one network "
    "and one set of victims (seed 0), which matters: the tile needs 60, 41 and 38 steps on CIFAR-10 at the three seeds "
    "of Table 1. Our spread between starts is smaller than the paper's: a real image is no faster than a tile on "
    "CIFAR-10 and CIFAR-100 and somewhat faster on LFW; only noise is clearly slowest on all three.",
    tuple(
        Cell(
            start, DATA[data], attacked(data, cpl(init)), {"iterations": iterations, "asr": asr},
            quick=1 if data == "lfw" and start == "patterned 2x2" else 0,
        )
        for data, figures in _BY_START.items()
        for (start, init), (iterations, asr) in zip(_STARTS.items(), figures, strict=True)
    ),
)  # fmt: skip

_WITHIN = {  # data -> T_max -> ASR patterned, random
    "lfw": {30: (0.98, 0.0), 50: (1, 0.562), 100: (None, None), 300: (1, 0.857)},
    "cifar10": {30: (0.93, 0.0), 50: (None, None), 100: (0.973, 0.356), 300: (0.973, 0.754)},
    "cifar100": {30: (None, None), 50: (0.85, 0.0), 100: (0.981, 0.23), 300: (0.981, 0.85)},
}

TABLE_5 = Table(
    "5",
    "steps the attacker may spend (T_max)",
    "ASR within T_max steps, read off the same run of 300 steps at each T_max.",
    "We know some of the paper's figures only. Ours lag at 30 steps, because our tiled starts need 40 to 47 steps on "
    "average where the paper's need 25 to 28 (Table 1), and lead at 300, because steps that shorten do not diverge.",
    tuple(
        Cell(
            f"T_max = {most}", f"{DATA[data]}, {start}", started(data, init),
            {f"asr_within({most})": figures[number]},
            quick=1 if data == "lfw" and start == "patterned" else 0,
        )
        for data, by_steps in _WITHIN.items()
        for number, (start, init) in enumerate((("patterned", "patterned-2"), ("random", "random")))
        for most, figures in by_steps.items()
    ),
)  # fmt: skip

RECIPE = Recipe(
    name="wei2020cpl",
    summary="What helps and what hinders a client privacy leakage attack: starts, batches, noise, pruning, local steps",
    paper="Wei et al. 2020, A Framework for Evaluating Client Privacy Leakages in Federated Learning, ESORICS",
    note="Tables 2, 4, 7, 8 and 9 carry the paper's numbers; 1, 3, 5 and 6 are numbered by us. All networks are "
    "freshly initialised, as in the released code. The paper attacks 100 images with 10 seeds each. Our LFW "
    "holds 50 people (1,000 pictures, a quarter of them victims), the paper's 106.",
    tables=(TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8, TABLE_9),
)

"""Tables 1, 4 and 5: where the attack starts, how many steps it takes, and how many it is allowed."""

from __future__ import annotations

from leakgauge.lab.recipes.wei2020cpl._set_up import DATA, attacked, cpl, started
from leakgauge.lab.reproduce.recipe import Cell, Table

_STEPS = (10, 20, 30, 50, 100, 300)
_WITHIN = {  # data -> ASR within these steps, patterned and random
    "lfw": ((0, 0.34, 0.98, 1, 1, 1), (0, 0, 0, 0.562, 0.823, 0.857)),
    "cifar10": ((0, 0.47, 0.93, 0.973, 0.973, 0.973), (0, 0, 0, 0, 0.356, 0.754)),
    "cifar100": ((0, 0, 0.12, 0.85, 0.981, 0.981), (0, 0, 0, 0, 0.23, 0.85)),
}

TABLE_1 = Table(
    "1",
    "steps the attacker may spend (T_max)",
    "ASR within T_max steps, read off the same run of 300 steps at each T_max. A gradient distance below 1e-4 is a "
    "success, also at the start, before any step.",
    "Ours lag at 30 steps, because our tiled starts need 40 to 47 steps on "
    "average where the paper's need 18 to 28 (Table 5), and lead at 300, because steps that shorten do not diverge. "
    "The claim that a start from a tile reaches its success rate within fewer steps than noise: supported on all three "
    "data sets. The claim that 10 or 20 steps are too few for every start: supported, as no cell at 30 steps "
    "exceeds 3 %. The claim that noise stays behind at 300 steps: supported on CIFAR-10 (0.967 against 1.000), "
    "contradicted on LFW and CIFAR-100.",
    tuple(
        Cell(
            f"T_max = {most}",
            f"{DATA[data]}, {start}",
            started(data, init),
            {f"asr_within({most})": asr},
            quick=1 if data == "lfw" and start == "patterned" else 0,
        )
        for data, both in _WITHIN.items()
        for (start, init), figures in zip((("patterned", "patterned-2"), ("random", "random")), both, strict=True)
        for most, asr in zip(_STEPS, figures, strict=True)
    ),
)

_FIGURES = ("iterations", "iterations_min", "iterations_max", "iterations_var")
_PATTERNED = {
    "mnist": (11.5, 7, 19, 3.844),
    "lfw": (25, 18, 125, 14.32),
    "cifar10": (28.3, 17, 86, 18.11),
    "cifar100": (61.8, 24, 133, 25.3),
}
_RANDOM = {
    "mnist": (18.4, 13, 65, 12.27),
    "lfw": (69.2, 53, 186, 25.87),
    "cifar10": (114.5, 67, 272, 39.31),
    "cifar100": (125, 70, 240, 41.2),
}

TABLE_5 = Table(
    "5",
    "iterations to success and their variance, patterned and random start",
    "iterations of the successes only: L-BFGS steps of up to 20 iterations until the gradient distance is below 1e-4. "
    "Rows that end in 'relative stop' end at 1e-7 of the update's own squared norm instead, and a start that lies "
    "below it is no success.",
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
    "start already lies below the threshold: a success by the absolute criterion, without a picture. The relative stop "
    "calls it a failure. The claim that the tile's steps vary less than those of noise: supported on all four data "
    "sets where a standard deviation is meant.",
    tuple(
        Cell(
            start,
            DATA[data],
            started(data, init),
            dict(zip(_FIGURES, figures, strict=True)) | {"iterations_std": None, "steps_median": None},
            quick=2 if data == "mnist" else 0,
        )
        for start, init, known in (("patterned 2x2", "patterned-2", _PATTERNED), ("random", "random", _RANDOM))
        for data, figures in known.items()
    )
    + tuple(
        Cell(
            f"{start}, relative stop",
            DATA[data],
            attacked(data, attack),
            dict(zip(_FIGURES, figures, strict=True)) | dict.fromkeys(("asr", "iterations_std", "ssim_of_successes")),
        )
        for start, attack, known in (("patterned 2x2", "cpl", _PATTERNED), ("random", "cpl:init=random", _RANDOM))
        for data, figures in known.items()
    ),
)


_STARTS = {
    "random": "random",
    "patterned 2x2": "patterned-2",
    "patterned 4x4": "patterned-4",
    "dark": "dark",
    "light": "light",
    "red": "red",
    "green": "green",
    "blue": "blue",
    "optimal": "optimal",
}
_BY_START = {
    "cifar10": (
        (91.14, 0.871),
        (28.3, 0.973),
        (24.8, 0.976),
        (34, 0.99),
        (52.3, 1),
        (35.9, 0.99),
        (77.5, 0.96),
        (79.1, 0.96),
        (23.2, 1),
    ),
    "cifar100": (
        (125, 1),
        (61.8, 0.981),
        (57.2, 0.995),
        (57.5, 1),
        (65.3, 1),
        (59.4, 1),
        (61.3, 0.88),
        (62.4, 1),
        (35.3, 1),
    ),
    "lfw": ((71.1, 0.86), (25, 1), (18.6, 0.997), (34, 1), (50.8, 1), (20.3, 1), (28, 1), (42.1, 1), (13.3, 1)),
}

TABLE_4 = Table(
    "4",
    "where the attack starts",
    "iterations of the successes, and ASR, as in Table 2. 'Optimal' starts from any public picture, 'optimal, same "
    "class' from one of the class that the attacker reads off the last layer; both stand beside the paper's one row.",
    "The paper disagrees with itself about the random start: 91.14 iterations and ASR 0.871 on CIFAR-10 here, "
    "114.5 and 0.754 in Tables 1, 2 and 5. It describes the optimal start twice: a picture of the same class "
    "(section 3.1) and a random one of the training set (section 4.2). Ours "
    "come from the public half, never from the victims. All rows are one network "
    "and one set of victims (seed 0), which matters: the tile needs 60, 41 and 38 steps on CIFAR-10 at the three seeds "
    "of Table 5. Our spread between starts is smaller than the paper's: a real image of any class is no faster than a "
    "tile on CIFAR-10 and CIFAR-100 and somewhat faster on LFW; only noise is clearly slowest on all three. The claim "
    "that every geometric start beats noise: supported on all three data sets. The claim that the optimal start is "
    "fastest: supported on LFW; on CIFAR-10 and CIFAR-100 a picture of any "
    "class cannot be told from a tile. That it has to be of the same class: cannot tell, the few victims that were run "
    "show no difference from any class.",
    tuple(
        Cell(
            start,
            DATA[data],
            attacked(data, cpl(init)),
            {"iterations": iterations, "asr": asr},
            quick=1 if data == "lfw" and start == "patterned 2x2" else 0,
        )
        for data, figures in _BY_START.items()
        for (start, init), (iterations, asr) in zip(_STARTS.items(), figures, strict=True)
    )
    + tuple(
        Cell(
            "optimal, same class",
            DATA[data],
            attacked(data, cpl("same-class")),
            {"iterations": figures[-1][0], "asr": figures[-1][1]},
        )
        for data, figures in _BY_START.items()
    ),
)

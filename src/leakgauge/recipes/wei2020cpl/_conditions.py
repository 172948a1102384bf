"""Tables 6 to 9: what the client does about it, knowingly or not (batches, pruning, noise, local steps)."""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Table
from leakgauge.recipes.wei2020cpl._set_up import DATA, FEWER, INVERTING, attacked, cpl, started
from leakgauge.types import LocalTraining

_BATCHES = {  # size -> ASR, SSIM, victims per base seed, base seeds: each base seed draws from one in four LFW pictures
    1: (1.0, 0.998, 100, 1), 2: (0.96, 0.635, 50, 1), 4: (0.89, 0.525, 25, 2), 8: (0.76, 0.456, 12, 5),
    16: (0.13, 0.401, 10, 5),
}  # fmt: skip

TABLE_6 = Table(
    "6",
    "batch size, LFW",
    "ASR as in Table 2 (gradient distance of the whole batch below 1e-4); SSIM over all images, after the best "
    "matching.",
    "The released code averages the gradient over images of one person but optimises a single image, and calls an "
    "attack successful by that image's similarity: that is how an SSIM of 0.46 can go with an ASR of 0.76. Ours "
    "optimises every image of the batch and their labels together, for distinct people and for pictures of one "
    "person (four at most: few people have more among the victims). The gradient of a batch of distinct people is "
    "matched at least as often as in the paper (0.56 against 0.13 at sixteen, where the paper optimises one image), "
    "yet the pictures are not there: SSIM falls from 0.94 to 0.45 at two, 0.19 at four and 0.09 at sixteen. A small "
    "gradient distance is no evidence of a picture.",
    tuple(
        Cell(
            f"{size}", labels,
            attacked("lfw", cpl(), batch_size=size, trials=trials, seeds=seeds)
            if size == 1
            else attacked(
                "lfw", f"{cpl()},labels=optimise", batch_size=size, batch_labels=word, trials=trials, seeds=seeds
            ),
            {"asr": asr, "ssim": ssim, "recognised": None, "label_accuracy": None},
            quick=1 if size == 1 and word == "distinct" else 0,
        )
        for labels, word, sizes in (("distinct people", "distinct", (1, 2, 4, 8, 16)), ("one person", "same", (2, 4)))
        for size, (asr, ssim, trials, seeds) in _BATCHES.items()
        if size in sizes
    ),
)  # fmt: skip

_SHARES = {  # per cent; around the paper's last success, and the extremes
    "mnist": (10, 20, 30, 40, 50, 60, 70, 80, 90), "cifar10": (10, 20, 30, 40, 50, 90),
    "cifar100": (50, 80, 90), "lfw": (50, 80, 90),
}  # fmt: skip
_LAST = {"mnist": (30, 0.9289), "cifar10": (40, 0.87), "cifar100": (80, 0.895), "lfw": (80, 0.951)}  # success, SSIM


def _pruned_report(data: str, share: int) -> dict[str, float | None]:
    """ASR is 1 up to the last success and 0 at the next; of what follows we only know that it fails."""
    last, ssim = _LAST[data]
    asr = 1.0 if share <= last else 0.0 if share == last + 10 else None
    return {"asr": asr, "ssim_of_successes": ssim if share == last else None, "recognised": None, "ssim": None}


TABLE_7 = Table(
    "7",
    "gradient compression: the smallest entries are not sent",
    "ASR as in Table 2, judged in gradient space; recognised is the share of victims with an SSIM of 0.6 or more.",
    "The experiment is one-shot pruning over the whole update, without the accumulation that the text describes; "
    "so is ours (`prune:scope=global`). The last rows are what the text describes: deep gradient compression, "
    "whose third message is attacked. The text claims success at 90 % on CIFAR-100 and LFW, its table shows 0. An "
    "attacker who sees the zeros compares only the entries that survived, with a little smoothness for the holes: "
    "the adaptive columns, which have no counterpart in the paper. There the objective contains the smoothness "
    "and the ASR would mean nothing. ASR ends earlier here than in the paper; at the true picture the distance is "
    "already the sum of squares of what was cut off, which may be all of the reason (not measured). The "
    "pictures are recognised longer than that on all sets but CIFAR-10 at 40 %, where the paper succeeds always and "
    "we recognise 42 %; the reason was not found. The informed attacker at 90 % recognises 94 to 100 % of the victims, "
    "the plain one none. Against accumulated messages neither works, see the defence's description. The accuracy "
    "columns need training with the "
    "defence, which this version does not do.",
    tuple(
        Cell(
            f"{share} %", f"{DATA[data]}, {variant}",
            attacked(data, cpl(), trials=FEWER, defenses=(f"prune:share={share / 100:g},scope=global",)),
            _pruned_report(data, share) if variant == "plain" else {"recognised": None, "ssim": None},
            variant=variant, quick=2 if data == "mnist" and share == 40 else 0,
        )
        for data in _LAST
        for variant in ("plain", "adaptive")
        for share in _SHARES[data]
    )
    + tuple(
        Cell(
            f"DGC {share} %, round 3", f"{DATA[data]}, {variant}",
            attacked(data, cpl(), trials=FEWER, defenses=(f"dgc:share={share / 100:g},rounds=3",)),
            {"recognised": None, "ssim": None}, variant=variant,
        )
        for data in _LAST
        for variant in ("plain", "adaptive")
        for share in ((50, 90) if data == "mnist" else (90,))
    ),
)  # fmt: skip

_NOISE = {  # ASR (Gaussian, CIFAR-100 only), then SSIM on CIFAR-100 and LFW
    "gaussian:std=1e-4": (1.0, 0.9976, 0.9976), "gaussian:std=1e-3": (1.0, 0.8612, 0.8645),
    "gaussian:std=1e-2": (0.0, 0.019, 0.013), "laplace:scale=1e-4": (None, 0.9956, 0.9965),
    "laplace:scale=1e-3": (None, 0.7309, 0.803), "laplace:scale=1e-2": (None, 0.017, 0.009),
}  # fmt: skip

TABLE_8 = Table(
    "8",
    "additive noise",
    "the paper's SSIM beside the SSIM over all victims; its ASR beside the share of victims recognised (SSIM of "
    "0.6 or more).",
    "The paper labels its noise 10e-4, 10e-3 and 10e-2; its notebook reads that as 1e-4, 1e-3 and 1e-2, and so do "
    "we. With noise of standard deviation s on P entries the gradient distance at the true image is already P "
    "s^2: 9e-4 for 1e-4 on the 89 thousand entries of CIFAR-100. It cannot fall below the threshold of 1e-4, so "
    "success is judged by the picture here. Laplace(b) has the variance 2 b^2. The adaptive attacker knows the "
    "scale: at 1e-2, where the plain attack recognises nobody, it recognises nearly all. Against weak Laplace noise "
    "it does worse than the plain one (SSIM 0.70 against 0.99 at 1e-4): it matches in the L1 distance, the likelihood "
    "of this noise, whose kinks may be what L-BFGS takes badly (not examined). An attacker would try both, and the "
    "verdict of an audit takes the worse. The "
    "accuracy columns need training with the defence, which this version does not do.",
    tuple(
        Cell(
            "none", f"{DATA[data]}, plain", started(data), {"recognised": asr, "ssim": ssim},
        )
        for data, asr, ssim in (("cifar100", 1.0, 0.9995), ("lfw", None, 0.998))
    )
    + tuple(
        Cell(
            noise, f"{DATA[data]}, {variant}", attacked(data, cpl(), trials=FEWER, defenses=(noise,)),
            {
                "recognised": figures[0] if variant == "plain" and place == 1 else None,
                "ssim": figures[place] if variant == "plain" else None,
            },
            variant=variant, quick=1 if data == "lfw" and noise == "gaussian:std=1e-2" else 0,
        )
        for place, data in enumerate(("cifar100", "lfw"), start=1)
        for variant in ("plain", "adaptive")
        for noise, figures in _NOISE.items()
    ),
)  # fmt: skip

_LOCAL = {  # ASR at 1, 2, ... 10 local iterations
    "cifar10": (0.973, 0.971, 0.921, 0.875, 0.835, 0.758, 0.612, 0.5, 0.406, 0.292),
    "cifar100": (0.981, 0.977, 0.958, 0.949, 0.933, 0.893, 0.842, 0.78, 0.557, 0.437),
    "lfw": (1, 1, 1, 1, 0.97, 0.91, 0.85, 0.78, 0.39, 0.07),
    "mnist": (1, 0.82, 0.57, 0.44, 0.25, 0.06, 0, 0, 0, None),
}


_RATES = {  # local learning rate -> data -> numbers of steps
    0.001: {"mnist": range(1, 11), **dict.fromkeys(("cifar10", "cifar100", "lfw"), (1, 2, 3, 5, 7, 10))},
    0.01: {"mnist": (1, 2, 5), "cifar10": range(1, 8)},
}  # fmt: skip


def _local(steps: int, rate: float) -> LocalTraining:
    return LocalTraining(kind="fedavg", epochs=steps, lr=rate)


TABLE_9 = Table(
    "9",
    "local iterations before the client shares",
    "ASR as in Table 2. The attacker divides the weight difference by the number of steps times the rate and "
    "matches it as one gradient; recognised and SSIM over all victims.",
    "The client takes real SGD steps on its sample. We do not know the paper's rate, and it decides: the larger it "
    "is, the farther the weights move and the less the average gradient is one gradient. We began with 0.01 and "
    "added 0.001 after seeing that two steps at 0.01 already end the attack. The only "
    "released code for this table takes one gradient at a model after so many Adam batches: it varies the state "
    "of training, not the accumulation. The 0.07 of LFW at ten steps is uncertain. With two steps or more the "
    "average gradient is no single gradient, so the distance stays above the threshold and ASR is 0 almost "
    "everywhere; the share of victims recognised falls with the number of steps as the paper's ASR does, faster at "
    "the higher rate. The unrolled columns are the "
    "strong adversary: Inverting Gradients simulates the client's steps and matches the difference itself.",
    tuple(
        Cell(
            f"M = {steps}", f"{DATA[data]}, rate {rate:g}",
            attacked(data, cpl(), trials=FEWER, local=_local(steps, rate)),
            {"asr": _LOCAL[data][steps - 1], "recognised": None, "ssim": None},
            quick=2 if data == "mnist" and steps == 1 and rate == 0.01 else 0,
        )
        for rate, by_data in _RATES.items()
        for data, numbers in by_data.items()
        for steps in numbers
    )
    + tuple(
        Cell(
            f"M = {steps}", f"{DATA[data]}, rate 0.01, unrolled",
            attacked(data, INVERTING, trials=FEWER, local=_local(steps, 0.01)), {"recognised": None, "ssim": None},
        )
        for data in ("cifar10", "mnist")
        for steps in (1, 5)
    ),
)  # fmt: skip

"""What the policies keep from the attackers: claims 1 to 5 of the study, and its picture by picture."""

from __future__ import annotations

from leakgauge.recipes._recipe import Cell, Run, Table
from leakgauge.recipes.drabent2022ats._set_up import (
    ADAM,
    AFTERWARDS,
    BETTER,
    CONVNET,
    HYBRID,
    KNOWN,
    LBFGS,
    LENET,
    NAMES,
    NARROW,
    NARROW_ROUNDS,
    NARROW_VICTIMS,
    OF_CONVNET,
    OF_RESNET,
    PLAIN,
    QUICK,
    QUICK_LBFGS,
    RANDOM,
    RESNET,
    SHORTER,
    THROUGH,
    attacked,
    bare_figures,
    plain_figures,
    told,
    training,
    with_training,
)
from leakgauge.types import Scenario

CONVENTION = (
    "mean over pictures of the PSNR in [0, 1] after clamping; the studies do not clamp. They score against the "
    "transformed picture, which the client trained on. So do we in the line that says so; all other lines are against "
    "the client's own picture. *Undoing what was drawn* is a score and no attacker: it uses the signs that only the "
    "client knows."
)
_REPORTED = {  # network -> policy -> PSNR of the replication
    RESNET: {"": 12.15, RANDOM: 9.92, "3-1-7": 6.77, "43-18-18": 9.34, "3-1-7/43-18-18": 8.25},
    CONVNET: {"": 11.44, "21-13-3": 8.23, "7-4-15": 10.31, "21-13-3/7-4-15": 9.89},
}


def named(policy: str, attacker: str) -> str:
    if not policy:
        return "no policy"
    kind = "random " if policy == RANDOM else "hybrid " if "/" in policy else ""
    return f"{kind}{policy}, {attacker}"


def _on_lenet(column: str, attack: str, quick: str) -> list[Cell]:
    cells = []
    for policy in ("", RANDOM, *OF_RESNET, *OF_CONVNET):
        for attacker in (PLAIN, THROUGH, AFTERWARDS) if policy else (PLAIN,):
            fast = policy in ("", HYBRID) and attacker != THROUGH
            figures = dict(KNOWN) if attacker != PLAIN else plain_figures() if policy else bare_figures()
            cells.append(
                Cell(
                    named(policy, attacker), column, attacked(policy, attack, attacker), figures,
                    quick=2 if fast else 0, quick_attack=told(quick, policy, attacker),
                )
            )  # fmt: skip
    return cells


def _on_trained(model: str) -> list[Cell]:
    cells = []
    for policy, psnr in _REPORTED[model].items():
        run, column = with_training(policy, SHORTER, model=model), f"{NAMES[model]}, trained, Adam"
        figures = plain_figures(psnr) if policy else bare_figures(psnr)
        cells.append(Cell(named(policy, PLAIN), column, run, figures))
        if policy:
            cells.append(Cell(named(policy, BETTER), column, run, dict(KNOWN), "adaptive"))
    return cells


def _on_narrow() -> list[Cell]:
    """A trained network for machines without a GPU; nobody searches through the policy, which takes 16 attempts."""
    cells = []
    for policy in ("", OF_CONVNET[-1]):
        for attacker in (PLAIN, AFTERWARDS) if policy else (PLAIN,):
            run = attacked(
                policy, SHORTER, attacker, model=NARROW, trials=NARROW_VICTIMS,
                training=training(policy, NARROW_ROUNDS),
            )  # fmt: skip
            figures = dict(KNOWN) if attacker != PLAIN else plain_figures() if policy else bare_figures()
            cells.append(Cell(named(policy, attacker), f"{NAMES[NARROW]}, trained, Adam", run, figures))
    return cells


TABLE_POLICIES = Table(
    "policies",
    "what searched policies, a random one and hybrids keep from an attacker, CIFAR-100",
    CONVENTION,
    "Claims 1 to 3, as far as their numbers are known to us: searched policies lower the PSNR, more than a random one, "
    "and hybrids do. The published attack is signed Adam on the cosine with total variation 1e-4, 4,800 steps; ours "
    "has 2,400 on LeNet and 1,200 on the trained networks, with TF32 products. The column of L-BFGS is the strongest "
    "attack on LeNet that we have. Networks were trained with the policy for 3 epochs, in the studies for 60 and 200; "
    "without a policy pictures were cropped and mirrored, as in all of the published trainings; ConvNet of width 8, an "
    "eighth of the published one, had 400 rounds of 128 pictures and serves who has no GPU. On it the attack stays "
    "below the mean of public pictures (12.5 dB on these victims), with the policy and without: what was not recovered "
    "to begin with shows no protection. The replication's figures for trained networks lie as low. Attacked pictures "
    "are not cropped. The replication attacks 6 pictures, the first study 100. On LeNet each of the two informed "
    "attackers has a row of its own; on the trained networks the row has the one that recovers more on average.",
    (
        *_on_lenet("LeNet, untrained, L-BFGS", LBFGS, QUICK_LBFGS),
        *_on_lenet("LeNet, untrained, Adam", ADAM, QUICK),
        *_on_narrow(),
        *_on_trained(CONVNET),
        *_on_trained(RESNET),
    ),
    heavy="the trained networks take a GPU, but for the narrow one, which has 20 victims.",
)  # fmt: skip

_SETTINGS = {  # row -> attack on LeNet, the same for the larger network, the replication's PSNR without and with
    "L-BFGS, L2": (LBFGS, "cpl:steps=50", 8.61, 6.33),
    "Adam, cosine": (ADAM, SHORTER, 12.15, 8.25),
    "L-BFGS, cosine": (f"{LBFGS},distance=cosine,threshold=1e-6", "cpl:steps=50,distance=cosine,threshold=1e-6", 9.62,
                       7.47),
    "Adam, L1": (f"{ADAM},distance=l1", f"{SHORTER},distance=l1", 9.48, 6.43),
    "Adam, L2": (f"{ADAM},distance=l2", f"{SHORTER},distance=l2", 9.28, 6.46),
    "SGD, cosine": (f"{ADAM},optimizer=sgd,lr=0.01", f"{SHORTER},optimizer=sgd,lr=0.01", 12.60, 8.03),
}  # fmt: skip


def _by_setting() -> tuple[Cell, ...]:
    cells = []
    for row, (small, large, without, with_it) in _SETTINGS.items():
        fast = small.replace("steps=2400", "steps=60").replace("steps=75", "steps=6")
        cells.append(
            Cell(row, "LeNet, no policy", attacked("", small), bare_figures(), quick=1, quick_attack=fast)
        )  # fmt: skip
        for attacker in (PLAIN, THROUGH, AFTERWARDS):
            quick = 1 if row == "Adam, L2" and attacker == PLAIN else 0
            cells.append(
                Cell(
                    row, f"LeNet, hybrid, {attacker}", attacked(HYBRID, small, attacker),
                    plain_figures() if attacker == PLAIN else dict(KNOWN), quick=quick, quick_attack=fast,
                )
            )  # fmt: skip
        bare, run = (with_training(p, large, model=RESNET) for p in ("", HYBRID))
        cells.append(Cell(row, "ResNet20-4, trained, no policy", bare, bare_figures(without)))
        cells.append(Cell(row, "ResNet20-4, trained, hybrid, plain", run, plain_figures(with_it)))
        cells.append(Cell(row, f"ResNet20-4, trained, hybrid, {BETTER}", run, dict(KNOWN), "adaptive"))
    return tuple(cells)


TABLE_ATTACKS = Table(
    "attacks",
    f"six attacks against the hybrid {HYBRID}, whether they know it or not, CIFAR-100",
    CONVENTION,
    "Claim 4: the hybrid protects from other attacks as well. The published settings of L-BFGS have 50 steps from 2 "
    "starts with L2 and 300 from 16 with the cosine; ours start once, from a repeated tile, with 75 steps on LeNet and "
    "50 on the trained network, and shorten steps that do not go down. The attacker who searches through the policy "
    "makes one attempt for each of the 16 ways that chance can have gone. The settings of Adam and SGD have 2,400 and "
    "1,200 steps, total variation 1e-4 and signs of gradients; SGD has a rate of 0.01 and momentum.",
    _by_setting(),
    heavy="the trained network takes a GPU.",
)

_BASELINES = (
    f"ats:policy={HYBRID}",
    *(f"gaussian:std={std:g}" for std in (0.001, 0.01, 0.1)),
    *(f"laplace:scale={scale:g}" for scale in (0.001, 0.01, 0.1)),
    *(f"prune:share={share}" for share in (0.7, 0.95, 0.99)),
)


def _both(defense: str) -> Run:
    return Run(
        Scenario(
            model=LENET, data="cifar100", attacks=(LBFGS,), trials=100, defenses=(defense,),
            threat_model="honest-but-curious+labels",
        )
    )  # fmt: skip


TABLE_BASELINES = Table(
    "baselines",
    "noise and pruning of the attacked gradient beside the hybrid, LeNet, CIFAR-100",
    "PSNR against the client's own picture; *informed* is the strongest attacker we have who knows the configuration.",
    "Claim 5 compares with noise and pruning. In the released code of both studies these act in training only and the "
    "attacked gradient is clean, so their figures say nothing about them and are left out here. The scales of the "
    "noise are those of the released code; the shares of pruned entries are ours.",
    tuple(
        Cell(
            defense, column, _both(defense), dict(KNOWN), variant,
            quick=1 if defense == "gaussian:std=0.01" else 0, quick_attack=QUICK_LBFGS,
        )
        for defense in _BASELINES
        for column, variant in (("plain", "plain"), ("informed", "adaptive"))
    ),
)  # fmt: skip

_AT = (0, 10, 25, 50, 75, 90, 100)


def _spread(score: str) -> dict[str, float | None]:
    return {f"{score}_quantile({at})": None for at in _AT}


TABLE_DISTRIBUTION = Table(
    "distribution",
    f"picture by picture: with and without the hybrid {HYBRID}, LeNet, CIFAR-100",
    "quantiles over pictures of the PSNR; at 100 % stands the most exposed picture.",
    "The replication found that the mean hides the picture that is recovered best. The same runs as in table policies. "
    "As drawn: a thin line from the least to the most exposed picture, a thick one over the middle four fifths, a "
    "box over the middle half, and the median.",
    tuple(
        Cell(
            row, column, attacked(policy, attack, attacker), _spread(score),
            quick=0 if attacker == THROUGH else 2, quick_attack=told(quick, policy, attacker),
        )
        for column, attack, quick in (("L-BFGS", LBFGS, QUICK_LBFGS), ("Adam", ADAM, QUICK))
        for row, policy, attacker, score in (
            ("no policy", "", PLAIN, "psnr"),
            ("hybrid, plain", HYBRID, PLAIN, "psnr"),
            ("hybrid, plain, against the transformed picture", HYBRID, PLAIN, "psnr_trained_on"),
            (f"hybrid, {THROUGH}", HYBRID, THROUGH, "psnr"),
            (f"hybrid, {AFTERWARDS}", HYBRID, AFTERWARDS, "psnr"),
        )
    ),
    drawn=True,
)  # fmt: skip

"""Inverting Gradients: match the direction of the gradient with signed Adam, smooth pictures preferred.

Geiping et al., "Inverting Gradients - How easy is it to break privacy in federated learning?", NeurIPS 2020. Cost is
1 - cosine over all tensors together, plus a little total variation; the image's gradient is replaced by its sign, Adam
steps in units of the data's standard deviation, and pixels are kept in their range. The attempt with the lowest cost
without the prior is kept. A weight difference is matched by unrolling the client's local steps.

Where we depart. Published scripts are given the labels; here they are used only if the threat model reveals them, read
off the last layer otherwise (counted for a batch, see `labels`), or optimised with the image (`labels="optimise"`; one
row per sample: the released code has a single row for the whole batch). The step length falls along a cosine and the
sign is softened, or left out where the network is smooth: chosen by PSNR on CIFAR-10 (`sign="hard"`, `decay="steps"`
are theirs). `schedule="averaged"` gives the mean of all attempts in place of the best one, for networks with kinks.
Victims run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.engine import descent
from leakgauge.matching.attempts import AVERAGED, SCHEDULES, Minimise
from leakgauge.matching.input_search import InputSearch, sign_for
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Observation

LAYERS = ("all", "first", "last", "largest")
DISTANCES = ("cosine", "l2", "l1", "cosine-each", "relative-l1")


@dataclass(frozen=True)
class InvertingGradients(InputSearch):
    """Cosine matching with signed Adam.

    Example: `leakgauge attack inverting-gradients --data digits --model lenet-dlg --steps 500 --trials 4`
    """

    name: ClassVar[str] = "inverting-gradients"
    summary: ClassVar[str] = "match the gradient's direction with signed Adam and total variation"
    paper: ClassVar[str] = "Geiping et al. 2020, Inverting Gradients, NeurIPS"
    distances: ClassVar[tuple[str, ...]] = DISTANCES

    restarts: int = setting(1, "attempts; the one with the lowest cost is kept, unless they are averaged", low=1)
    schedule: str = setting(
        "halving",
        "all attempts to the end, the worse half given up early, or all to the end and their mean",
        choices=(*SCHEDULES, AVERAGED),
    )
    optimizer: str = setting("adam", "update rule", choices=descent.RULES)
    decay: str = setting(
        "cosine", "how the step length falls: a half cosine, or tenfold at 3/8, 5/8, 7/8", choices=descent.DECAYS
    )
    sign: str = setting(
        "auto",
        "the image's gradient becomes its sign, hard or soft; auto: soft if the network has kinks, else none",
        choices=("auto", *descent.SIGNS),
    )
    tv: float = setting(1e-4, "weight of total variation", low=0)
    distance: str = setting("cosine", "how gradients are compared", choices=DISTANCES)
    layers: str = setting("all", "which tensors are compared", choices=LAYERS)
    layer_count: int = setting(10, "how many tensors, unless all", low=1)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Matching:  # noqa: ARG002
        """Only the chosen tensors are compared."""
        whole = self.posed(observation, self.distance, self.tv, DISTANCES)
        chosen = choose_layers(whole.observed, self.layers, self.layer_count)
        return whole.without(whole.observed.keys() - set(chosen))

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:  # noqa: ARG002
        sign = sign_for(problem.observation) if self.sign == "auto" else self.sign
        return self.descending(problem, rule=self.optimizer, sign=sign, decay=self.decay)


def choose_layers(tensors: Mapping[str, Tensor], which: str, count: int) -> list[str]:
    """Names of the tensors that enter the cost, in the model's order."""
    names = list(tensors)
    if which == "first":
        return names[:count]
    if which == "last":
        return names[-count:]
    if which == "largest":  # by the mean norm over trials
        norms = {n: float(t.flatten(1).norm(dim=1).mean()) for n, t in tensors.items()}
        return sorted(sorted(names, key=lambda n: -norms[n])[:count], key=names.index)
    return names

"""FedBoosting: a client counts by how well its model does on its own samples and on those of the others.

Ren et al. 2022. Each client keeps some samples back, and every client tries every local model on its own. With T_i the
result of model i where it was trained and V_ij its result at client j:

  inverse  as released: score_i = (1 / mean_j V_ij) (1 / T_i) / sum_k (1 / T_k) for losses, mean_j V_ij T_i / sum_k T_k
           for accuracies; the weights are the scores, scaled to add up to one;
  softmax  as in the text: softmax(softmax(T) * V) with V_i = sum_j V_ij. With losses this favours the worse model, so
           it is meant for accuracies; with `metric=loss` it does what the text says.

`results=validation` leaves T out of either rule, as Figure 4.6 does: mean_j V_ij alone, inverted for losses, or
softmax(V).

Where we depart: `over=median` takes the middle client's word instead of the mean of all, which a liar cannot move far.
A result that is not finite counts as the worst there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.defenses.mixing import FUSINGS, check_fusing, fusing_weights
from leakgauge.federation.aggregators.aggregator import Aggregator, Reported
from leakgauge.settings import setting

_LEAST = 1e-6  # a loss of zero would take all the weight there is


@dataclass(frozen=True)
class FedBoosting(Aggregator):
    """Ren et al. 2022.

    Example: `leakgauge train --aggregator fedboosting:mix=0.9 --partition kind=dirichlet,alpha=0.3,clients=10`
    """

    name: ClassVar[str] = "fedboosting"
    summary: ClassVar[str] = "clients are weighed by how their models do on each other's samples"
    paper: ClassVar[str] = "Ren et al. 2022, FedBoosting"
    cross_validates: ClassVar[bool] = True

    form: str = setting(
        "inverse", "scores as released (inverse) or as in the text (softmax)", choices=("inverse", "softmax")
    )
    results: str = setting(
        "both",
        "weigh by training and validation results, or by validation alone (Fig. 4.6)",
        choices=("both", "validation"),
    )
    metric: str = setting("loss", "what clients report of a model", choices=("loss", "accuracy"))
    over: str = setting("mean", "how the clients' reports on a model become one", choices=("mean", "median"))
    validation: float = setting(0.1, "share of a client's samples it keeps back to try models on", above=0, high=0.5)
    mix: float = setting(
        1.0,
        "least share of a client's own update in the model that others try; the paper mixes at 0.9, 1 does not",
        above=0,
        high=1,
    )
    fusing: str = setting(
        "random",
        "own shares drawn in private and the rest in equal parts (random) or in drawn parts (free), or mix for "
        "everybody, as released (fixed)",
        choices=FUSINGS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mix < 1:
            check_fusing("aggregator: mix", self.mix, self.fusing)

    @property
    def mixing(self) -> float:
        return self.mix

    def mixing_weights(self, reported: Reported, memory: Mapping[str, Tensor], g: torch.Generator) -> Tensor | None:  # noqa: ARG002
        return None if self.mix == 1 else fusing_weights(len(reported.samples), self.mix, self.fusing, g)

    def weights(self, reported: Reported) -> Tensor:
        assert reported.training is not None
        assert reported.validation is not None
        worst = 1e6 if self.metric == "loss" else 0.0  # for a model that is broken
        own, others = (
            torch.nan_to_num(results.double(), nan=worst, posinf=worst, neginf=worst).clamp(max=1e6)
            for results in (reported.training, reported.validation)
        )
        middle = others.mean(1) if self.over == "mean" else others.median(1).values  # (T,)
        alone = self.results == "validation"
        if self.form == "softmax":
            factor = 1 if alone else torch.softmax(own, 0)
            return torch.softmax(factor * middle * len(own), 0)  # the text has the sum over j
        if self.metric == "loss":
            own, middle = 1 / own.clamp(min=_LEAST), 1 / middle.clamp(min=_LEAST)
        score = middle if alone else middle * own / own.sum().clamp(min=_LEAST)
        return score / score.sum() if float(score.sum()) > 0 else torch.full_like(score, 1 / len(score))

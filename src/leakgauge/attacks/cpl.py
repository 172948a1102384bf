"""CPL: label first, a geometric start, then gradient matching over the inputs.

Wei et al., "A Framework for Evaluating Client Privacy Leakages in Federated Learning", ESORICS 2020. A start that
repeats one small random tile needs fewer than half the steps of a random one.

Where we depart. The paper's label regulariser compares with the client's true logits in the released code, which no
attacker has, and is switched off in its main notebook: `label_weight` (off by default) compares the prediction with the
recovered label instead. The labels of more than one hidden sample are counted, see `labels`; the released batch attack
optimises a single picture. The optimiser is ours, see `dlg`; one attempt, as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge.engine.gradients import parameters_of
from leakgauge.matching.gradient_matching import THRESHOLD, GradientMatching
from leakgauge.matching.labels import RULES, searched_labels
from leakgauge.matching.problem import Matching
from leakgauge.matching.starts import STARTS
from leakgauge.settings import setting
from leakgauge.types import Observation


@dataclass(frozen=True)
class CPL(GradientMatching):
    """Client privacy leakage attack.

    Example: `leakgauge attack cpl --data digits --model lenet-cpl --init patterned-2 --trials 4`
    """

    name: ClassVar[str] = "cpl"
    summary: ClassVar[str] = "label first, then match the gradient from a geometric start"
    paper: ClassVar[str] = "Wei et al. 2020, client privacy leakage (CPL), ESORICS"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 5.0
    in_suites: ClassVar[Mapping[str, str | None]] = {
        "standard": "steps=150,restarts=4,schedule=halving",
        "full": "restarts=8,schedule=halving",
    }

    init: str = setting("patterned-2", "where the inputs start", choices=STARTS)
    restarts: int = setting(1, "attempts at most; another is made while the threshold is missed", low=1)
    threshold: float = setting(1e-7, THRESHOLD, above=0)
    rule: str = setting("auto", "how one sample's label is read: bias where there is one, or row sums", choices=RULES)
    label_weight: float = setting(0.0, "weight of |prediction - recovered label|^2 beside the distance", low=0)

    def labels_of(self, observation: Observation) -> Tensor | None:
        return searched_labels(observation, self.labels, self.rule)

    def prior(self, problem: Matching, inputs: Tensor, targets: Tensor) -> Tensor:
        added = super().prior(problem, inputs, targets)
        if not self.label_weight:
            return added
        model = problem.model
        weights = parameters_of(model)
        predicted = torch.softmax(vmap(lambda x: functional_call(model, weights, (x,)))(inputs), -1)  # (A, N, C)
        wanted = targets if targets.dim() == predicted.dim() else nn.functional.one_hot(targets, predicted.shape[-1])
        return added + self.label_weight * ((predicted - wanted) ** 2).flatten(1).sum(1)

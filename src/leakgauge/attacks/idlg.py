"""iDLG: read the label off the last layer, then match the gradient over the image alone.

Zhao, Mopuri and Bilen, "iDLG: Improved Deep Leakage from Gradients", 2020. Of one sample only the true class has a
negative entry in the last bias gradient (and, with non-negative features, a negative row sum).

Where we depart: the labels of a batch are counted, see `labels`; the paper has one sample per update. The bias rule is
preferred because it needs no assumption on the features; `rule="row-sum"` is the published one. The optimiser is ours,
see `dlg`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from leakgauge.matching.gradient_matching import GradientMatching
from leakgauge.matching.labels import INFER, RULES, inferred_labels, searched_labels
from leakgauge.matching.last_layer import proven_labels
from leakgauge.matching.problem import Matching
from leakgauge.matching.targets import read_targets
from leakgauge.settings import setting
from leakgauge.types import ONE_CLASS, Fact, Observation, Progress, Reconstruction


@dataclass(frozen=True)
class IDLG(GradientMatching):
    """Improved Deep Leakage from Gradients.

    Example: `leakgauge attack idlg --data digits --model lenet-dlg --trials 4`
    """

    name: ClassVar[str] = "idlg"
    summary: ClassVar[str] = "read the label off the last layer, then match the gradient over the image"
    paper: ClassVar[str] = "Zhao et al. 2020, iDLG: Improved Deep Leakage from Gradients"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 5.0
    in_suites: ClassVar[Mapping[str, str | None]] = {
        "quick": "steps=65,restarts=1,threshold=1e-06",
        "standard": None,  # cpl is the better one where there is time
        "full": None,
    }

    rule: str = setting("auto", "how one sample's label is read: bias where there is one, or row sums", choices=RULES)

    def check(self, observation: Observation) -> None:
        alone = observation.fact(Fact.NUM_SAMPLES) == 1
        if alone and self.labels == INFER and not observation.knows(Fact.LABELS):
            if observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
                read_targets(observation)
            else:
                inferred_labels(observation, single=self.rule)  # refuses and says why

    def labels_of(self, observation: Observation) -> Tensor | None:
        self.check(observation)
        return searched_labels(observation, self.labels, self.rule)

    def solve(self, problem: Matching, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        found = super().solve(problem, seeds, progress)
        return dataclasses.replace(found, labels_proven=proven_labels(problem.observation))

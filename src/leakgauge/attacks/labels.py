"""Labels alone: how often each class occurs in the batch behind an update. No picture is claimed.

The bias gradient of the last layer is the mean prediction over the batch minus the share of each label, so a guess
of that mean gives the counts. The rules, by the name of `rule`:

- sign: Zhao et al. 2020 (iDLG), classes with a negative entry, the rest of the batch by size
- yin: Yin et al. 2021 (GradInversion), the N most negative rows; right where labels are distinct
- llg, llg-plus, llg-star: Wainakh et al. 2022 (LLG), a sample's impact from the update, from public data, from dummies
- bias: the first of these on the bias, without the correction for features
- exact: the mean prediction over public data, or over dummy inputs where there is none
- presence: only classes with a negative entry in their row, in the shares that best explain the bias
- least-squares: Ma et al. 2023 (iLRG), a linear system for the counts from the update alone
- auto: whichever of exact, presence, least-squares and llg-plus counts best on made-up batches of public data

Several classes a sample under bce, numbers under mse and labels in a row are read by rules of their own; see
`leakgauge.matching.targets`. What they show is said in words.

Where we depart: `exact` and `presence` are ours. Counts that the gradient proves are kept in `exact`, `presence` and
`least-squares`. The release of LLG+ draws ten batches of each class, we take all samples of it at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.errors import NotApplicable
from leakgauge.matching.label_counts import RULES, misfit
from leakgauge.matching.labels import counted, refuse_uncountable
from leakgauge.matching.last_layer import CANNOT, clues_of, proven_labels
from leakgauge.matching.targets import read_targets
from leakgauge.matching.updates import observed_gradient, without_search
from leakgauge.matching.whole_counts import sorted_labels
from leakgauge.settings import setting
from leakgauge.types import CROSS_ENTROPY, ONE_CLASS, Attack, Fact, Observation, Progress, Reconstruction

_MOST = 4096  # samples per update that the rules were measured with


@dataclass(frozen=True)
class Labels(Attack):
    """Count the labels of a batch. The own objective is how far the counts are from what the bias says, per class.

    Example: `leakgauge attack labels --data digits --model lenet-dlg --batch-size 32 --trials 4`
    """

    name: ClassVar[str] = "labels"
    summary: ClassVar[str] = "count the labels of a batch from the last layer's gradient; no pictures"
    paper: ClassVar[str] = "Wainakh et al. 2022, User-Level Label Leakage from Gradients (LLG), PoPETs"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 0.0
    weighed: ClassVar[bool] = True
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    losses: ClassVar[tuple[str, ...]] = ()

    rule: str = setting("auto", "how labels are counted; auto: as works best on public data", choices=("auto", *RULES))

    def check(self, observation: Observation) -> None:
        """One class a sample is counted under cross-entropy; of other targets what their own loss shows."""
        local = observation.fact(Fact.LOCAL_TRAINING)
        if observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
            read_targets(observation)
        elif local.kind_of_loss != CROSS_ENTROPY:
            raise NotApplicable(f"{CANNOT}: counts rest on {CROSS_ENTROPY}, and the clients' loss is {local.loss}")
        if local.adaptive:  # refused where only signs are left
            observed_gradient(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        self.check(observation)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        if observation.fact(Fact.INPUT_SPEC).target != ONE_CLASS:
            read = read_targets(observation)
            return without_search(began, None, None, torch.zeros(len(read.words)), notes=read.words)
        if samples > _MOST:
            raise NotApplicable(f"labels counts up to {_MOST} samples behind one update, this one holds {samples}")
        if self.rule == "llg-plus" and not observation.knows(Fact.PUBLIC_DATA):
            raise NotApplicable("rule llg-plus learns from public data, which the threat model hides; use llg-star")
        refuse_uncountable(observation.fact(Fact.LOCAL_TRAINING), samples)
        clues = clues_of(observation, public=self.rule != "llg-star")
        counts, rules = counted(clues, self.rule)
        notes, proven = tuple(f"counted by {rule}" for rule in rules), proven_labels(observation)
        found, off = sorted_labels(counts, samples), misfit(clues, counts)
        return without_search(began, None, found, off, notes=notes, labels_proven=proven)

"""Feature fishing: a cut along one feature, moved query by query, until a single sample of the batch answers.

Wen et al., "Fishing for user data in large-batch federated learning via gradient magnification", ICML 2022. For batches
whose samples share a class, where class fishing gets them all. The last layer is zero but for class c, whose logit is
F (s - cut): s is one feature, or the sum of all. A sample of c above the cut is predicted with certainty and has no
gradient, one below it answers. The mean of s over those that answer is read off the last layer and becomes the next
cut, so that about half of them fall silent each time. When the mean stays at the cut there is one left, and its error
is exactly one half; samples too near to each other raise that sum, and the cut is made sharper.

The first query sends a last layer of zeros: predictions are then 1 / C, so the labels are counted exactly and the mean
feature is known. With `queries=1` there is no dialogue: the cut is the quantile 1 / `expected` of a normal distribution
fitted to public samples of the target.

Any features will do, as long as the samples differ in s. A ReLU sets features to zero for several samples, so a feature
is chosen that is nowhere tied on public samples. Samples of other classes answer above the cut, whatever the last
layer: with them in the batch the published cut isolates nobody. A class that is absent has no samples below the cut, so
it is bait for all: the samples above the cut answer, and the one with the largest s is fished.

Where we depart. The released code has biases of 1000 for the other classes, which puts the cut (1000 + ln(C - 1)) / F
above its place, 3.35 for F = 300 and ten classes (`as_released`); here they are zero and ln(C - 1) is accounted for.
Bait, the sharper cut and the cut along the sum are ours, and so is the check that one sample is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.whole_counts import nearest_counts, sorted_labels
from leakgauge.servers._fished import Answer, Fishing, asks_for, changed, features_at_hand, silenced
from leakgauge.settings import setting
from leakgauge.types import Batch, DataSpec, Observation, Progress, Reconstruction

_RELEASED_BIAS = 1000.0
_STILL = 1e-6  # a mean that moves less than this, relative to the larger of itself and 1, stands still
_PER_SPREAD = 100.0  # slope over standard deviation of s at which samples of a batch are usually told apart
_SHARPER = 8.0  # times the slope, when several samples answer from the cut itself
_ROUNDING = 0.1  # of a logit that a sharper cut may bring about; more would blur what it sharpens
_HALF = 1e-4  # how near the error of a sample at the cut must be to one half
_NONE_LEFT = 0.05  # a sum of errors below this is nobody
_FEWEST = 8  # public samples of a class to fit a distribution to; all classes together otherwise


@dataclass(frozen=True)
class FeatureFishing(Fishing):
    """One sample of many that share a class, or of a mixed batch that lacks one.

    Example:
    `leakgauge attack feature-fishing --data digits --batch-size 8 --threat-model malicious-parameters --steps 500`
    """

    name: ClassVar[str] = "feature-fishing"
    cost: ClassVar[float] = 24.0
    summary: ClassVar[str] = (
        "cut a batch along a feature, query by query, until one sample answers; invert its gradient"
    )

    magnify: float = setting(300.0, "slope of the cut", above=0)
    along: str = setting("sum", "what is cut: the sum of all features, or one of them", choices=("sum", "feature"))
    feature: int = setting(-1, "which feature; -1: the one that varies most on public samples", low=-1)
    queries: int = setting(40, "queries at most; 1: a single cut, placed by public samples", low=1)
    expected: int = setting(32, "samples of the target among which a single query is to find one", low=2)
    matched: float = setting(0.5, "weight of the cut feature in the search, against the last layer's", above=0)
    as_released: bool = setting(False, "biases of 1000 for the other classes: the cut lies far above its place")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queries == 1 and self.target < 0:
            do = "say which class the client's samples are of, or allow more queries"
            raise BadInput("feature-fishing: target", allowed="a class where queries is 1", got=self.target, do=do)

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        layer = self.layer_of(model, data)
        last = model.get_submodule(layer)
        if self.queries > 1:
            weight, bias = (torch.zeros_like(last.get_parameter(name)) for name in ("weight", "bias"))
            return changed(model, layer, weight, bias, queries=1)
        if public is None:
            raise NotApplicable("feature-fishing with queries=1 places its cut by public samples, and there are none")
        features = features_at_hand(model, layer, data, public)
        direction = self._direction(features, layer, lowest=True)
        own = public.labels[0].to(features.device) == self.target
        values = (features[own] if int(own.sum()) >= _FEWEST else features) @ direction
        quantile = torch.special.ndtri(torch.tensor(1 / self.expected)).item()
        theta = float(values.mean() + quantile * values.std())
        return self._cut(model, layer, self.target, self._slope(features @ direction) * direction, theta, queries=1)

    def ask_again(self, observation: Observation, asked: int) -> nn.Module | None:
        answer = self.answer(observation)
        if asked >= self.queries:
            return None
        if answer.asked is not None:
            return self._further(observation.model, answer, answer.asked, asked + 1)
        counts = equal_counts(answer)[0]
        bait, why_not = self._bait(counts)
        if why_not:
            return None
        features = answer.features()
        direction = self._direction(features, answer.layer, lowest=bool(counts[bait] > 0))
        absent = int((counts == 0).int().argmax())  # its row is the mean of all features over C
        theta = float(len(answer.bias) * answer.rows[0, absent] @ direction)
        slope = self._slope(features @ direction)
        return self._cut(observation.model, answer.layer, bait, slope * direction, theta, asked + 1)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        answer = self.answer(observation)
        bait, queries = answer.asked, answer.queries
        if bait is None:
            counts = equal_counts(answer)
            labels = sorted_labels(counts, answer.samples)
            notes = [f"{self._bait(own)[1] or 'not asked again'}; nothing fished by {queries}" for own in counts]
            return self.search(answer, seeds, progress, [0] * len(seeds), lambda own, _: own.observation, labels, notes)
        cuts = [cut_of(answer.take([t]), bait) for t in range(len(seeds))]
        sent = answer.weight[bait]
        row = sent * (self.matched / sent.abs().max())
        quiet = silenced(asks_for(answer.weight, bait, row), bait, answer.features(), _RELEASED_BIAS)
        own_labels, notes = self._labels(answer, bait), [_note(cut, queries) for cut in cuts]
        caught = [cut.left for cut in cuts]
        return self.search(
            answer, seeds, progress, caught, lambda own, count: own.alone(bait, row, quiet, count), own_labels, notes
        )

    def _labels(self, answer: Answer, bait: int) -> Tensor | None:
        """(T, N): the bait is the label of all or of none, as the first query said; a single query cannot tell."""
        if self.queries == 1:
            return None
        alone = answer.errors[:, bait] < 0
        own = answer.samples * alone
        elsewhere = answer.samples - own - answer.answering(bait)  # (T,) sum of 1 - p_c over the batch
        counts = elsewhere[:, None] / (len(answer.bias) - 1) - answer.samples * answer.errors
        counts[:, bait] = own.to(counts)
        return sorted_labels(nearest_counts(counts.double(), answer.samples), answer.samples)

    def _further(self, model: nn.Module, answer: Answer, bait: int, queries: int) -> nn.Module | None:
        """The next cut, through the mean of those that still answer; None once one is left, or nothing moves."""
        cut, row = cut_of(answer, bait), answer.weight[bait]
        theta = cut.place - (_lift(_RELEASED_BIAS, answer.bias, cut.slope) if self.as_released else 0.0)
        still = abs(cut.mean - theta) <= _STILL * max(1.0, abs(cut.mean))
        if cut.left == 0 or (still and (self.as_released or cut.is_one)):
            return None
        if not self.as_released:
            if cut.is_through_the_mean and cut.total > 0.5 + _HALF:
                if cut.slope * _SHARPER > _sharpest(answer.weight, cut.place):
                    return None
                row = row * _SHARPER
            elif still:
                return None
        return self._cut(model, answer.layer, bait, row, cut.mean, queries)

    def _cut(self, model: nn.Module, layer: str, bait: int, row: Tensor, theta: float, queries: int) -> nn.Module:
        """The model whose cut along `row` lies at `theta`, or where the released code puts it."""
        last = model.get_submodule(layer)
        slope = float(row.abs().max())
        bias = last.get_parameter("bias").detach().clone().fill_(_RELEASED_BIAS if self.as_released else 0.0)
        bias[bait] = -slope * theta + (0.0 if self.as_released else math.log(len(bias) - 1))
        return changed(model, layer, asks_for(last.get_parameter("weight").detach(), bait, row), bias, queries)

    def _bait(self, counts: Tensor) -> tuple[int, str]:
        """The class to ask for, given how often each occurs (C,), or why there is none."""
        present, absent = (torch.nonzero(some)[:, 0].tolist() for some in (counts, counts == 0))
        if self.target < 0 and len(present) > 1:
            why_not = "every class is in the batch, so that none is left as bait: use class-fishing"
            return (absent[0], "") if absent else (-1, why_not)
        if self.target >= 0 and self.target not in present:
            return -1, f"class {self.target} is not in the batch"
        if len(present) > 1:
            return -1, (
                f"class {self.target} is not alone in the batch, and the other classes answer above the cut: "
                "leave out target, or use class-fishing"
            )
        return present[0], ""

    def _slope(self, values: Tensor) -> float:
        """Steeper than asked for where s (S,) hardly differs between samples at hand."""
        if self.as_released:
            return self.magnify
        return max(self.magnify, min(_PER_SPREAD / float(values.std()), _sharpest(values, float(values.mean()))))

    def _direction(self, features: Tensor, layer: str, lowest: bool) -> Tensor:
        """(d,) of zeros and ones: the features whose sum is cut, by their values (S, d) on samples at hand."""
        size = features.shape[1]
        if self.feature >= size:
            allowed = f"-1 or below {size}, the features of {layer!r}"
            raise BadInput("feature-fishing: feature", allowed=allowed, got=self.feature, do="choose one of them")
        direction, chosen = torch.ones_like(features[0]), "the sum of features"
        if self.along == "feature":
            feature = self.feature if self.feature >= 0 else _widest(features, layer, lowest)
            direction, chosen = (torch.arange(size).to(direction.device) == feature).to(direction), f"feature {feature}"
        if float((features @ direction).std()) == 0:
            raise NotApplicable(f"{chosen} before {layer!r} is the same for all given samples: nothing to cut along")
        return direction


@dataclass(frozen=True)
class Cut:
    """Where the cut of one trial lies and who answers from which side of it."""

    answer: Answer  # of one trial
    bait: int
    slope: float
    place: float  # the s at which the class is as likely as all others together
    mean: float  # of s over those that answer, each by its error
    total: float  # of the errors' sizes: 1 for each sample well on the answering side, 1/2 for one at the cut

    @property
    def is_through_the_mean(self) -> bool:
        """Near enough for the samples there to be half silent."""
        return abs(self.mean - self.place) <= max(0.1 / self.slope, _STILL * max(1.0, abs(self.mean)))

    @property
    def is_one(self) -> bool:
        rounding = torch.finfo(self.answer.bias.dtype).eps * self.slope * max(1.0, abs(self.place))
        return abs(self.total - 0.5) <= _HALF + rounding / 2

    @property
    def left(self) -> int:
        """How many samples answer."""
        if self.total < _NONE_LEFT:
            return 0
        return min(self.answer.samples, max(1, round(2 * self.total if self.is_through_the_mean else self.total)))


def cut_of(answer: Answer, bait: int) -> Cut:
    """The cut behind the answer of one trial."""
    weight, bias = answer.weight[bait], answer.bias
    slope = float(weight.abs().max())
    place = _lift(float(bias[bait - 1]), bias, slope) - float(bias[bait]) / slope
    mean = float(answer.mean_features(bait)[0] @ (weight / slope))
    return Cut(answer, bait, slope, place, mean, abs(float(answer.answering(bait)[0])))


def equal_counts(answer: Answer) -> Tensor:
    """How often each label occurs, (T, C), under a last layer of zeros, which predicts 1 / C for all."""
    share = 1 / len(answer.bias)
    return nearest_counts(answer.samples * (share - answer.errors).double(), answer.samples)


def _lift(other_bias: float, bias: Tensor, slope: float) -> float:
    """How far above theta the cut lies if the class's bias is -slope * theta and the others' is `other_bias`."""
    return (other_bias + math.log(len(bias) - 1)) / slope


def _sharpest(like: Tensor, place: float) -> float:
    """The steepest slope at which logits near the cut are still told apart in this precision."""
    return _ROUNDING / (torch.finfo(like.dtype).eps * max(abs(place), 1e-3))


def _widest(features: Tensor, layer: str, lowest: bool) -> int:
    """The feature (S, d) that varies most, of those whose extreme value is one sample's alone."""
    end = features.amin(0) if lowest else features.amax(0)
    tied = (features == end).sum(0) > 1
    spread = features.std(0).where(~tied, features.new_tensor(-1.0))
    if float(spread.max()) <= 0:
        raise NotApplicable(
            f"every feature before {layer!r} is tied between given samples where the cut would isolate one (a ReLU's "
            "zeros, for one): use along=sum"
        )
    return int(spread.argmax())


def _note(cut: Cut, queries: str) -> str:
    samples, caught = cut.answer.samples, cut.left
    if caught == 0:
        return f"no sample on the side of the cut that answers: nothing fished by {queries}"
    alone = float(cut.answer.errors[0, cut.bait]) < 0
    which = f"class {cut.bait}" if alone else f"all classes, with class {cut.bait} as bait"
    if caught > 1:
        together = f"{caught} of {samples} samples, among {which}, still answer together after {queries}"
        return f"{together}; the rest is not claimed"
    faint = cut.is_through_the_mean and not cut.is_one
    mixed = f", with {1 - 0.5 / cut.total:.1%} of the answer from others" if faint and cut.total > 0.5 else ""
    return f"fished 1 of {samples} samples, among {which}, by {queries}{mixed}; the others are not claimed"

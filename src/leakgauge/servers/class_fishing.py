"""Class fishing: a last layer in which only one class speaks, so that a batch of any size answers with one sample.

Wen et al., "Fishing for user data in large-batch federated learning via gradient magnification", ICML 2022. The row of
class c becomes a constant and all others zero; the biases of the others are so large that c is never predicted. A
sample of another class then has no error at c and no gradient below the last layer, exactly none in floating point. If
one sample of c is in the batch, the update is its gradient over the size of the batch, and `inverting-gradients` has a
single picture to find.

Which class: the first query sends the model as it is, and the labels are counted from its update. The second fishes a
class that occurs once, or the rarest. Its own update then holds the counts exactly, since the predictions are known:
the bias gradient is 1 / (C - 1) - n / N at the other classes. If the first count was wrong, a third query corrects it.

Where we depart. The released server knows the labels, and where several samples share a class it goes for the first
label instead of the target; here no label is given, and samples of the rarest class are searched for together.
The features of the fished sample are known from the last layer, so the other samples' part in that layer is taken out.
The other biases rise above 1000 where the features at hand are so large that 1000 would not silence the class.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.whole_counts import nearest_counts, sorted_labels
from leakgauge.servers._fished import Answer, Fishing, asks_for, changed, features_at_hand, silenced
from leakgauge.settings import setting
from leakgauge.types import Batch, DataSpec, Observation, Progress, Reconstruction

_LOUD = 1e4  # the biases that silence the other classes grow with it
_MOST_QUERIES = 4  # one to count, one to fish, and two to correct a wrong count; noise may spoil them all


@dataclass(frozen=True)
class ClassFishing(Fishing):
    """One sample of a large batch, by its class.

    Example:
    `leakgauge attack class-fishing --data digits --batch-size 16 --threat-model malicious-parameters --steps 500`
    """

    name: ClassVar[str] = "class-fishing"
    cost: ClassVar[float] = 23.0
    summary: ClassVar[str] = (
        "send a last layer that answers for one class, then invert the one gradient that comes back"
    )

    magnify: float = setting(0.5, "weight of every feature for the fished class", above=0)
    other_bias: float = setting(1000.0, "bias of the other classes, at least", above=0)

    def louder(self) -> ClassFishing:
        return dataclasses.replace(self, magnify=_LOUD * self.magnify)

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        layer = self.layer_of(model, data)
        if self.target < 0:
            return copy.deepcopy(model)
        return self._fishing_for(self.target, model, layer, features_at_hand(model, layer, data, public), queries=1)

    def ask_again(self, observation: Observation, asked: int) -> nn.Module | None:
        answer = self.answer(observation)
        if self.target >= 0 or answer.samples == 1 or asked >= _MOST_QUERIES:
            return None
        if answer.asked is None:
            counts = torch.bincount(inferred_labels(observation)[0], minlength=len(answer.bias))
        else:
            counts = exact_counts(answer, answer.asked)[0]
        most = counts.new_tensor(torch.iinfo(counts.dtype).max)
        rarest = int(counts.where(counts > 0, most).argmin())  # of the classes that occur
        if answer.asked is not None and counts[answer.asked] == counts[rarest]:
            return None
        return self._fishing_for(rarest, observation.model, answer.layer, answer.features(), queries=asked + 1)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        answer = self.answer(observation)
        samples, target, queries = answer.samples, answer.asked, answer.queries
        if target is None:  # a batch of one, or nobody asked again
            labels, whole = inferred_labels(observation), [samples] * len(seeds)
            notes = [f"{queries}, nothing changed: the whole batch of {samples} is searched for"] * len(seeds)
            return self.search(answer, seeds, progress, whole, lambda own, _: own.observation, labels, notes)
        counts = exact_counts(answer, target)
        caught = counts[:, target].tolist()
        labels = sorted_labels(counts, samples)
        labels = labels.gather(1, (labels != target).long().argsort(dim=1, stable=True))  # the target's pictures first
        notes = [_note(target, number, samples, queries) for number in caught]
        row, bias = answer.weight[target], answer.bias
        return self.search(
            answer, seeds, progress, caught, lambda own, count: own.alone(target, row, bias, count), labels, notes
        )

    def _fishing_for(self, target: int, model: nn.Module, layer: str, features: Tensor, queries: int) -> nn.Module:
        weight = asks_for(model.get_submodule(layer).get_parameter("weight").detach(), target, self.magnify)
        return changed(model, layer, weight, silenced(weight, target, features, self.other_bias), queries)


def exact_counts(answer: Answer, target: int) -> Tensor:
    """How often each label occurs, (T, C): with the asked class silenced all predictions are known."""
    classes = len(answer.bias)
    predicted = answer.errors.new_full((classes,), 1 / (classes - 1))
    predicted[target] = 0
    return nearest_counts(answer.samples * (predicted - answer.errors).double(), answer.samples)


def _note(target: int, caught: int, samples: int, queries: str) -> str:
    if caught == 0:
        return f"class {target} is not in the batch: nothing fished by {queries}"
    if caught == 1:
        found = f"fished 1 of {samples} samples, the only one of class {target}, by {queries}"
    else:
        together = f"its samples were fished together out of {samples}, by {queries}"
        found = f"class {target} occurs {caught} times: {together}"
    return f"{found}; the others are not claimed"

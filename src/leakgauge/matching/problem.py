"""The question every gradient-matching attack asks: which inputs would have made this update?

One problem per trial, as a function of a flat vector z = (inputs in the optimiser's own units, label logits, hidden
buffers). With a `painter` z is what it makes the inputs and logits from instead: the weights of a generator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import mini_batches
from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.driving import Evaluate
from leakgauge.engine.gradients import parameters_of, runs_one_by_one, trial_gradients, working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.clipping import Clipping, clipped_mean
from leakgauge.matching.compression import Compression, OwnDistance, compressed_distance
from leakgauge.matching.distance import distance_between, rows_of
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.models._layers import MaskedLinear
from leakgauge.types import DataSpec, Fact, LocalTraining, Observation

Prior = Callable[[nn.Module, Tensor, Tensor], Tensor]  # (model, inputs (A, N, ...), targets) -> (A,)
Rows = list[Tensor]
Distance = OwnDistance


Finish = Callable[[Tensor], tuple[Tensor, Tensor]]  # z (T, D) -> inputs (T, N, ...), labels (T, N)
Opening = Callable[[Tensor, int], Tensor]  # (z (A, D) at the start of an attempt, its number) -> the start it gets


class Painter(Protocol):
    """Makes inputs and label logits from another kind of z."""

    @property
    def width(self) -> int:
        """Numbers in one trial's z."""

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(A, D) and the trials (A,) its rows belong to, None for all -> inputs (A, N, *sample), logits or None."""


@dataclass(frozen=True)
class Puzzle:
    """Everything that is fixed while the attack searches."""

    model: nn.Module
    observed: Mapping[str, Tensor]  # name -> (T, *parameter): a gradient, or a weight difference if steps are unrolled
    shape: tuple[int, ...]  # (N, *sample)
    classes: int
    labels: Tensor | None  # (T, N), or None where they are searched for
    distance: str | Distance
    prior: Prior
    prior_counts: bool = True  # in the value that ranks points; its slope always counts
    unrolled: LocalTraining | None = None  # local steps to replay; None for a single gradient
    mean_of_steps: bool = False  # what is observed is the mean gradient of these steps, not the weight difference
    match_nonzero: bool = False
    centre: Tensor | None = None  # inputs = centre + unit * z, in the inputs' own units if not given
    unit: Tensor | None = None
    label_unit: float = 1.0
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # buffers that differ by trial: name -> (T, ...)
    painter: Painter | None = None  # what z means, where it is not the inputs themselves
    clipping: Clipping | None = None  # how the client is known to have clipped
    length_unit: float = 1.0  # squared distances are measured in units of this: a clipped update is tiny or huge
    compression: Compression | None = None  # how the client is known to have shortened what it sent
    weights: Mapping[str, Tensor] | None = None  # factor of every entry in the comparison: name -> (T, *parameter)
    hidden: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # buffers searched for: name -> shape
    hidden_unit: float = 1.0  # in which z counts them: a number that acts on every pixel needs smaller steps than one
    clients: int = 1  # who share the samples equally and of whom the mean is observed
    finish: Finish | None = None  # what is reported, where it is not what was compared
    opening: Opening | None = None  # what each attempt begins with, where attempts stand for different guesses

    @property
    def like(self) -> Tensor:
        """A tensor on the update's device and in its precision."""
        return next(iter(self.observed.values()))

    @property
    def pixels(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def width(self) -> int:
        return self.visible + sum(math.prod(shape) for shape in self.hidden.values())

    @property
    def visible(self) -> int:
        """Numbers of z in front of the hidden buffers."""
        if self.painter is not None:
            return self.painter.width
        return self.pixels + (self.shape[0] * self.classes if self.labels is None else 0)

    def split(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(A, D) -> inputs (A, N, *sample) and logits (A, N, C) or None; rows are all trials in order unless told."""
        if self.painter is not None:
            return self.painter(z[:, : self.visible], trials)
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is not None and self.unit is not None:
            inputs = inputs * self.unit + self.centre
        if self.labels is not None:
            return inputs, None
        return inputs, self.label_unit * z[:, self.pixels : self.visible].reshape(-1, self.shape[0], self.classes)

    def buffers_in(self, z: Tensor) -> dict[str, Tensor]:
        """The hidden buffers in z, where they stand as differences from the public model's: name -> (A, *buffer)."""
        parts = torch.split(z[:, self.visible :], [math.prod(shape) for shape in self.hidden.values()], 1)
        moved = zip(self.hidden.items(), parts, strict=True)
        return {
            name: self.model.get_buffer(name) + self.hidden_unit * part.reshape(-1, *shape)
            for (name, shape), part in moved
        }

    def boxed(self, z: Tensor) -> Tensor:
        """The inputs in z back into [0, 1]; label logits and buffers are free."""
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is None or self.unit is None:
            inside = inputs.clamp(0, 1)
        else:
            inside = torch.clamp(inputs, -self.centre / self.unit, (1 - self.centre) / self.unit)
        return torch.cat((inside.flatten(1), z[:, self.pixels :]), 1)

    def evaluator(self, trials: Tensor) -> Evaluate:
        """Value and slope for rows that belong to these trials (A,); a trial may stand there several times."""
        return side_by_side([self], torch.zeros_like(trials), trials)

    def size(self) -> Tensor:
        """How far an update of zeros is from what was observed (T,), as values are measured: what they are relative to.

        The squared norm for squared distances, the sum of magnitudes for l1, 1 for the cosine; for the entropy how far
        the shares are from equal ones.
        """
        observed = _weighed(self.observed, self.weights)
        nothing = {name: torch.zeros_like(g) for name, g in observed.items()}
        return self.distance_to(observed)(nothing).detach() / self.length_unit**2

    def distance_to(self, observed: Mapping[str, Tensor]) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """(gradients of a guess, by name) -> (A,), for rows that stand for these updates."""
        named, names = self.distance, list(observed)
        if self.compression is not None:
            known = {name: g != 0 for name, g in observed.items()} if self.match_nonzero else None
            return compressed_distance(self.compression, observed, named, known)
        form = named if isinstance(named, str) else None
        rows = rows_of(observed, names, form)
        sent = [row != 0 for row in rows] if self.match_nonzero else None
        if isinstance(named, str):
            return lambda mine: distance_between(rows_of(mine, names, form), rows, named, sent)
        own = named(rows, sent)
        return lambda mine: own(rows_of(mine, names))

    def simulated(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """What the clients of all trials would share with these samples: name -> (T, *parameter), cut off."""
        alone = runs_one_by_one(self.model)  # then one graph at a time
        parts = []
        for rows in [slice(t, t + 1) for t in range(len(inputs))] if alone else [slice(None)]:
            shared = self.simulated_with_graph(inputs[rows], targets[rows], {n: m[rows] for n, m in self.masks.items()})
            parts.append({name: tensor.detach() for name, tensor in shared.items()})
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def simulated_with_graph(self, inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What clients with these samples would share."""
        if self.clients > 1 and (self.unrolled is not None or uses_batch_statistics(self.model)):
            own = {name: mask.repeat_interleave(self.clients, 0) for name, mask in masks.items()}
            each = self._of_single_clients(_apart(inputs, self.clients), _apart(targets, self.clients), own)
            return {n: t.reshape(-1, self.clients, *t.shape[1:]).mean(1) for n, t in each.items()}
        return self._of_single_clients(inputs, targets, masks)

    def _of_single_clients(self, inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.unrolled is None:
            return self._gradients(inputs, targets, None, masks)
        before = parameters_of(self.model)
        weights: dict[str, Tensor] = {n: p.expand(len(inputs), *p.shape) for n, p in before.items()}
        along: list[dict[str, Tensor]] = []
        for part in mini_batches(inputs.shape[1], self.unrolled):
            along.append(self._gradients(inputs[:, part], targets[:, part], weights, masks))
            weights = {n: w - self.unrolled.lr * along[-1][n] for n, w in weights.items()}
        if self.mean_of_steps:
            return {n: sum((step[n] for step in along[1:]), along[0][n]) / len(along) for n in before}
        return {n: w - before[n] for n, w in weights.items()}

    def _gradients(
        self, inputs: Tensor, targets: Tensor, weights: Mapping[str, Tensor] | None, masks: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        if self.clipping is None or self.clipping.unit == "client":
            return trial_gradients(self.model, inputs, targets, weights, masks)
        return clipped_mean(self.model, inputs, targets, self.clipping, weights, masks)


def side_by_side(members: Sequence[Puzzle], whose: Tensor, trials: Tensor) -> Evaluate:
    """Value and slope for rows (A,): row k is a guess of `members[whose[k]]` at trial `trials[k]`.

    Members may differ in distance and prior alone, so that one pass through the model serves them all.
    """
    first = members[0]
    if len(trials) > 1 and runs_one_by_one(first.model):  # one graph at a time: less memory, and it stays in the cache
        each = [side_by_side(members, w[None], t[None]) for w, t in zip(whose, trials, strict=True)]

        def one_after_another(z: Tensor) -> tuple[Tensor, Tensor]:
            found = [one(row[None]) for one, row in zip(each, z, strict=True)]
            return torch.cat([value for value, _ in found]), torch.cat([slope for _, slope in found])

        return one_after_another
    weights = None if first.weights is None else {name: w[trials] for name, w in first.weights.items()}
    labels = None if first.labels is None else first.labels[trials]
    observed = _weighed({name: g[trials] for name, g in first.observed.items()}, weights)
    masks = {name: mask[trials] for name, mask in first.masks.items()}
    groups = _groups(members, whose, observed)
    back = torch.cat([group.rows for group in groups]).argsort()  # groups one after another -> the rows' order

    def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_()
        inputs, logits = first.split(z, trials)
        targets = labels if logits is None else torch.softmax(logits, -1)
        assert targets is not None
        buffers = masks | first.buffers_in(z) if first.hidden else masks
        shared = _weighed(first.simulated_with_graph(inputs, targets, buffers), weights)
        value, prior = groups[0](shared, inputs, targets)
        if len(groups) > 1:
            every = [(value, prior), *(group(shared, inputs, targets) for group in groups[1:])]
            value, prior = (torch.cat(parts)[back] for parts in zip(*every, strict=True))
        value, whole = value / first.length_unit**2, (value + prior) / first.length_unit**2
        (slope,) = torch.autograd.grad(whole.sum(), z)
        return (whole if first.prior_counts else value).detach(), slope

    return evaluate


@dataclass(frozen=True)
class _Group:
    """The rows of one member among all."""

    member: Puzzle
    rows: Tensor  # (G,) places
    everything: bool  # are they all rows, in order?
    distance: Callable[[Mapping[str, Tensor]], Tensor]

    def __call__(self, shared: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Distance and prior of these rows: (G,) each."""
        if not self.everything:
            shared = {name: tensor[self.rows] for name, tensor in shared.items()}
            inputs, targets = inputs[self.rows], targets[self.rows]
        return self.distance(shared), self.member.prior(self.member.model, inputs, targets)


def _groups(members: Sequence[Puzzle], whose: Tensor, observed: Mapping[str, Tensor]) -> list[_Group]:
    groups = []
    for number, member in enumerate(members):
        rows = torch.arange(len(whose), device=whose.device) if len(members) == 1 else (whose == number).nonzero()[:, 0]
        mine = observed if len(members) == 1 else {name: g[rows] for name, g in observed.items()}
        if len(rows):
            groups.append(_Group(member, rows, len(rows) == len(whose), member.distance_to(mine)))
    return groups


def puzzle_of(
    observation: Observation,
    labels: Tensor | None,
    *,
    distance: str | Distance,
    prior: Prior,
    read_dropout: bool = False,
    unrolled: LocalTraining | None = None,
    match_nonzero: bool = False,
) -> Puzzle:
    """What the observation asks; with `unrolled` the weight difference itself is matched, else a gradient."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    gradient = observed_gradient(observation)
    return Puzzle(
        model=working_model(observation.model, local.batchnorm),
        observed=dict(observation.update.tensors) if unrolled else gradient,
        shape=(observation.fact(Fact.NUM_SAMPLES), *data.shape),
        classes=data.classes,
        labels=labels,
        distance=distance,
        prior=prior,
        unrolled=unrolled,
        match_nonzero=match_nonzero,
        masks=dropout_masks(observation, gradient) if read_dropout else {},
    )


def _weighed(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    return tensors if weights is None else {name: tensors[name] * w for name, w in weights.items()}


def _apart(tensor: Tensor, clients: int) -> Tensor:
    """(A, m x N, ...) -> (A x m, N, ...)."""
    return tensor.reshape(len(tensor) * clients, -1, *tensor.shape[2:])


def only(puzzle: Puzzle, names: list[str]) -> Puzzle:
    """The same puzzle with only these tensors compared."""
    return dataclasses.replace(puzzle, observed={name: puzzle.observed[name] for name in names})


def dropout_masks(observation: Observation, gradient: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Dropout before the last layer, read off its weight gradient: the column of a dropped unit is exactly zero."""
    layer = classifier_layer(observation)
    module = observation.model.get_submodule(layer)
    if f"{layer}.weight" not in gradient:
        raise NotApplicable(f"read_dropout reads the gradient of {layer}.weight, frozen or not shared; leave it out")
    if not isinstance(module, MaskedLinear):
        raise NotApplicable("read_dropout needs a model with dropout before its last layer; leave it out")
    return {f"{layer}.mask": module.visible_masks(gradient[f"{layer}.weight"])}

"""The question every gradient-matching attack asks: which inputs would have made this update?

One problem per trial, as a function of a flat vector z = (inputs in the optimiser's own units, label logits). With a
`painter` z is what it makes the inputs and logits from instead: the weights of a generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from leakgauge.attacks._parts.distance import distance_between, rows_of
from leakgauge.attacks._parts.updates import classifier_layer, observed_gradient
from leakgauge.engine.driving import Evaluate
from leakgauge.engine.gradients import parameters_of, runs_one_by_one, trial_gradients, working_model
from leakgauge.errors import NotApplicable
from leakgauge.fl.fedavg import mini_batches
from leakgauge.models._layers import MaskedLinear
from leakgauge.types import DataSpec, Fact, LocalTraining, Observation

Prior = Callable[[nn.Module, Tensor, Tensor], Tensor]  # (model, inputs (A, N, ...), targets) -> (A,)
Rows = list[Tensor]
# A distance of an attack's own: (observed rows, entries that count or None) -> (rows of a guess -> (A,)).
Distance = Callable[[Rows, Rows | None], Callable[[Rows], Tensor]]


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
    match_nonzero: bool = False
    centre: Tensor | None = None  # inputs = centre + unit * z, in the inputs' own units if not given
    unit: Tensor | None = None
    label_unit: float = 1.0
    masks: Mapping[str, Tensor] = field(default_factory=dict)  # buffers that differ by trial: name -> (T, ...)
    painter: Painter | None = None  # what z means, where it is not the inputs themselves

    @property
    def like(self) -> Tensor:
        """A tensor on the update's device and in its precision."""
        return next(iter(self.observed.values()))

    @property
    def pixels(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def width(self) -> int:
        if self.painter is not None:
            return self.painter.width
        return self.pixels + (self.shape[0] * self.classes if self.labels is None else 0)

    def split(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(A, D) -> inputs (A, N, *sample) and logits (A, N, C) or None; rows are all trials in order unless told."""
        if self.painter is not None:
            return self.painter(z, trials)
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is not None and self.unit is not None:
            inputs = inputs * self.unit + self.centre
        if self.labels is not None:
            return inputs, None
        return inputs, self.label_unit * z[:, self.pixels :].reshape(-1, self.shape[0], self.classes)

    def boxed(self, z: Tensor) -> Tensor:
        """The inputs in z back into [0, 1]; label logits are free."""
        inputs = z[:, : self.pixels].reshape(-1, *self.shape)
        if self.centre is None or self.unit is None:
            inside = inputs.clamp(0, 1)
        else:
            inside = torch.clamp(inputs, -self.centre / self.unit, (1 - self.centre) / self.unit)
        return torch.cat((inside.flatten(1), z[:, self.pixels :]), 1)

    def evaluator(self, trials: Tensor) -> Evaluate:
        """Value and slope for rows that belong to these trials (A,); a trial may stand there several times."""
        if len(trials) > 1 and runs_one_by_one(
            self.model
        ):  # one graph at a time: less memory, and it stays in the cache
            each = [self.evaluator(trial[None]) for trial in trials]

            def one_after_another(z: Tensor) -> tuple[Tensor, Tensor]:
                found = [one(row[None]) for one, row in zip(each, z, strict=True)]
                return torch.cat([value for value, _ in found]), torch.cat([slope for _, slope in found])

            return one_after_another
        names = list(self.observed)
        observed = rows_of({name: g[trials] for name, g in self.observed.items()}, names)
        known = [row != 0 for row in observed] if self.match_nonzero else None
        distance = self._distance_to(observed, known)
        labels = None if self.labels is None else self.labels[trials]
        masks = {name: mask[trials] for name, mask in self.masks.items()}

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            z = z.detach().requires_grad_()
            inputs, logits = self.split(z, trials)
            targets = labels if logits is None else torch.softmax(logits, -1)
            assert targets is not None
            mine = rows_of(self._simulated(inputs, targets, masks), names)
            value = distance(mine)
            whole = value + self.prior(self.model, inputs, targets)
            (slope,) = torch.autograd.grad(whole.sum(), z)
            return (whole if self.prior_counts else value).detach(), slope

        return evaluate

    def _distance_to(self, observed: Rows, known: Rows | None) -> Callable[[Rows], Tensor]:
        named = self.distance
        if isinstance(named, str):
            return lambda mine: distance_between(mine, observed, named, known)
        return named(observed, known)

    def _simulated(self, inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What clients with these samples would share."""
        if self.unrolled is None:
            return trial_gradients(self.model, inputs, targets, buffers=masks)
        before = parameters_of(self.model)
        weights: dict[str, Tensor] = {n: p.expand(len(inputs), *p.shape) for n, p in before.items()}
        for part in mini_batches(inputs.shape[1], self.unrolled):
            gradients = trial_gradients(self.model, inputs[:, part], targets[:, part], weights, masks)
            weights = {n: w - self.unrolled.lr * gradients[n] for n, w in weights.items()}
        return {n: w - before[n] for n, w in weights.items()}


def puzzle_of(
    observation: Observation, labels: Tensor | None, *, distance: str | Distance, prior: Prior,
    read_dropout: bool = False, unrolled: LocalTraining | None = None, match_nonzero: bool = False,
) -> Puzzle:  # fmt: skip
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


def only(puzzle: Puzzle, names: list[str]) -> Puzzle:
    """The same puzzle with only these tensors compared."""
    return dataclasses.replace(puzzle, observed={name: puzzle.observed[name] for name in names})


def dropout_masks(observation: Observation, gradient: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Dropout before the last layer, read off its weight gradient: the column of a dropped unit is exactly zero."""
    layer = classifier_layer(observation)
    module = observation.model.get_submodule(layer)
    if f"{layer}.weight" not in gradient:
        raise NotApplicable(f"read_dropout reads the gradient of {layer}.weight, which is frozen; leave it out")
    if not isinstance(module, MaskedLinear):
        raise NotApplicable("read_dropout needs a model with dropout before its last layer; leave it out")
    return {f"{layer}.mask": module.visible_masks(gradient[f"{layer}.weight"])}

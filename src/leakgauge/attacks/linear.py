"""Analytic inversion of a first linear layer: no optimisation, exact for one sample.

Aono et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", IEEE TIFS 2018. For y = W x + b
and one sample, row i of the weight's gradient is (dL/dy_i) x and the bias entry is dL/dy_i, so their ratio is x. For
several samples the ratio is their mean, weighted by dL/dy_i: every record gets a different such mixture.

The row with the largest bias entry is used, unless a known defense asks for others (see `matching/first_layer.py`):
a least-squares fit over all rows is the best estimate under known noise and, entry by entry, where entries are missing;
rows that agree with one another are clean where only some rows were changed. Several samples get a row each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._parallel_rows import input_of_parallel_rows
from leakgauge.attacks._scale_search import best_factor
from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import LEAST_SQUARES, PARALLEL, FirstLayer
from leakgauge.matching.labels import single_label
from leakgauge.matching.updates import classifier_layer, example_input, observed_gradient
from leakgauge.models.structure import first_linear, input_affine
from leakgauge.types import Attack, DataSpec, Fact, LocalTraining, Observation, Progress, Reconstruction

_TINY = 1e-30


@dataclass(frozen=True)
class Linear(Attack):
    """First-layer ratio: x = dL/dW_i / dL/db_i.

    Example: `leakgauge attack linear --data breast-cancer --model mlp --trials 4`
    """

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = (
        "divide the first linear layer's weight gradient by its bias gradient (exact for one sample)"
    )
    paper: ClassVar[str] = "Aono et al. 2018, IEEE TIFS 13(5)"
    kind: ClassVar[type] = FirstLayer
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.0
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    def check(self, observation: Observation) -> None:
        _first_layer(observation)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> FirstLayer:  # noqa: ARG002
        layer, affine, gradient = _first_layer(observation)
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]
        return FirstLayer(observation, layer, affine, gradient, weight, bias)

    def solve(self, problem: FirstLayer, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        observation, gradient = problem.observation, problem.gradient
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        rows = _rows(problem, samples)  # (T, N, in)
        label = single_label(gradient, classifier_layer(observation)) if samples == 1 else None
        scale, shift = problem.affine
        if problem.fit_scale and label is not None:
            local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
            worker = working_model(observation.model, local.batchnorm)
            factor = best_factor(worker, dict(gradient), rows[:, 0], problem.affine, data.shape, label)
            rows = rows * factor[:, None, None]
        inputs = ((rows - shift) / scale).reshape(len(rows), samples, *data.shape)
        inputs = inputs if problem.undo is None else problem.undo(inputs)
        misfit = _misfit(problem.weight, problem.bias, rows)
        ones = torch.ones(len(rows), dtype=torch.long)
        labels = None if label is None else label[:, None]
        return Reconstruction(inputs, labels, misfit, ones, 0 * ones, time.perf_counter() - began)


def _rows(problem: FirstLayer, samples: int) -> Tensor:
    """What each record's layer input is taken to be: (T, N, in)."""
    weight, bias = problem.weight, problem.bias  # (T, out, in), (T, out)
    if problem.combine == PARALLEL and samples == 1:
        return input_of_parallel_rows(weight, bias)[:, None]
    if problem.combine == LEAST_SQUARES and samples == 1:
        missing = (weight == 0) | (bias == 0)[..., None] if problem.match_nonzero else torch.zeros_like(weight).bool()
        over = (weight * bias[..., None] * ~missing).sum(1)
        under = (bias[..., None] ** 2 * ~missing).sum(1)
        return (over / under.clamp_min(_TINY))[:, None]
    order = bias.abs().topk(samples, dim=1).indices if samples <= bias.shape[1] else bias.abs().argsort(1, True)
    largest = order[:, torch.arange(samples, device=bias.device) % order.shape[1]]  # repeats if N > out
    chosen = weight.gather(1, largest[..., None].expand(-1, -1, weight.shape[2]))
    divisor = bias.gather(1, largest)[..., None]
    return chosen / torch.where(divisor == 0, torch.full_like(divisor, _TINY), divisor)


def _misfit(weight: Tensor, bias: Tensor, rows: Tensor) -> Tensor:
    """Own objective (T,): how badly `bias x first record` explains the weight gradient, relative to its size."""
    explained = bias[..., None] * rows[:, :1]
    return ((weight - explained) ** 2).flatten(1).sum(1) / (weight**2).flatten(1).sum(1).clamp_min(_TINY)


def _first_layer(observation: Observation) -> tuple[str, tuple[Tensor, Tensor], dict[str, Tensor]]:
    """Its name, what happens to inputs before it (scale, shift), and the update as a gradient; refused if unfit."""
    example = example_input(observation)
    layer, affine = first_linear(observation.model, example), input_affine(observation.model, example)
    if layer is None or affine is None:
        raise NotApplicable(
            "linear needs a model whose first layer with weights is nn.Linear on the flattened input; use dlg"
        )
    gradient = observed_gradient(observation)
    if f"{layer}.weight" not in gradient:
        raise NotApplicable(f"linear needs the gradient of {layer!r}, which is frozen or not shared; use dlg")
    if f"{layer}.bias" not in gradient:
        raise NotApplicable(
            f"linear needs a bias in {layer!r}: without it the input is known only up to scale; use dlg"
        )
    return layer, affine, gradient

"""Analytic inversion of a first linear layer: no optimisation, exact for one sample.

Aono et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", IEEE TIFS 2018. For y = W x + b
and one sample, row i of the weight's gradient is (dL/dy_i) x and the bias entry is dL/dy_i, so their ratio is x. For
several samples the ratio is their mean, weighted by dL/dy_i: every record gets a different such mixture.

The row with the largest bias entry is used, unless a known defense asks for others (see `matching/first_layer.py`):
a least-squares fit over all rows is the best estimate under known noise and, entry by entry, where entries are missing;
rows that agree with one another are clean where only some rows were changed. Several samples get a row each.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.engine.losses import Loss, cross_entropy, loss_of
from leakgauge.engine.memory import fitting
from leakgauge.errors import NotApplicable
from leakgauge.matching.distance import gradient_distance
from leakgauge.matching.first_layer import LEAST_SQUARES, PARALLEL, FirstLayer, first_layer_of
from leakgauge.matching.labels import one_label
from leakgauge.matching.updates import observed_gradient, without_search
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction

_TINY = 1e-30
_AGREEING = 8  # one live row in so many must agree with a row for it to be trusted
_SLACK = 10.0  # rows count as parallel up to this many times the angle at which that many agree
_LENGTHS = 48  # tried in each pass
_SPAN = math.log(50.0)  # the first pass tries factors that make the largest entry 1/50 to 50
_PASSES = 4  # each looks between the neighbours of the last one's best
_COPIES = 6  # of a gradient, besides what autograd keeps


@dataclass(frozen=True)
class Linear(Attack):
    """First-layer ratio: x = dL/dW_i / dL/db_i.

    Example: `leakgauge attack linear --data breast-cancer --model mlp --trials 4`
    """

    name: ClassVar[str] = "linear"
    weighed: ClassVar[bool] = True
    summary: ClassVar[str] = (
        "divide the first linear layer's weight gradient by its bias gradient (exact for one sample)"
    )
    paper: ClassVar[str] = "Aono et al. 2018, IEEE TIFS 13(5)"
    kind: ClassVar[type] = FirstLayer
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.0
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = ()  # only the label rests on one

    def check(self, observation: Observation) -> None:
        self.problem(observation, ())

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> FirstLayer:  # noqa: ARG002
        layer, affine = first_layer_of(observation, "linear")
        gradient = observed_gradient(observation)
        if f"{layer}.weight" not in gradient:
            raise NotApplicable(f"linear needs the gradient of {layer!r}, which is frozen or not shared; use dlg")
        if f"{layer}.bias" not in gradient:
            why = "without it the input is known only up to scale"
            raise NotApplicable(f"linear needs a bias in {layer!r}: {why}; use dlg")
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]
        return FirstLayer(observation, layer, affine, gradient, weight, bias)

    def solve(self, problem: FirstLayer, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        observation, gradient = problem.observation, problem.gradient
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        rows = _rows(problem, samples)  # (T, N, in)
        label = one_label(observation) if samples == 1 else None
        scale, shift = problem.affine
        if problem.fit_scale and label is not None:
            local = observation.fact(Fact.LOCAL_TRAINING)
            worker, loss = working_model(observation.model, local.batchnorm), loss_of(local)
            factor = best_factor(worker, dict(gradient), rows[:, 0], problem.affine, data.shape, label, loss)
            rows = rows * factor[:, None, None]
        inputs = ((rows - shift) / scale).reshape(len(rows), samples, *data.shape)
        inputs = inputs if problem.undo is None else problem.undo(inputs)
        # Own objective: how badly bias x first record explains the weight gradient, relative to its size.
        unexplained = problem.weight - problem.bias[..., None] * rows[:, :1]
        misfit = (unexplained**2).flatten(1).sum(1) / (problem.weight**2).flatten(1).sum(1).clamp_min(_TINY)
        return without_search(began, inputs, None if label is None else label[:, None], misfit)


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


def input_of_parallel_rows(weight: Tensor, bias: Tensor) -> Tensor:
    """(T, out, in), (T, out) -> the layer's input (T, in), up to whatever noise the parallel rows have.

    For one sample every clean row of the gradient is a multiple of the input, whatever its size. Noise points a row
    elsewhere, and no two noised rows to the same place: the rows that agree are the clean ones, and need no weighing.
    A bias entry may be noised where its row is clean: the ratio is the median over the rows.
    """
    rows, biases = weight.double(), bias.double()  # in single precision angles below 3e-4 look like none
    lengths = rows.norm(dim=2)
    live = lengths > 0
    unit = rows / lengths.clamp_min(_TINY)[..., None]
    inner = unit @ unit.transpose(1, 2)  # (T, out, out) cosines
    apart = (2 - 2 * inner.abs()).clamp_min(0)  # squared angle
    apart = torch.where(live[:, None] & live[..., None], apart, torch.inf)
    apart.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    wanted = (live.sum(1) // _AGREEING).clamp_min(1) - 1  # (T,) how many must agree, less one
    near = apart.sort(2).values.gather(2, wanted[:, None, None].expand(-1, apart.shape[1], 1))[..., 0]
    reach, best = near.min(1)  # the row that its neighbours agree with most closely
    reference = best[:, None, None]
    among = apart.gather(1, reference.expand(-1, 1, apart.shape[2]))[:, 0] <= _SLACK * reach[:, None]
    among.scatter_(1, best[:, None], True)
    cosine = inner.gather(1, reference.expand(-1, 1, inner.shape[2]))[:, 0]
    signed = torch.where(among, lengths * cosine.sign(), 0.0)
    direction = torch.einsum("to,toi->ti", signed, rows)
    direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(_TINY)
    along = torch.einsum("toi,ti->to", rows, direction)
    ratios = torch.where(among, biases / torch.where(along == 0, _TINY, along), torch.nan)
    scale = ratios.nanmedian(1).values
    found: Tensor = direction / torch.where(scale == 0, _TINY, scale)[:, None]
    return found.to(weight.dtype)


def best_factor(
    model: nn.Module,
    observed: dict[str, Tensor],  # name -> (T, *parameter)
    directions: Tensor,  # (T, d), what enters the first layer, up to a positive factor
    affine: tuple[Tensor, Tensor],  # (scale, shift): it enters as scale * input + shift
    shape: tuple[int, ...],  # of an input
    labels: Tensor,  # (T,)
    loss: Loss = cross_entropy,
) -> Tensor:
    """The factor (T,) for `directions` under which the model's gradient points where the observed one does.

    If the first layer's weight and bias were clipped apart, their ratio is the input times an unknown factor. So the
    model runs on the input at many lengths, and the one whose gradient has the observed direction in every tensor is
    taken.
    """
    scale, shift = affine
    middle, width = -directions.abs().amax(1).clamp_min(_TINY).log(), _SPAN  # largest entry 1
    per_row = _COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    at_once = max(1, fitting(per_row * len(directions), directions.device))
    for _ in range(_PASSES):
        offsets = torch.linspace(-width, width, _LENGTHS).to(directions)
        tried = (middle[:, None] + offsets).exp()  # (T, K)
        costs = []
        for begin in range(0, _LENGTHS, at_once):
            some = tried[:, begin : begin + at_once]
            entering = directions[:, None] * some[..., None]  # (T, K, d)
            inputs = ((entering - shift) / scale).reshape(-1, 1, *shape)
            targets = labels.repeat_interleave(some.shape[1])[:, None]
            mine = {n: g.detach() for n, g in trial_gradients(model, inputs, targets, loss_of=loss).items()}
            theirs = {n: g.repeat_interleave(some.shape[1], 0) for n, g in observed.items()}
            costs.append(gradient_distance(mine, theirs, "cosine-each").view_as(some))
        best = torch.cat(costs, 1).argmin(1)
        middle = middle + offsets[best]
        width = 2 * width / (_LENGTHS - 1)
    return middle.exp()

"""The length of an input whose direction is known, found by what the rest of the network does with it.

If the first layer's weight and bias were clipped apart, their ratio is the input times an unknown factor. One number is
missing, so it is searched for: the model runs on the input at many lengths, and the one whose gradient has the observed
direction in every tensor is taken.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import trial_gradients
from leakgauge.engine.memory import fitting
from leakgauge.matching.distance import gradient_distance

_LENGTHS = 48  # tried in each pass
_SPAN = math.log(50.0)  # the first pass tries factors that make the largest entry 1/50 to 50
_PASSES = 4  # each looks between the neighbours of the last one's best
_COPIES = 6  # of a gradient, besides what autograd keeps


def best_factor(
    model: nn.Module,
    observed: dict[str, Tensor],  # name -> (T, *parameter)
    directions: Tensor,  # (T, d), what enters the first layer, up to a positive factor
    affine: tuple[Tensor, Tensor],  # (scale, shift): it enters as scale * input + shift
    shape: tuple[int, ...],  # of an input
    labels: Tensor,  # (T,)
) -> Tensor:
    """The factor (T,) for `directions` under which the model's gradient points where the observed one does."""
    scale, shift = affine
    trials = len(directions)
    reach = directions.abs().amax(1).clamp_min(1e-30)
    middle = reach.reciprocal().log()  # largest entry 1
    width = _SPAN
    per_row = _COPIES * sum(p.numel() * p.element_size() for p in model.parameters())
    at_once = max(1, fitting(per_row * trials, directions.device))
    for _ in range(_PASSES):
        offsets = torch.linspace(-width, width, _LENGTHS).to(directions)
        tried = (middle[:, None] + offsets).exp()  # (T, K)
        costs = []
        for begin in range(0, _LENGTHS, at_once):
            some = tried[:, begin : begin + at_once]
            entering = directions[:, None] * some[..., None]  # (T, K, d)
            inputs = ((entering - shift) / scale).reshape(-1, 1, *shape)
            targets = labels.repeat_interleave(some.shape[1])[:, None]
            mine = {n: g.detach() for n, g in trial_gradients(model, inputs, targets).items()}
            theirs = {n: g.repeat_interleave(some.shape[1], 0) for n, g in observed.items()}
            costs.append(gradient_distance(mine, theirs, "cosine-each").view_as(some))
        best = torch.cat(costs, 1).argmin(1)
        middle = middle + offsets[best]
        width = 2 * width / (_LENGTHS - 1)
    return middle.exp()

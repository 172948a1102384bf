"""From how weights moved to the gradient behind it, by the optimiser that moved them, and how good that is.

SGD's rule is linear in the gradients, also with momentum, decay, a schedule and FedProx: with the same gradient in
every step the weights would move by `pulled + scale * gradient`. Both are found by running the rule, once without any
gradient and once on a single number. For one step the gradient is exact; for several it is their average, weighed as
the rule weighs them.

Adam, AdamW, RMSprop and Adagrad divide every entry by its own size. After one step an entry is gradient / (|gradient| +
eps) times the rate, so its sign is left and, where it is not far above eps, its size; after several steps it is the
average of signs that are the nearer to 1 the less the gradient changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.engine.optimizers import Optimizer, local_plan
from leakgauge.types import Client

EXACT, AVERAGE, SIGNS, DIRECTIONS = "exact", "average", "signs", "directions"
_RESOLVED = 1e3  # an entry's distance from its largest possible value, in roundings, from which its size is read off
_MOSTLY = 0.5  # of the entries


@dataclass(frozen=True)
class GradientBehind:
    """What a weight difference says of the client's gradients."""

    tensors: Mapping[str, Tensor]  # name -> (T, *parameter), in the size of a gradient where that is known
    quality: str  # EXACT, AVERAGE (of the steps), SIGNS (of one step) or DIRECTIONS (signs, averaged over steps)


def gradient_behind(
    moved: Mapping[str, Tensor], start: Mapping[str, Tensor], local: Client, samples: int
) -> GradientBehind:
    """The gradient behind a weight difference (T, *parameter) from `start` (*parameter)."""
    steps = len(local_plan(samples, local))
    if local.adaptive:
        return _behind_signs(moved, start, local, samples, steps)
    scale = float(_moved(torch.zeros(()), torch.ones(()), local, samples))
    tensors = {n: (t - pulled_by_decay(start[n].to(t), local, samples).to(t)) / scale for n, t in moved.items()}
    return GradientBehind(tensors, EXACT if steps == 1 and not local.clip else AVERAGE)


def _behind_signs(
    moved: Mapping[str, Tensor], start: Mapping[str, Tensor], local: Client, samples: int, steps: int
) -> GradientBehind:
    """In units of the rate, from about -1 to 1; in those of the gradient where one step's eps lets them be read."""
    largest = -float(_moved(torch.zeros(()), torch.full((), 1e30), local, samples))  # of any entry
    tensors = {n: -(t - pulled_by_decay(start[n].to(t), local, samples).to(t)) / largest for n, t in moved.items()}
    if steps > 1:
        return GradientBehind(tensors, DIRECTIONS)
    some = torch.cat([t.flatten() for t in tensors.values()])
    some = some[some != 0]  # behind dead units there is nothing to read
    coarse = max(float(p.abs().max()) for p in start.values()) * torch.finfo(some.dtype).eps / largest
    left = 1 - some.abs()
    if (
        not len(left)
        or float((left > _RESOLVED * coarse).double().mean()) < _MOSTLY
        or (local.weight_decay and local.optimizer != "adamw")
    ):
        return GradientBehind(tensors, SIGNS)
    eps = Optimizer(local).eps
    sizes = {n: eps * t / (1 - t.abs()).clamp_min(coarse) for n, t in tensors.items()}
    shrunk = {"rmsprop": (1 - local.alpha) ** 0.5}.get(local.optimizer, 1.0)  # the root of what squares begin with
    return GradientBehind({n: t / shrunk for n, t in sizes.items()}, EXACT)


def pulled_by_decay(start: Tensor, local: Client, samples: int) -> Tensor:
    """How decay alone moves the weights (*parameter)."""
    if not local.weight_decay or (local.adaptive and local.optimizer != "adamw"):
        return torch.zeros_like(start)
    return _moved(start, torch.zeros_like(start), local, samples)


def _moved(start: Tensor, gradient: Tensor, local: Client, samples: int) -> Tensor:
    """How the rule moves a weight in all local steps, given the same gradient in each. Double precision."""
    rule, begun, same = Optimizer(local), start.double()[None], gradient.double()[None]
    weights, memory = {"": begun}, dict[str, Tensor]()
    for number, step in enumerate(local_plan(samples, local)):
        pull = local.proximal * (weights[""] - begun)
        slope = same * len(step.parts) / step.accumulated + pull
        weights, memory = rule(weights, {"": slope}, memory, number + 1, step.lr)
    return (weights[""] - begun)[0]

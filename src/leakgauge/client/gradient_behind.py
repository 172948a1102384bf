"""From how weights moved to the gradient behind it, by the optimiser that moved them, and how good that is.

SGD's rule is linear in the gradients, also with momentum, decay, a schedule and FedProx: with the same gradient in
every step the weights would move by `pulled + scale * gradient`. Both are found by running the rule, once without any
gradient and once on a single number. For one step the gradient is exact; for several it is their average, weighed as
the rule weighs them.

Adam, AdamW, RMSprop and Adagrad divide every entry by its own size. After one step an entry is gradient / (|gradient| +
eps) times the rate. Its sign is left and, as far as the weight's own rounding lets its distance from the rate be told,
its size: from below and above for small entries, from below alone for large ones. The smaller a weight and the larger
the rate, the more sizes can be read. After several steps an entry is the average of signs that are the nearer to 1 the
less the gradient changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.client.fedavg import control_of
from leakgauge.engine.optimizers import Optimizer, local_plan
from leakgauge.errors import NotApplicable
from leakgauge.types import Client

EXACT, AVERAGE, SIGNS, DIRECTIONS = "exact", "average", "signs", "directions"
_RESOLVED = 1e3  # an entry's distance from its largest possible value, in roundings, from which its size is exact
_MOSTLY = 0.999  # of the entries
_OF_WEIGHTS, _OF_RULE = 1.0, 8.0  # roundings that a weight, and the rule on its way to a step, may be off


# (name, entries of `tensors` (A, *parameter) with that name) -> the least and the largest that their gradients may be
Bounds = Callable[[str, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class GradientBehind:
    """What a weight difference says of the client's gradients."""

    tensors: Mapping[str, Tensor]  # name -> (T, *parameter), in the size of a gradient where that is known
    quality: str  # EXACT, AVERAGE (of the steps), SIGNS (of one step) or DIRECTIONS (signs, averaged over steps)
    cells: Bounds | None = None  # where sizes of one step can be told


def gradient_behind(
    moved: Mapping[str, Tensor], start: Mapping[str, Tensor], local: Client, samples: int
) -> GradientBehind:
    """The gradient behind a weight difference (T, *parameter) from `start` (*parameter)."""
    steps = len(local_plan(samples, local))
    known = control_of(local, start) or {}
    if local.adaptive:
        return _behind_signs(moved, start, known, local, samples, steps)
    scale = gradient_scale(local, samples)
    tensors = {n: (t - pulled_by_decay(start[n].to(t), local, samples).to(t)) / scale for n, t in moved.items()}
    tensors = {n: t - known[n].to(t) if n in known else t for n, t in tensors.items()}
    return GradientBehind(tensors, EXACT if steps == 1 and not local.clip else AVERAGE)


def gradient_scale(local: Client, samples: int) -> float:
    """How far a weight moves for each unit of a gradient that is the same in all local steps; below 0.

    Refused of rules that divide by sizes: there is no such number.
    """
    if local.adaptive:
        why = f"{local.optimizer} moves weights by signs of gradients, whatever their size"
        raise NotApplicable(f"this needs the gradient's size in a weight difference; {why}")
    return float(_moved(torch.zeros(()), torch.ones(()), local, samples))


def step_scales(local: Client, samples: int) -> list[float]:
    """How far a weight moves for a unit of each local step's gradient alone; they add up to `gradient_scale`."""
    gradient_scale(local, samples)  # refused where there is none
    steps = len(local_plan(samples, local))
    return [float(moved) for moved in _moved(torch.zeros(steps), torch.eye(steps), local, samples)]


def _behind_signs(
    moved: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    known: Mapping[str, Tensor],
    local: Client,
    samples: int,
    steps: int,
) -> GradientBehind:
    """In units of the rate, from about -1 to 1; in those of the gradient where one step's eps lets them be read."""
    largest = -float(_moved(torch.zeros(()), torch.full((), 1e30), local, samples))  # of any entry
    tensors = {n: -(t - pulled_by_decay(start[n].to(t), local, samples).to(t)) / largest for n, t in moved.items()}
    if steps > 1:
        return GradientBehind(tensors, DIRECTIONS)
    doubt = {n: _doubt(t, start[n].to(t), largest, local) for n, t in tensors.items()}
    sizes, doubts = (torch.cat([t.abs().flatten() for t in named.values()]) for named in (tensors, doubt))
    if local.clip or bool((sizes > 1 + doubts).any()):  # lengths are lost, or something else acted on the update
        return GradientBehind(tensors, SIGNS)
    # A gradient becomes gradient / (|gradient| + eps), with eps in the unit that the squares begin with.
    eps = Optimizer(local).eps / {"rmsprop": (1 - local.alpha) ** 0.5}.get(local.optimizer, 1.0)

    def before_rule(name: str, gradient: Tensor) -> Tensor:
        """Without what was added to the gradient before the rule saw it."""
        if local.weight_decay and local.optimizer != "adamw":
            gradient = gradient - local.weight_decay * start[name].to(gradient)
        return gradient - known[name].to(gradient) if name in known else gradient

    def bounds(name: str, entries: Tensor) -> tuple[Tensor, Tensor]:
        off, tiny = _doubt(entries, start[name].to(entries), largest, local), torch.finfo(entries.dtype).eps
        low, high = (e.clamp(tiny - 1, 1 - tiny) for e in (entries - off, entries + off))
        least = (eps * low / (1 - low.abs())).where(entries - off > -1, -torch.inf)
        most = (eps * high / (1 - high.abs())).where(entries + off < 1, torch.inf)
        return before_rule(name, least), before_rule(name, most)

    held = sizes > 0  # behind dead units there is nothing to read
    if not bool(held.any()) or float((1 - sizes > _RESOLVED * doubts)[held].double().mean()) < _MOSTLY:
        return GradientBehind(tensors, SIGNS, bounds)
    exact = {n: before_rule(n, eps * t / (1 - t.abs()).clamp_min(doubt[n])) for n, t in tensors.items()}
    return GradientBehind(exact, EXACT)


def _doubt(entries: Tensor, start: Tensor, largest: float, local: Client) -> Tensor:
    """How far entries (T, *parameter), in units of the rate, may be off by rounding."""
    digits = torch.finfo(entries.dtype).eps
    own = digits if local.shared_as == "float32" else torch.finfo(getattr(torch, local.shared_as)).eps
    of_weights = (start.abs() + largest) * digits / largest
    return (_OF_WEIGHTS * of_weights + own * entries.abs() + _OF_RULE * digits).expand_as(entries)


def pulled_by_decay(start: Tensor, local: Client, samples: int) -> Tensor:
    """How decay alone moves the weights (*parameter)."""
    if not local.weight_decay or (local.adaptive and local.optimizer != "adamw"):
        return torch.zeros_like(start)
    return _moved(start, torch.zeros_like(start), local, samples)


def _moved(start: Tensor, gradient: Tensor, local: Client, samples: int) -> Tensor:
    """How the rule moves weights (*parameter) in all local steps, in double precision.

    `gradient` is the same in each step (*parameter), or one for each (steps, *parameter).
    """
    rule, begun = Optimizer(local), start.double()[None]
    each = gradient.double()[:, None] if gradient.dim() > start.dim() else None
    weights, memory = {"": begun}, dict[str, Tensor]()
    for number, step in enumerate(local_plan(samples, local)):
        pull = local.proximal * (weights[""] - begun)
        own = gradient.double()[None] if each is None else each[number]
        slope = own * len(step.parts) / step.accumulated + pull
        weights, memory = rule(weights, {"": slope}, memory, number + 1, step.lr)
    return (weights[""] - begun)[0]

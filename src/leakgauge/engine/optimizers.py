"""The optimisers that clients train with, as `torch.optim` computes them: for T trials at once, and differentiable.

Everything here maps name -> (T, *parameter). `torch.optim` itself is the slow oracle (see the tests).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.types import Client

Tensors = Mapping[str, Tensor]
_TINY = 1e-36  # added under a root, whose slope at zero is infinite; its own root is far below every eps


@dataclass(frozen=True)
class LocalStep:
    """One step of the optimiser: which samples of an epoch's order it sees, and at what rate."""

    epoch: int
    parts: tuple[slice, ...]  # the mini-batches whose gradients are averaged
    lr: float
    accumulated: int  # by how many mini-batches their sum is divided


def local_plan(samples: int, local: Client) -> list[LocalStep]:
    """All local steps of a client with so many samples, in order."""
    size = min(local.batch_size or samples, samples)
    parts = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    if local.drop_last and samples % size:
        parts.pop()
    groups = [tuple(parts[i : i + local.accumulate]) for i in range(0, len(parts), local.accumulate)]
    total = local.epochs * len(groups)
    return [
        LocalStep(epoch, group, rate_of(local, epoch * len(groups) + i, total), local.accumulate)
        for epoch in range(local.epochs)
        for i, group in enumerate(groups)
    ]


def rate_of(local: Client, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`, from 0."""
    if local.schedule == "linear":
        return local.lr * (1 - step / steps)
    if local.schedule == "cosine":
        return local.lr * (1 + math.cos(math.pi * step / steps)) / 2
    if local.schedule == "step":
        return local.lr * local.decay_by ** (step // local.decay_every)
    return local.lr * local.decay_by**step if local.schedule == "exponential" else local.lr


@dataclass(frozen=True)
class Optimizer:
    """A client's update rule with its settings; what it remembers is handed in and out."""

    local: Client

    def __call__(
        self, weights: Tensors, gradients: Tensors, memory: Tensors, number: int, lr: float
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weights after step `number` (from 1) at rate `lr`, and what the rule remembers then."""
        moved: Memory = {}
        kept: Memory = {}
        rule = _RULES[self.local.optimizer]
        for name, weight in weights.items():
            own = {key: memory[f"{key}/{name}"] for key in _MEMORY if f"{key}/{name}" in memory}
            moved[name], after = rule(self, weight, gradients[name], own, number, lr)
            kept |= {f"{key}/{name}": value for key, value in after.items()}
        return moved, kept

    @property
    def eps(self) -> float:
        return self.local.eps or (1e-10 if self.local.optimizer == "adagrad" else 1e-8)

    def root(self, squares: Tensor) -> Tensor:
        """Of (T, *parameter): what a gradient is divided by."""
        return squares.clamp_min(_TINY).sqrt() + self.eps


Memory = dict[str, Tensor]
Moved = tuple[Tensor, Memory]  # a weight and what is remembered of it
_MEMORY = ("momentum", "squares")


def _sgd(
    rule: Optimizer, weight: Tensor, gradient: Tensor, memory: Memory, number: int, lr: float
) -> tuple[Tensor, Memory]:
    local = rule.local
    if not local.momentum:
        direction = gradient + local.weight_decay * weight if local.weight_decay else gradient
        return weight - lr * direction, {}
    direction = torch.add(gradient, weight, alpha=local.weight_decay) if local.weight_decay else gradient
    velocity = direction  # below every sum is one pass over memory, of which a step has little else
    if number > 1:
        fresh = (1 - local.dampening) * direction if local.dampening else direction
        velocity = torch.add(fresh, memory["momentum"], alpha=local.momentum)
    step = torch.add(direction, velocity, alpha=local.momentum) if local.nesterov else velocity
    return torch.sub(weight, step, alpha=lr), {"momentum": velocity}


def _adam(
    rule: Optimizer, weight: Tensor, gradient: Tensor, memory: Memory, number: int, lr: float
) -> tuple[Tensor, Memory]:
    local = rule.local
    if local.optimizer == "adamw":
        weight = weight * (1 - lr * local.weight_decay)
    elif local.weight_decay:
        gradient = gradient + local.weight_decay * weight
    if number > 1:
        mean = torch.lerp(memory["momentum"], gradient, 1 - local.beta1)
        squares = torch.addcmul(local.beta2 * memory["squares"], gradient, gradient, value=1 - local.beta2)
    else:
        mean, squares = (1 - local.beta1) * gradient, (1 - local.beta2) * gradient.square()
    under = rule.root(squares / (1 - local.beta2**number))
    return torch.addcdiv(weight, mean, under, value=-lr / (1 - local.beta1**number)), {
        "momentum": mean,
        "squares": squares,
    }


def _rmsprop(
    rule: Optimizer, weight: Tensor, gradient: Tensor, memory: Memory, number: int, lr: float
) -> tuple[Tensor, Memory]:
    local = rule.local
    gradient = gradient + local.weight_decay * weight if local.weight_decay else gradient
    squares = (1 - local.alpha) * gradient.square()
    if number > 1:
        squares = squares + local.alpha * memory["squares"]
    step = gradient / rule.root(squares)
    if not local.momentum:
        return weight - lr * step, {"squares": squares}
    velocity = step if number == 1 else local.momentum * memory["momentum"] + step
    return weight - lr * velocity, {"squares": squares, "momentum": velocity}


def _adagrad(
    rule: Optimizer, weight: Tensor, gradient: Tensor, memory: Memory, number: int, lr: float
) -> tuple[Tensor, Memory]:
    gradient = gradient + rule.local.weight_decay * weight if rule.local.weight_decay else gradient
    squares = gradient.square() + memory["squares"] if number > 1 else gradient.square()
    return weight - lr * gradient / rule.root(squares), {"squares": squares}


_RULES: Mapping[str, Callable[..., Moved]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
}


def clipped(gradients: Tensors, norm: float) -> dict[str, Tensor]:
    """Each trial's gradient shortened as `clip_grad_norm_` does it: over all tensors together."""
    total = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)
    factor = (norm / (total.clamp_min(_TINY).sqrt() + 1e-6)).clamp(max=1.0)  # (T,)
    return {n: g * factor.view(-1, *[1] * (g.dim() - 1)) for n, g in gradients.items()}


def torch_optimizer(local: Client, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The same rule as torch has it, for loops over single clients."""
    decay, eps = local.weight_decay, Optimizer(local).eps
    if local.optimizer == "sgd":
        momentum = (local.momentum, local.dampening)
        return torch.optim.SGD(parameters, local.lr, *momentum, weight_decay=decay, nesterov=local.nesterov)
    if local.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, local.lr, local.alpha, eps, decay, local.momentum)
    if local.optimizer == "adagrad":
        return torch.optim.Adagrad(parameters, local.lr, weight_decay=decay, eps=eps)
    kind = torch.optim.AdamW if local.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, local.lr, (local.beta1, local.beta2), eps, decay)

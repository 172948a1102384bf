"""A long path in little memory: each step keeps only where it began, and is computed again when slopes are wanted.

`torch.utils.checkpoint` does not take a step that differentiates inside itself; this does. Slopes are of first order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from leakgauge.types import Batch

Tensors = dict[str, Tensor]


def checkpointed(
    step: Callable[[Tensors, Tensors, Batch], tuple[Tensors, Tensors]], weights: Tensors, memory: Tensors, seen: Batch
) -> tuple[Tensors, Tensors]:
    """`step(weights, memory, seen)`, whose graph is not kept."""
    names: list[list[str]] = []

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        split = len(weights), len(weights) + len(memory)
        own = dict(zip(weights, tensors[: split[0]], strict=True))
        kept = dict(zip(memory, tensors[split[0] : split[1]], strict=True))
        moved, after = step(own, kept, Batch(*tensors[split[1] :]))
        names[:] = [list(moved), list(after)]
        return (*moved.values(), *after.values())

    found = _Step.apply(  # type: ignore[no-untyped-call]
        flat, *weights.values(), *memory.values(), seen.inputs, seen.labels
    )
    count = len(names[0])
    return dict(zip(names[0], found[:count], strict=True)), dict(zip(names[1], found[count:], strict=True))


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return tuple(t.detach() for t in function(*tensors))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        with torch.enable_grad():
            again = [t.detach().requires_grad_(w) for t, w in zip(ctx.saved_tensors, wanted, strict=True)]
            outputs = ctx.function(*again)
            moving = [(o, s) for o, s in zip(outputs, slopes, strict=True) if o.requires_grad]
            inputs = [t for t, w in zip(again, wanted, strict=True) if w]
            found = iter(torch.autograd.grad([o for o, _ in moving], inputs, [s for _, s in moving], allow_unused=True))
        return (None, *(next(found) if w else None for w in wanted))

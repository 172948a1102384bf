"""Facts about a model that attacks need, found by watching one forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class _Watched:
    """What one forward pass showed, in execution order."""

    started: list[str]  # modules with parameters of their own
    inputs: dict[str, Tensor]  # name of an nn.Linear -> its last input
    outputs: dict[str, Tensor]  # name of an nn.Linear -> its last output
    logits: Tensor


def first_linear(model: nn.Module, example: Tensor) -> str | None:
    """The nn.Linear that sees the raw input: flattened, at most scaled and shifted by constants.

    `example` is (1, *shape). None if anything with parameters runs before it, if it runs twice (its gradient
    is then a sum over both), or if its input is a mixture or a non-linear function of the pixels.
    """
    found = _first_linear(model, example)
    return found[0] if found else None


def input_affine(model: nn.Module, example: Tensor) -> tuple[Tensor, Tensor] | None:
    """(scale, shift), both (d,), of the first linear layer's input: z = scale * x.flatten() + shift.

    So an attack that recovers z has x = (z - shift) / scale. None where `first_linear` gives None.
    """
    found = _first_linear(model, example)
    return found[1:] if found else None


def last_linear(model: nn.Module, example: Tensor) -> str | None:
    """The nn.Linear that outputs the logits. `example` is (1, *shape).

    A shift that is the same for all classes, as of log_softmax, is allowed: cross-entropy does not see it.
    """
    with _still(model), torch.no_grad():
        watched = _watch(model, example.detach())
    name = watched.started[-1] if watched.started else ""
    output = watched.outputs.get(name)
    if output is None or watched.started.count(name) != 1 or output.shape != watched.logits.shape:
        return None
    shift = watched.logits - output  # (1, C)
    return name if torch.allclose(shift, shift[:, :1].expand_as(shift), atol=1e-5) else None


def last_listed_linear(model: nn.Module) -> str | None:
    """The last nn.Linear in the order in which the model lists its modules, without running it; "" if it is one."""
    found = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return found[-1] if found else None


def _first_linear(model: nn.Module, example: Tensor) -> tuple[str, Tensor, Tensor] | None:
    x = example[:1].detach()  # one sample shows it all
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    with _still(model), torch.enable_grad():
        here, there = _input_slope(model, x), _input_slope(model, noise)
    if here is None or there is None:
        return None
    name, z, slope = here
    # The slope of an affine map is the same everywhere; a non-linear one differs between the two points.
    if not torch.allclose(slope, there[2], rtol=1e-4) or not bool((slope != 0).all()):
        return None
    return name, slope, z - slope * x.flatten()


def _input_slope(model: nn.Module, x: Tensor) -> tuple[str, Tensor, Tensor] | None:
    """(name, z, dz/dx) if the first linear layer's input z depends on x entry by entry, else None."""
    x = x.clone().requires_grad_(True)
    watched = _watch(model, x)
    name = watched.started[0] if watched.started else ""
    z = watched.inputs.get(name)
    if z is None or watched.started.count(name) != 1 or z.numel() != x.numel() or not z.requires_grad:
        return None
    # With J = dz/dx: J^T 1 is J's diagonal if J is diagonal, and then J^T v is the diagonal times any v.
    v = torch.rand(z.shape, generator=torch.Generator().manual_seed(1)).to(z) + 0.5
    (diagonal,) = torch.autograd.grad(z, x, torch.ones_like(z), retain_graph=True, materialize_grads=True)
    (product,) = torch.autograd.grad(z, x, v, materialize_grads=True)
    slope = diagonal.flatten()
    if not torch.allclose(product.flatten(), slope * v.flatten(), rtol=1e-4):
        return None
    return name, z.detach().flatten(), slope


def _watch(model: nn.Module, x: Tensor) -> _Watched:
    started: list[str] = []
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def before(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        started.append(name)
        if isinstance(module, nn.Linear) and args:
            inputs[name] = args[0]

    def after(name: str, module: nn.Module, _: tuple[Any, ...], out: Any) -> None:
        if isinstance(module, nn.Linear):
            outputs[name] = out

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                hooks.enter_context(module.register_forward_pre_hook(partial(before, name)))
                hooks.enter_context(module.register_forward_hook(partial(after, name)))
        return _Watched(started, inputs, outputs, model(x))


@contextmanager
def _still(model: nn.Module) -> Iterator[None]:
    """Eval mode for a look (no dropout, BatchNorm untouched), then every module's own mode again."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def has_kinks(model: nn.Module, example: Tensor) -> bool:
    """Is the model piecewise smooth only (ReLU and its like, max-pooling)? `example` is (1, *shape)."""
    with torch.enable_grad():
        logits = model(example.detach().requires_grad_())
    seen, waiting = set(), [logits.grad_fn]
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            waiting += [before for before, _ in step.next_functions]
    kinks = ("Relu", "MaxPool", "Hardtanh", "Threshold", "AbsBackward")
    return any(kink in step.name() for step in seen for kink in kinks)

"""Which way the trials of a model run, found by trying: layer by layer, side by side, or one after another.

A model of the user's own may hold a layer that cannot run side by side: it branches on data, changes things in place or
mixes the samples of different clients, or its gradient may be right side by side and the derivative of that gradient,
which every search follows, wrong. Such a layer is named, and the trials run one after another instead: slower, never
wrong. Only a layer that cannot be differentiated twice stops an attack, and it is named too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from leakgauge.engine.batchnorm import has_batchnorm
from leakgauge.engine.gradients import one_by_one, run_one_by_one, runs_one_by_one, trial_gradients, working_model
from leakgauge.engine.layerwise import has_convolution, without_rule
from leakgauge.engine.losses import Loss, cross_entropy
from leakgauge.errors import BadInput
from leakgauge.types import ONE_CLASS, DataSpec

_TRIALS = 3
_ALIKE = 1e-3  # relative; rounding is far below, mixed trials far above
_SAME_SLOPE = {torch.float64: 1e-5}  # relative, of second derivatives in double precision; in any other:
_ROUGHLY = 1e-2
_SMALL = 1e-3  # a gradient this much smaller than the largest is not made to count more: it may be rounding alone

Gradients = Callable[[Tensor], Mapping[str, Tensor]]


class _LayerFailed(Exception):
    """Why a pass failed, in one line, and the path of the layer it was in."""

    def __init__(self, path: str, error: RuntimeError) -> None:
        super().__init__(str(error).strip().partition("\n")[0][:200] or type(error).__name__)
        self.path = path


def choose_way(model: nn.Module, data: DataSpec) -> str:
    """Try the model on samples of this shape; says in one line how its trials will run, and why."""
    inputs, targets = _samples(model, (_TRIALS, 1), data, seed=0)
    loss = cross_entropy if data.target == ONE_CLASS else _size
    worker = working_model(model, "eval")
    expected = _gradients_that_can_be_followed(worker, inputs, targets, loss)
    why = _wrong_gradient(worker, inputs, targets, loss, expected)
    if why is None and not runs_one_by_one(worker):
        why = _wrong_slope(model, data, loss)
    if why is None:
        return usual_way(model)
    run_one_by_one(model)
    return f"one after another, because {why}"


def _size(output: Tensor, _: Tensor) -> Tensor:
    """Stands for a loss whose targets are no classes."""
    return output.square().mean()


def usual_way(model: nn.Module) -> str:
    """How the trials of a model run that is known to work."""
    on_cpu = next(model.parameters()).device.type == "cpu"
    if not has_convolution(model, wide=on_cpu):
        return "side by side"
    if on_cpu:
        return "one after another: wide convolutions fill the cores by themselves"
    missing = without_rule(model)
    return f"side by side, because {missing[0]} has no rule of its own" if missing else "layer by layer"


def _samples(model: nn.Module, batch: tuple[int, int], data: DataSpec, seed: int) -> tuple[Tensor, Tensor]:
    like, g = next(model.parameters()), torch.Generator().manual_seed(seed)
    inputs = torch.rand(*batch, *data.shape, generator=g).to(like)
    return inputs, torch.randint(data.classes, batch, generator=g).to(like.device)


def _wrong_gradient(
    worker: nn.Module, inputs: Tensor, targets: Tensor, loss: Loss, expected: Mapping[str, Tensor]
) -> str | None:
    """What makes the gradients differ from those of the plain loop; None if they agree."""
    try:
        with _watched(worker):
            found = trial_gradients(worker, inputs, targets, loss_of=loss)
    except _LayerFailed as error:
        return f"{_named(worker, error.path)} cannot run side by side: {error}"
    for name, slow in expected.items():
        if float((found[name] - slow).detach().abs().max()) > _ALIKE * float(slow.detach().abs().max()) + 1e-6:
            return f"the gradient of {name!r} would mix the samples of different clients"
    return None


def _wrong_slope(model: nn.Module, data: DataSpec, loss: Loss) -> str | None:
    """What makes the derivatives of the gradients differ from those of the plain loop; None if they agree.

    In double precision if the model can be had in it, and in train mode too where that is another function.
    """
    inputs, targets = _samples(model, (2, 2), data, seed=1)  # two samples: the batch has a spread
    for batchnorm in ("eval", "train") if has_batchnorm(model) else ("eval",):
        for dtype in dict.fromkeys((torch.float64, inputs.dtype)):
            worker, x = working_model(model, batchnorm).to(dtype), inputs.to(dtype)
            try:
                expected = second_derivatives(partial(one_by_one, worker, targets=targets, loss_of=loss), x)
            except RuntimeError:
                continue  # it cannot be had in this type, or no client trains it in this mode
            try:
                with _watched(worker):
                    found = second_derivatives(partial(trial_gradients, worker, targets=targets, loss_of=loss), x)
            except _LayerFailed as error:
                return f"{_named(worker, error.path)} cannot be differentiated twice side by side: {error}"
            if float((found - expected).norm()) > _SAME_SLOPE.get(dtype, _ROUGHLY) * float(expected.norm()):
                return "the derivatives of its gradients, which a search follows, would be wrong side by side"
            break
    return None


def second_derivatives(gradients: Gradients, inputs: Tensor) -> Tensor:
    """The derivative in the inputs (T, N, ...) of one fixed combination of the gradients, to which each adds alike."""
    x = inputs.clone().requires_grad_()
    found = list(gradients(x).values())
    sizes = torch.stack([gradient.detach().norm() for gradient in found])
    sizes = sizes.clamp_min(_SMALL * float(sizes.max()) + torch.finfo(sizes.dtype).tiny)
    g = torch.Generator().manual_seed(2)
    weights = [torch.randn(gradient.shape, generator=g, dtype=torch.float64).to(gradient) for gradient in found]
    total = torch.stack([(w * gradient).sum() / size for w, gradient, size in zip(weights, found, sizes, strict=True)])
    if not total.requires_grad:
        return torch.zeros_like(x)
    (slope,) = torch.autograd.grad(total.sum(), x, materialize_grads=True)
    return slope


def _gradients_that_can_be_followed(
    worker: nn.Module, inputs: Tensor, targets: Tensor, loss: Loss
) -> dict[str, Tensor]:
    """The gradients of the plain loop, after making sure that they can be differentiated in the inputs."""
    x = inputs.clone().requires_grad_()
    try:
        with _watched(worker):
            found = one_by_one(worker, x, targets, loss_of=loss)
            total = torch.stack([(g**2).sum() for g in found.values()]).sum()
            torch.autograd.grad(total, x, allow_unused=True)
    except _LayerFailed as error:
        do = "write that layer with plain tensor operations"
        raise BadInput(
            "own model",
            allowed="layers that can be differentiated twice",
            got=f"{_named(worker, error.path or _cannot_twice(worker, inputs[0]))}: {error}",
            do=do + ("; or use --precision float32" if x.dtype == torch.float64 else ""),
        ) from error
    return {name: g.detach() for name, g in found.items()}


def _cannot_twice(worker: nn.Module, sample: Tensor) -> str:
    """The path of the first layer that fails when differentiated twice by itself; "" if none does."""
    entered: list[tuple[str, nn.Module, Tensor]] = []

    def note(path: str, module: nn.Module, args: tuple[object, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            entered.append((path, module, args[0].detach()))

    with ExitStack() as hooks:
        for path, module in worker.named_modules():
            if path and not list(module.children()):
                hooks.enter_context(module.register_forward_pre_hook(partial(note, path)))
        worker(sample)
    for path, module, x in entered:
        if not x.is_floating_point():
            continue
        try:
            y = module(x.requires_grad_())
            first = y if isinstance(y, Tensor) else y[0]
            (slope,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
            if slope.requires_grad:
                torch.autograd.grad(slope.pow(2).sum(), x, allow_unused=True)
        except RuntimeError:
            return path
    return ""


@contextmanager
def _watched(model: nn.Module) -> Iterator[None]:
    """An error inside becomes `_LayerFailed`, and warnings are not shown: ways that torch is slow in are only tried."""
    running: list[str] = []  # paths of the modules whose forward pass is under way

    def enter(path: str, *_: object) -> None:
        running.append(path)

    def leave(*_: object) -> None:
        running.pop()

    with ExitStack() as hooks, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path, module in model.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(partial(enter, path)))
            hooks.enter_context(module.register_forward_hook(leave))
        try:
            yield
        except RuntimeError as error:
            raise _LayerFailed(running[-1] if running else "", error) from error


def _named(model: nn.Module, path: str) -> str:
    kind = type(model.get_submodule(path)).__name__
    return f"layer {path!r} ({kind})" if path else f"the model's own forward ({kind})"

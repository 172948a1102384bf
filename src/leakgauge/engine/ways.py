"""Which way the trials of a model go, found by trying: layer by layer, side by side, or one after another.

A model of the user's own may hold a layer that cannot run side by side: it branches on data, changes things in place or
mixes the samples of different clients, or its gradient may be right side by side and the derivative of that gradient,
which every search follows, wrong. Such a layer is named, and the trials run one after another instead: slower, never
wrong. Only a layer that cannot be differentiated twice stops an attack, and it is named too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

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


def choose_way(model: nn.Module, data: DataSpec) -> str:
    """Try the model on samples of this shape; says in one line how its trials will run, and why."""
    like, loss = next(model.parameters()), cross_entropy if data.target == ONE_CLASS else _size
    g = torch.Generator().manual_seed(0)
    inputs = torch.rand(_TRIALS, 1, *data.shape, generator=g).to(like)
    targets = torch.randint(data.classes, (_TRIALS, 1), generator=g).to(like.device)
    worker = working_model(model, "eval")
    expected = _twice(worker, inputs, lambda x: one_by_one(worker, x, targets, loss_of=loss))
    with _tracking(worker) as running, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a batched way that torch is slow in: it is only tried
        try:
            found = trial_gradients(worker, inputs, targets, loss_of=loss)
        except (RuntimeError, NotImplementedError) as error:
            run_one_by_one(model)
            return f"one after another, because {_named(worker, running)} cannot run side by side: {_first_line(error)}"
    for name, slow in expected.items():
        if float((found[name] - slow).abs().max()) > _ALIKE * float(slow.abs().max()) + 1e-6:
            run_one_by_one(model)
            return f"one after another, because the gradient of {name!r} would mix the samples of different clients"
    if not runs_one_by_one(worker) and (why := _wrong_slope(model, data, loss)) is not None:
        run_one_by_one(model)
        return f"one after another, because {why}"
    return usual_way(model)


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


def _wrong_slope(model: nn.Module, data: DataSpec, loss: Loss) -> str | None:
    """What makes the derivatives of the gradients differ from those of the plain loop; None where they agree.

    In double precision if the model can be had in it, and in train mode too where that is another function.
    """
    like = next(model.parameters())
    g = torch.Generator().manual_seed(1)
    inputs = torch.rand(2, 2, *data.shape, generator=g).to(like)  # two trials of two samples: batches have a spread
    targets = torch.randint(data.classes, (2, 2), generator=g).to(like.device)
    for batchnorm in ("eval", "train") if has_batchnorm(model) else ("eval",):
        for dtype in dict.fromkeys((torch.float64, like.dtype)):
            worker, x = working_model(model, batchnorm).to(dtype), inputs.to(dtype)
            try:
                expected = second_derivatives(lambda z, w=worker: one_by_one(w, z, targets, loss_of=loss), x)  # type: ignore[misc]
            except (RuntimeError, NotImplementedError):
                continue  # it cannot be had in this type, or no client trains it in this mode
            with _tracking(worker) as running, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = second_derivatives(lambda z, w=worker: trial_gradients(w, z, targets, loss_of=loss), x)  # type: ignore[misc]
                except (RuntimeError, NotImplementedError) as error:
                    return (
                        f"{_named(worker, running)} cannot be differentiated twice side by side: {_first_line(error)}"
                    )
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


def _twice(worker: nn.Module, inputs: Tensor, gradients: Callable[[Tensor], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The gradients, after making sure that they can be differentiated in the inputs."""
    x = inputs.clone().requires_grad_()
    with _tracking(worker) as running:
        try:
            found = gradients(x)
            total = torch.stack([(g**2).sum() for g in found.values()]).sum()
            torch.autograd.grad(total, x, allow_unused=True)
        except (RuntimeError, NotImplementedError) as error:
            where = _named(worker, running or _cannot_twice(worker, inputs[0]))
            raise BadInput(
                "own model",
                allowed="layers that can be differentiated twice",
                got=f"{where}: {_first_line(error)}",
                do="write that layer with plain tensor operations"
                + ("; or use --precision float32" if x.dtype == torch.float64 else ""),
            ) from error
    return {name: g.detach() for name, g in found.items()}


def _cannot_twice(worker: nn.Module, sample: Tensor) -> list[str]:
    """The path of the first layer that fails when differentiated twice by itself; empty if none does."""
    entered: list[tuple[str, nn.Module, Tensor]] = []
    with ExitStack() as hooks:
        for path, module in worker.named_modules():
            if path and not list(module.children()):

                def note(module: nn.Module, args: tuple[object, ...], path: str = path) -> None:
                    if args and isinstance(args[0], Tensor):
                        entered.append((path, module, args[0].detach()))

                hooks.enter_context(module.register_forward_pre_hook(note))
        worker(sample)
    for path, module, x in entered:
        if x.is_floating_point():
            try:
                y = module(x.requires_grad_())
                (slope,) = torch.autograd.grad(
                    (y if isinstance(y, Tensor) else y[0]).pow(2).sum(), x, create_graph=True
                )
                if slope.requires_grad:
                    torch.autograd.grad(slope.pow(2).sum(), x, allow_unused=True)
            except (RuntimeError, NotImplementedError):
                return [path]
    return []


@contextmanager
def _tracking(model: nn.Module) -> Iterator[list[str]]:
    """Paths of the modules whose forward pass is under way; after an error the last one is where it happened."""
    running: list[str] = []
    with ExitStack() as hooks:
        for path, module in model.named_modules():

            def enter(_: nn.Module, __: object, path: str = path) -> None:
                running.append(path)

            def leave(_: nn.Module, __: object, ___: object) -> None:
                running.pop()

            hooks.enter_context(module.register_forward_pre_hook(enter))
            hooks.enter_context(module.register_forward_hook(leave))
        yield running


def _named(model: nn.Module, running: list[str]) -> str:
    path = running[-1] if running else ""
    kind = type(model.get_submodule(path)).__name__
    return f"layer {path!r} ({kind})" if path else f"the model's own forward ({kind})"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__

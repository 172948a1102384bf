"""From `--model` and `--weights` to a model that is known to run on the data."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.models._base import ModelSpec, seeded
from leakgauge.models._checkpoint import load_weights
from leakgauge.models.adapting import adapted
from leakgauge.types import ONE_CLASS, DataSpec


def load_model(spec: str, data: DataSpec, seed: int, weights: str | None = None) -> nn.Module:
    """The model that `spec` names, on the CPU, in eval mode, initialised from `seed` or from a checkpoint.

    `spec` is a zoo name with fields (`lenet-dlg:activation=relu`), or the user's own factory or module class
    (`package.module:factory`, `path/file.py:factory`, then perhaps `:key=value,...` for its arguments).
    """
    if catalog.is_own(spec):
        model = adapted(_own_model(spec, data, seed), data)
        _check_forward(spec, model, data)  # also fills in lazy layers, before a checkpoint is held against them
        freeze_unused(model, data.shape)
    else:
        model = catalog.build("models", spec).build(data, seed)
    if weights is not None:
        load_weights(model, weights)
        _check_forward(f"{spec} with weights {weights}", model, data)
    return model


def logits_of(spec: str, data: DataSpec, seed: int) -> int:
    """How many classes the user's own model tells apart on samples of this shape."""
    model = adapted(_own_model(spec, data, seed), data)
    try:
        with seeded(0), torch.no_grad():
            logits = model(torch.zeros(1, *data.shape))
    except Exception:  # said properly by the check of its forward pass
        return data.classes
    return int(logits.shape[1]) if isinstance(logits, Tensor) and logits.dim() == 2 else data.classes


def freeze_unused(model: nn.Module, shape: Sequence[int]) -> None:
    """Parameters that the logits do not depend on are no part of an update: they have no gradient."""
    named = [p for p in model.parameters() if p.requires_grad]
    if not named:
        return
    like = named[0]
    with seeded(0), torch.enable_grad():
        logits = model(torch.rand(1, *shape).to(like))
        found = torch.autograd.grad(logits.sum(), named, allow_unused=True) if logits.requires_grad else ()
    for parameter, gradient in zip(named, found, strict=False):
        parameter.requires_grad_(gradient is not None)


def parameter_count(model: nn.Module) -> int:
    """Trainable numbers in the model, as the papers' tables count them: no BatchNorm statistics."""
    return sum(p.numel() for p in model.parameters())


def _own_model(spec: str, data: DataSpec, seed: int) -> nn.Module:
    head, _, rest = spec.partition(":")
    thing, _, fields = rest.partition(":")
    with seeded(seed):  # importing a file may draw as well
        factory = catalog.own(f"{head}:{thing}")
    if inspect.isclass(factory) and issubclass(factory, ModelSpec):
        return factory.from_text(fields).build(data, seed)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise BadInput(
            f"model {spec!r}",
            allowed="a function or class that makes a model",
            got=f"an object of type {type(factory).__name__}",
            do="wrap it in a function, so that each seed gets fresh parameters",
        )
    arguments = _arguments(spec, factory, fields, data, seed)
    try:
        with seeded(seed):
            model = factory(**arguments)
    except LeakgaugeError:
        raise
    except Exception as error:
        raise BadInput(
            f"model {spec!r}",
            allowed=f"a factory that works with {arguments}",
            got=f"{type(error).__name__}: {error}",
            do="mend the factory or its arguments",
        ) from error
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"model {spec!r}",
            allowed="a factory that returns a torch.nn.Module",
            got=type(model).__name__,
            do="return the model itself",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise BadInput(
            f"model {spec!r}",
            allowed="a model with at least one trainable parameter",
            got="none",
            do="set requires_grad on what the client trains",
        )
    return model.cpu().eval()


def _arguments(spec: str, factory: Any, fields: str, data: DataSpec, seed: int) -> dict[str, Any]:
    """What the user wrote, and those of our three offers that the signature names itself.

    A bare **kwargs is not taken as an invitation: it is mostly handed on to something that knows no `seed`.
    """
    arguments: dict[str, Any] = {}
    for part in filter(None, fields.split(",")):
        key, sep, value = part.partition("=")
        if not sep or not key.strip().isidentifier():
            raise BadInput(f"model {spec!r}", allowed="key=value,... behind it", got=repr(part), do="add key=")
        arguments[key.strip()] = _parse(value.strip())
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # built-ins without one
        return arguments
    offers = {"input_shape": tuple(data.shape), "num_classes": data.classes, "seed": seed}
    positional_only = inspect.Parameter.POSITIONAL_ONLY
    accepted = {n for n, p in signature.parameters.items() if p.kind is not positional_only}
    arguments = {k: v for k, v in offers.items() if k in accepted} | arguments
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise BadInput(
            f"model {spec!r}",
            allowed=f"given the arguments of {signature}",
            got=str(error),
            do="write them as FILE.py:FACTORY:key=value,...",
        ) from error
    return arguments


def _parse(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_forward(what: str, model: nn.Module, data: DataSpec) -> None:
    """One zero sample must give (1, classes) finite logits."""
    do = f"take {tuple(data.shape)} samples and return {data.classes} logits (num_classes={data.classes})"
    try:
        with seeded(0), torch.no_grad():
            logits = model(torch.zeros(1, *data.shape))
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        if len(data.shape) == 3 and data.shape[0] == 1:
            do += "; arrays (M, H, W) are read as grey pictures (M, 1, H, W): a model of series drops that axis"
        raise BadInput(
            f"model {what!r}", allowed=f"runnable on (1, {', '.join(map(str, data.shape))})", got=got, do=do
        ) from error
    if data.target == ONE_CLASS:
        refuse_output(f"of model {what!r}", logits, 1, data.classes)
    elif not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.shape[:1] != (1,):
        got = str(tuple(logits.shape)) if isinstance(logits, Tensor) else type(logits).__name__
        do = "return one row for each sample"
        raise BadInput(f"output of model {what!r}", allowed="a tensor of floats, (1, ...)", got=got, do=do)
    if not bool(torch.isfinite(logits).all()):
        raise BadInput(f"logits of model {what!r}", allowed="finite", got="nan or infinity", do="check its parameters")


def refuse_output(of: str, logits: Any, samples: int, classes: int | None = None) -> None:
    """A model must return a tensor with one row of logits for each sample."""
    wanted = f"({samples}, {classes or 'classes'})"
    if not isinstance(logits, Tensor):
        raise BadInput(
            f"logits {of}",
            allowed=f"a tensor of shape {wanted}",
            got=type(logits).__name__,
            do="wrap the model in a module that returns the logits alone",
        )
    shape = tuple(logits.shape)
    if len(shape) != 2 or shape[0] != samples or (classes is not None and shape[1] != classes):
        do = "return one row of class logits for each sample"
        if classes is not None:
            do += f", here {classes} (num_classes={classes})"
        raise BadInput(f"logits {of}", allowed=f"of shape {wanted}", got=shape, do=do)

"""From `--model` and `--weights` to a model that is known to run on the data. Nothing in a checkpoint is executed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.engine.losses import loss_of
from leakgauge.engine.written_out import nothing_computed_again
from leakgauge.errors import BadInput, LeakgaugeError, Unreadable
from leakgauge.models._base import ModelSpec
from leakgauge.models.adapters import by_model_names, holds_all_that_is_trained
from leakgauge.models.adapting import Adapted, adapted, as_written
from leakgauge.models.layers import seeded
from leakgauge.reading.tensors import read_safetensors, read_torch
from leakgauge.types import (
    CATEGORIES,
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    ONE_CLASS,
    QUANTITIES,
    SEQUENCE,
    SEVERAL_CLASSES,
    Client,
    DataSpec,
)

_WRAPPERS = ("state_dict", "model_state_dict", "model")  # keys that training scripts put around the tensors
_SAVE = "save model.state_dict() as .safetensors or with torch.save"


def load_model(spec: str, data: DataSpec, seed: int, weights: str | None = None) -> nn.Module:
    """The model that `spec` names, on the CPU, in eval mode, initialised from `seed` or from a checkpoint.

    `spec` is a zoo name with fields (`lenet-dlg:activation=relu`), or the user's own factory or module class
    (`package.module:factory`, `path/file.py:factory`, then perhaps `:key=value,...` for its arguments).
    """
    if catalog.is_own(spec):
        model = adapted(_own_model(spec, data, seed), data)
        check_forward(spec, model, data)  # also fills in lazy layers, before a checkpoint is held against them
        freeze_unused(model, data.shape)
    else:
        model = catalog.build("models", spec).build(data, seed)
    if weights is not None:
        _load_weights(model, weights)
        check_forward(f"{spec} with weights {weights}", model, data)
    return model


def logits_of(spec: str, data: DataSpec, seed: int) -> int:
    """How many classes the user's own model has on samples of this shape."""
    return outputs_on(adapted(_own_model(spec, data, seed), data), data)


def outputs_on(model: nn.Module, data: DataSpec) -> int:
    """How many classes a model has that takes these samples."""
    try:
        logits = _zero_logits(model, data)
    except Exception:  # the check of its forward pass reports it
        return data.classes
    whole = isinstance(logits, Tensor) and logits.dim() == 2 + (data.target == SEQUENCE) * len(data.target_shape)
    return int(logits.shape[-1]) if whole else data.classes


def freeze_unused(model: nn.Module, shape: Sequence[int]) -> None:
    """Parameters that the logits do not depend on are no part of an update: they have no gradient."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not trainable:
        return
    with seeded(0), torch.enable_grad(), nothing_computed_again():
        logits = model(torch.rand(1, *shape).to(trainable[0]))
        found = torch.autograd.grad(logits.sum(), trainable, allow_unused=True) if logits.requires_grad else ()
    for parameter, gradient in zip(trainable, found, strict=False):
        parameter.requires_grad_(gradient is not None)


def parameter_count(model: nn.Module) -> int:
    """Numbers in the model's parameters, as the papers' tables count them: no BatchNorm statistics."""
    return sum(p.numel() for p in model.parameters())


# --- the user's own model -------------------------------------------------------------------------------------------


def _own_model(spec: str, data: DataSpec, seed: int) -> nn.Module:
    head, _, rest = spec.partition(":")
    thing, _, fields = rest.partition(":")
    with seeded(seed):  # importing a file may draw as well
        factory = catalog.own(f"{head}:{thing}")
    if inspect.isclass(factory) and issubclass(factory, ModelSpec):
        return factory.from_text(fields).build(data, seed)
    what = f"model {spec!r}"
    if isinstance(factory, nn.Module) or not callable(factory):
        got, do = (
            f"an object of type {type(factory).__name__}",
            "wrap it in a function: each seed gets fresh parameters",
        )
        raise BadInput(what, allowed="a function or class that makes a model", got=got, do=do)
    arguments = _arguments(what, factory, fields, data, seed)
    try:
        with seeded(seed):
            model = factory(**arguments)
    except LeakgaugeError:
        raise
    except Exception as error:
        allowed, got = f"a factory that works with {arguments}", f"{type(error).__name__}: {error}"
        raise BadInput(what, allowed=allowed, got=got, do="correct the factory or its arguments") from error
    if not isinstance(model, nn.Module):
        allowed = "a factory that returns a torch.nn.Module"
        raise BadInput(what, allowed=allowed, got=type(model).__name__, do="return the model itself")
    if not any(p.requires_grad for p in model.parameters()):
        allowed, do = "a model with at least one trainable parameter", "set requires_grad on what the client trains"
        raise BadInput(what, allowed=allowed, got="none", do=do)
    return model.cpu().eval()


def _arguments(what: str, factory: Any, fields: str, data: DataSpec, seed: int) -> dict[str, Any]:
    """The user's arguments, and those of our three that the signature names itself.

    A bare **kwargs is not taken as an invitation: it is mostly handed on to something that knows no `seed`.
    """
    arguments = catalog.arguments(what, fields)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # built-ins without one
        return arguments
    offers = {"input_shape": tuple(data.shape), "num_classes": data.classes, "seed": seed}
    accepted = {n for n, p in signature.parameters.items() if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    arguments = {k: v for k, v in offers.items() if k in accepted} | arguments
    try:
        signature.bind(**arguments)
    except TypeError as error:
        allowed, do = f"given the arguments of {signature}", "write them as FILE.py:FACTORY:key=value,..."
        raise BadInput(what, allowed=allowed, got=str(error), do=do) from error
    return arguments


def _zero_logits(model: nn.Module, data: DataSpec) -> Any:
    """What the model returns for one sample of zeros."""
    with seeded(0), torch.no_grad():
        return model(torch.zeros(1, *data.shape))


def _arguments_of(model: nn.Module) -> str:
    return ", ".join(repr(name) for name in inspect.signature(as_written(model).forward).parameters)


def check_forward(what: str, model: nn.Module, data: DataSpec) -> None:
    """One zero sample must give (1, classes) finite logits."""
    try:
        logits = _zero_logits(model, data)
    except Exception as error:
        if isinstance(error, TypeError) and data.parts and " argument" in str(error):
            got = f"arrays called {', '.join(repr(part.name) for part in data.parts)}: {error}"
            do = "call them as the arguments of the model's forward are called"
            allowed = f"a dictionary with {_arguments_of(model)}"
            raise BadInput(f"inputs for model {what!r}", allowed=allowed, got=got, do=do) from error
        do = f"take {tuple(data.shape)} samples and return {data.classes} logits (num_classes={data.classes})"
        if len(data.shape) == 3 and data.shape[0] == 1:
            do += "; arrays (M, H, W) are read as grey pictures (M, 1, H, W): a model of series drops that axis"
        allowed, got = f"runnable on (1, {', '.join(map(str, data.shape))})", f"{type(error).__name__}: {error}"
        raise BadInput(f"model {what!r}", allowed=allowed, got=got, do=do) from error
    if data.target == ONE_CLASS:
        refuse_output(f"of model {what!r}", logits, 1, data.classes)
    elif not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.shape[:1] != (1,):
        got = str(tuple(logits.shape)) if isinstance(logits, Tensor) else type(logits).__name__
        do = "return one row for each sample"
        raise BadInput(f"output of model {what!r}", allowed="a tensor of floats, (1, ...)", got=got, do=do)
    if not bool(torch.isfinite(logits).all()):
        raise BadInput(f"logits of model {what!r}", allowed="finite", got="nan or infinity", do="check its parameters")


TRIED = 256  # samples that go through a model before anything runs
_FITTING = {  # target -> losses
    ONE_CLASS: (CROSS_ENTROPY, NLL_ON_LOGITS, "nll"),
    SEQUENCE: (CROSS_ENTROPY, "nll", "ctc"),
    SEVERAL_CLASSES: ("bce", "mse", "l1", "huber"),
    QUANTITIES: ("mse", "l1", "huber"),
}
_ARE = {
    ONE_CLASS: "one class a sample",
    SEQUENCE: "labels in a row",
    SEVERAL_CLASSES: "several classes a sample",
    QUANTITIES: "numbers",
}


def check_samples(model: nn.Module, data: DataSpec, local: Client, samples: tuple[Tensor, Tensor]) -> None:
    """Some samples (M, *shape) and their targets (M, ...) must go through the model and the client's loss."""
    inputs, labels = samples
    if isinstance(model, Adapted) and any(part.kind == CATEGORIES for part in data.parts):
        _check_own_form(model, data, inputs[:TRIED])
    _check_loss(model, data, local, labels)


def _check_own_form(model: nn.Module, data: DataSpec, inputs: Tensor) -> None:
    """Whole numbers as they are: an embedding that lacks some would not be seen to in the form that is searched."""
    values = data.decode(inputs)
    try:
        with torch.no_grad():
            model(next(iter(values.values()))) if len(values) == 1 else model(**values)
    except IndexError as error:
        largest = ", ".join(f"{p.name or 'inputs'} to {p.size - 1}" for p in data.parts if p.kind == CATEGORIES)
        do = "check the size of its embeddings, and that --data is what it was made for"
        raise BadInput("categories", allowed="such as the model knows", got=f"{largest}: {error}", do=do) from error


def _check_loss(model: nn.Module, data: DataSpec, local: Client, labels: Tensor) -> None:
    """The loss must take the targets and what the model makes of samples."""
    fitting = _FITTING[data.target]
    if not catalog.is_own(local.loss):
        if data.target in (SEVERAL_CLASSES, QUANTITIES) and labels.dim() == 2 and data.classes > 1:
            inside, sums = bool(((labels >= 0) & (labels <= 1)).all()), labels.sum(1)
            if inside and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
                fitting = (*fitting, CROSS_ENTROPY)  # shares of classes
            fitting = (*fitting, "bce") if inside and "bce" not in fitting else fitting
        if local.loss not in fitting:
            allowed = f"one for {_ARE[data.target]}: {', '.join(fitting)} or FILE.py:FUNCTION"
            raise BadInput("local: loss", allowed=allowed, got=local.loss, do=f"add --local loss={fitting[0]}")
        if data.target == ONE_CLASS:
            return  # its output has been looked at
    with torch.no_grad(), seeded(0):
        output = model(torch.rand(2, *data.shape).to(next(model.parameters())))
    targets, shape = labels[:2], tuple(output.shape)
    wanted = tuple(targets.shape) if len(targets) == 2 else (2, *labels.shape[1:])
    fits = shape in (wanted, (*wanted, 1))
    if data.target == SEQUENCE or local.loss == CROSS_ENTROPY:
        fits = (shape[:-1] == wanted and shape[-1] >= data.classes) or (data.target != SEQUENCE and shape == wanted)
    if not fits and not catalog.is_own(local.loss):
        do = "return one number for each number of a target"
        if data.target == SEQUENCE:
            do = "return logits with the classes last, (N, places, classes), or write the loss as FILE.py:FUNCTION"
        allowed = f"beside targets of shape {wanted}" + f" with {data.classes} labels" * (data.target == SEQUENCE)
        raise BadInput("output of the model", allowed=allowed, got=f"shape {shape} of 2 samples", do=do)
    if catalog.is_own(local.loss):
        try:
            loss_of(local)(output[: len(targets)], targets.to(output.device))
        except LeakgaugeError:
            raise
        except Exception as error:
            allowed, got = f"takes output {shape} and targets {wanted}", f"{type(error).__name__}: {error}"
            raise BadInput(f"loss {local.loss!r}", allowed=allowed, got=got, do="correct the function") from error


def refuse_output(of: str, logits: Any, samples: int, classes: int | None = None) -> None:
    """A model must return a tensor with one row of logits for each sample."""
    wanted = f"({samples}, {classes or 'classes'})"
    if not isinstance(logits, Tensor):
        allowed, do = f"a tensor of shape {wanted}", "wrap the model in a module that returns the logits alone"
        raise BadInput(f"logits {of}", allowed=allowed, got=type(logits).__name__, do=do)
    shape = tuple(logits.shape)
    if len(shape) != 2 or shape[0] != samples or (classes is not None and shape[1] != classes):
        do = "return one row of class logits for each sample"
        if classes is not None:
            do += f", here {classes} (num_classes={classes})"
        raise BadInput(f"logits {of}", allowed=f"of shape {wanted}", got=shape, do=do)


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _load_weights(model: nn.Module, path: str) -> None:
    """Copy the checkpoint's tensors into the model; every name and shape must fit."""
    tensors = load_tensors(path)
    expected = model.state_dict()
    # A count that only old checkpoints lack and that nothing here reads.
    tensors = by_model_names(tensors, expected)
    missing = [n for n in expected if n not in tensors and not n.endswith("num_batches_tracked")]
    if holds_all_that_is_trained(model, tensors):  # the frozen rest is as the user's own factory makes it
        missing = []
    extra = [n for n in tensors if n not in expected]
    wrong = [n for n in tensors if n in expected and tensors[n].shape != expected[n].shape]
    do = "choose the model, its fields and the data it was saved for"
    got = ""
    if missing or extra:
        got = f"no {missing[0]!r}" if missing else f"the unknown {extra[0]!r}"
        got += f" ({len(missing)} missing, {len(extra)} unknown)"
    elif wrong:
        name, tensor, wanted = wrong[0], tensors[wrong[0]], tuple(expected[wrong[0]].shape)
        got = f"{name!r} of shape {tuple(tensor.shape)}, not {wanted}"
        if tensor.dim() and tuple(tensor.shape[1:]) == wanted[1:]:
            do += f"; if it has {len(tensor)} classes, an .npz says so by an entry classes={len(tensor)}"
    if got:
        raise BadInput(f"weights {path!r}", allowed="a checkpoint of this model", got=got, do=do)
    model.load_state_dict(tensors, strict=False)


def load_tensors(path: str) -> dict[str, Tensor]:
    """The checkpoint's tensors by parameter name, without a model to hold them against."""
    what, suffix = f"weights {path!r}", Path(path).suffix
    if suffix not in (".safetensors", ".pt", ".pth"):
        raise BadInput(what, allowed="a .safetensors, .pt or .pth file", got=suffix or "no suffix", do=_SAVE)
    if not Path(path).is_file():
        raise BadInput(what, allowed="an existing file", got="no such file", do="check the path")
    try:
        loaded: Any = read_safetensors(Path(path))[0] if suffix == ".safetensors" else read_torch(Path(path))
    except Unreadable as error:
        raise BadInput(what, allowed="a checkpoint of plain tensors", got=error, do=_SAVE) from error
    if isinstance(loaded, Mapping):
        loaded = next((loaded[key] for key in _WRAPPERS if isinstance(loaded.get(key), Mapping)), loaded)
    if not isinstance(loaded, Mapping):
        raise BadInput(what, allowed="tensors by name", got=type(loaded).__name__, do=_SAVE)
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BadInput(what, allowed="tensors by name", got=f"{type(value).__name__} at {name!r}", do=_SAVE)
    prefix = "module." if all(name.startswith("module.") for name in loaded) else ""  # which DataParallel adds to all
    return {name.removeprefix(prefix): tensor for name, tensor in loaded.items()}

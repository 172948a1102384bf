"""A received model as the checks see it: its layers as matrices, and what the client can hold against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from leakgauge.checks._gradients import squared_gradients
from leakgauge.checks._neighbours import Neighbours, find_neighbours
from leakgauge.errors import BadInput
from leakgauge.models import first_linear, last_linear
from leakgauge.types import Batch, DataSpec

LINEAR, CONVOLUTION, SCALE = "linear", "convolution", "scale"
_COUNT = "num_batches_tracked"  # a count that only some checkpoints have


@dataclass(frozen=True, eq=False)
class Layer:
    """One weight tensor with the bias that belongs to it."""

    name: str
    kind: str  # LINEAR, CONVOLUTION or SCALE (of a normalisation)
    weight: Tensor  # (units or filters, weights of each)
    bias: Tensor | None  # (units,)

    @cached_property
    def rows(self) -> Neighbours:
        """To which other row each row is most nearly parallel."""
        return find_neighbours(self.weight)

    @cached_property
    def columns(self) -> Neighbours:
        """The same for the columns: what the units before send into this layer."""
        return find_neighbours(self.weight.T)


@dataclass(frozen=True, eq=False)
class Received:
    """Layers in the order in which the model lists them, and the client's own means, where there are any."""

    layers: tuple[Layer, ...]
    tensors: Mapping[str, Tensor]
    first: str | None  # the linear layer that sees the raw input
    last: str | None  # the linear layer that gives the logits
    model: nn.Module | None
    samples: Batch | None  # T = 1: the client's own
    reference: Mapping[str, Tensor] | None  # of an earlier model that the client trusts
    inputs: int | None = None  # values in one sample, where the client's data are known

    @cached_property
    def sample_gradients(self) -> Mapping[str, Tensor]:
        """Squared norm of the gradient of each own sample by layer, (N,) each; nothing without samples."""
        if self.samples is None or self.model is None:
            return {}
        return squared_gradients(self.model, self.samples.inputs[0], self.samples.labels[0])

    def of_kind(self, kind: str) -> Iterator[Layer]:
        return (layer for layer in self.layers if layer.kind == kind)

    def hidden(self) -> Iterator[Layer]:
        """Linear layers but the last: training alone makes the rows of that one alike."""
        return (layer for layer in self.of_kind(LINEAR) if layer.name != self.last)

    def after(self, layer: Layer) -> Layer | None:
        """The linear layer into which this one feeds, as far as the order and the shapes tell."""
        linear = list(self.of_kind(LINEAR))
        place = linear.index(layer) + 1
        fits = place < len(linear) and linear[place].weight.shape[1] == layer.weight.shape[0]
        return linear[place] if fits else None


def receive(
    source: nn.Module | Mapping[str, Tensor],
    data: DataSpec | None = None,
    samples: Batch | None = None,
    reference: nn.Module | Mapping[str, Tensor] | None = None,
) -> Received:
    """Look at a model, or at the tensors of a checkpoint alone."""
    model = source if isinstance(source, nn.Module) else None
    if model is None and samples is not None:
        raise BadInput("samples", allowed="used with a model", got="tensors alone", do="give the model itself")
    if samples is not None and samples.trials != 1:
        raise BadInput("samples", allowed="one batch, T = 1", got=f"T = {samples.trials}", do="take(...) one of them")
    tensors = tensors_of(source)
    layers = tuple(_layers(parameters_in(source)))
    if not layers:
        raise BadInput("model", allowed="one with a weight tensor", got="none", do="give the model's state dict")
    linear = [layer.name for layer in layers if layer.kind == LINEAR]
    first: str | None
    last: str | None
    if model is not None and (data is not None or samples is not None):
        example = samples.inputs[0, :1] if samples is not None else _grey(data, model)
        first, last = first_linear(model, example), last_linear(model, example)
    else:
        matrices = [layer for layer in layers if layer.kind != SCALE]
        first = matrices[0].name if matrices and matrices[0].kind == LINEAR else None
        last = linear[-1] if linear else None
    known = None if reference is None else tensors_of(reference)
    shape = data.shape if data is not None else None if samples is None else samples.inputs.shape[2:]
    inputs = None if shape is None else int(torch.Size(shape).numel())
    return Received(layers, tensors, first, last, model, samples, known, inputs)


def tensors_of(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that would be saved, but counts."""
    saved = source.state_dict() if isinstance(source, nn.Module) else source
    tensors = {name: tensor.detach() for name, tensor in saved.items() if not name.endswith(_COUNT)}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BadInput(
                f"tensor {name!r}",
                allowed="finite numbers",
                got="nan or infinity",
                do="do not train on it; ask for the model again",
            )
    return tensors


def parameters_in(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What can be trained; of a checkpoint all that is not a running statistic."""
    if isinstance(source, nn.Module):
        return {name: p.detach() for name, p in source.named_parameters()}
    return {
        n: t.detach() for n, t in source.items() if t.is_floating_point() and not n.split(".")[-1].startswith("run")
    }


def _layers(parameters: Mapping[str, Tensor]) -> Iterator[Layer]:
    for name, tensor in parameters.items():
        before, dot, own = name.rpartition(".")
        bias = parameters.get(f"{before}{dot}{own.replace('weight', 'bias')}") if "weight" in own else None
        if bias is not None and (bias.dim() != 1 or bias.shape != tensor.shape[:1]):
            bias = None
        called = before if own == "weight" and before else name
        if tensor.dim() >= 2 and tensor.numel():
            kind = LINEAR if tensor.dim() == 2 else CONVOLUTION
            yield Layer(called, kind, tensor.flatten(1).float(), None if bias is None else bias.float())
        elif tensor.dim() == 1 and bias is not None:
            yield Layer(called, SCALE, tensor[:, None].float(), bias.float())


def _grey(data: DataSpec | None, model: nn.Module) -> Tensor:
    assert data is not None
    return torch.full((1, *data.shape), 0.5).to(next(model.parameters()))

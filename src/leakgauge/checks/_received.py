"""A received model as the checks see it: its layers as matrices, and what the client can hold against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import one_by_one, working_model
from leakgauge.errors import BadInput
from leakgauge.models import first_linear, last_linear
from leakgauge.types import Batch, DataSpec

LINEAR, CONVOLUTION, SCALE = "linear", "convolution", "scale"
_FEWEST = 12  # non-zero weights; sparser or smaller rows are multiples of one another by chance
_LEVELS = 128  # magnitudes of 8-bit weights
_STEPS = 2.5  # of the rounding that the largest weight of a row must have
_SAMPLE = 100_000  # weights are enough to see rounding
_BLOCK = 1024  # rows at a time: their products take 4 MB
_CLOSE = 0.99  # cosines from which the difference is computed: a cosine near 1 has no digits left for it
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
    inputs: int = 0  # values in one sample; 0 where the client's data are not known

    @cached_property
    def sample_gradients(self) -> Mapping[str, Tensor]:
        """Squared norm of the gradient of each own sample by layer, (N,) each; nothing without samples.

        Samples run one by one and only norms are kept: any model will do, and it takes no more than training it.
        """
        found: dict[str, Tensor] = {}
        if self.samples is None or self.model is None:
            return found
        worker = working_model(self.model, "eval")
        inputs, labels = self.samples.inputs[0], self.samples.labels[0]
        for n in range(len(labels)):
            gradients = one_by_one(worker, inputs[None, None, n], labels[None, None, n], differentiable=False)
            for name, gradient in gradients.items():
                square = gradient.double().square().sum()
                found.setdefault(name.rpartition(".")[0] or name, square.new_zeros(len(labels)))[n] += square
        return found

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
    parameters = parameters_in(source)
    layers = tuple(_layers(parameters))
    if not layers:
        raise BadInput("model", allowed="one with a weight tensor", got="none", do="give the model's state dict")
    example = None if samples is None else samples.inputs[0, :1]
    if samples is None and data is not None:
        example = torch.full((1, *data.shape), 0.5).to(next(iter(parameters.values())))
    first: str | None
    last: str | None
    if model is not None and example is not None:
        first, last = first_linear(model, example), last_linear(model, example)
    else:
        matrices = [layer for layer in layers if layer.kind != SCALE]
        linear = [layer.name for layer in layers if layer.kind == LINEAR]
        first = matrices[0].name if matrices and matrices[0].kind == LINEAR else None
        last = linear[-1] if linear else None
    known = None if reference is None else tensors_of(reference)
    inputs = 0 if example is None else example.numel()
    return Received(layers, tensors, first, last, model, samples, known, inputs)


def tensors_of(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that would be saved, but counts."""
    saved = source.state_dict() if isinstance(source, nn.Module) else source
    tensors = {name: tensor.detach() for name, tensor in saved.items() if not name.endswith(_COUNT)}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            do = "do not train on it; ask for the model again"
            raise BadInput(f"tensor {name!r}", allowed="finite numbers", got="nan or infinity", do=do)
    return tensors


def parameters_in(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What can be trained; of a checkpoint all that is not a running statistic."""
    if isinstance(source, nn.Module):
        return {name: p.detach() for name, p in source.named_parameters()}
    trained = (n for n, t in source.items() if t.is_floating_point() and not n.split(".")[-1].startswith("run"))
    return {name: source[name].detach() for name in trained}


def _layers(parameters: Mapping[str, Tensor]) -> Iterator[Layer]:
    for name, tensor in parameters.items():
        before, dot, own = name.rpartition(".")
        bias = parameters.get(f"{before}{dot}{own.replace('weight', 'bias')}") if "weight" in own else None
        if bias is not None:
            bias = bias.float() if bias.dim() == 1 and bias.shape == tensor.shape[:1] else None
        short = before if own == "weight" and before else name
        if tensor.dim() >= 2 and tensor.numel():
            yield Layer(short, LINEAR if tensor.dim() == 2 else CONVOLUTION, tensor.flatten(1).float(), bias)
        elif tensor.dim() == 1 and bias is not None:
            yield Layer(short, SCALE, tensor[:, None].float(), bias)


@dataclass(frozen=True)
class Neighbours:
    """One entry per judged row; R of them."""

    index: Tensor  # (R,) which rows were judged: those with enough non-zero weights
    partner: Tensor  # (R,) the nearest row, as an index into the whole matrix
    cosine: Tensor  # (R,) with it, signed
    residual: Tensor  # (R,) share of the row's length that no multiple of the partner explains, 0 for exact multiples
    mean_square: float  # of the cosines of all pairs: 1/d for random rows of d weights

    def __len__(self) -> int:
        return len(self.index)


def find_neighbours(weight: Tensor) -> Neighbours:
    """`weight` is (rows, inputs). Products of blocks of rows: no copy of a large matrix, no large table of cosines."""
    full = torch.cat([(block != 0).sum(1) for block in torch.split(weight, _BLOCK)]) >= _FEWEST
    full &= torch.maximum(weight.amax(1), -weight.amin(1)) >= _least_step(weight)
    index = full.nonzero().flatten()
    judged = weight if bool(full.all()) else weight[index]
    R = len(index)
    length = torch.linalg.vector_norm(judged, dim=1)
    best = torch.zeros(R, device=weight.device)
    partner = torch.zeros(R, dtype=torch.long, device=weight.device)
    squares = 0.0
    for top in range(0, R, _BLOCK):
        for left in range(top, R, _BLOCK):  # the other half of the table is its mirror image
            here, there = slice(top, top + _BLOCK), slice(left, left + _BLOCK)
            cosines = judged[here] @ judged[there].T / (length[here, None] * length[there])
            if top == left:
                cosines.fill_diagonal_(0)
            squares += float(cosines.double().square().sum()) * (1 if top == left else 2)
            _keep_larger(best, partner, here, cosines, left)
            if top != left:
                _keep_larger(best, partner, there, cosines.T, top)
    mean_square = squares / max(1, R * (R - 1))
    residual = (1 - best.square()).clamp(min=0).sqrt()
    close = (best.abs() > _CLOSE).nonzero().flatten()
    for rows in torch.split(close, _BLOCK // 4):
        residual[rows] = _residual(judged[rows], judged[partner[rows]])
    return Neighbours(index, index[partner], best.clamp(-1, 1), residual, min(1.0, mean_square))


def _least_step(weight: Tensor) -> float:
    """Where weights are rounded to few values: the size below which a row has too few of them left to tell it apart."""
    flat = weight.flatten()
    values: Tensor = torch.unique(flat[:: max(1, len(flat) // _SAMPLE)].abs())
    values = values[values > 0]
    rounded = 1 < len(values) <= _LEVELS  # one value alone is not rounding: all weights are the same
    return _STEPS * float(values[0]) if rounded else 0.0


def _keep_larger(best: Tensor, partner: Tensor, rows: slice, cosines: Tensor, offset: int) -> None:
    size, place = cosines.abs().max(1)
    larger = size > best[rows].abs()
    found = cosines.gather(1, place[:, None]).flatten()
    best[rows] = torch.where(larger, found, best[rows])
    partner[rows] = torch.where(larger, place + offset, partner[rows])


def _residual(row: Tensor, other: Tensor) -> Tensor:
    """|row - a other| / |row| at the best a, without the cancellation of 1 - cosine²."""
    product = (row.double() * other.double()).sum(1)
    factor = (product / other.double().square().sum(1)).to(row)
    rest = torch.linalg.vector_norm(row - factor[:, None] * other, dim=1)
    share: Tensor = rest / torch.linalg.vector_norm(row, dim=1)
    return share

"""Layers for which torch has only a closed kernel, written out in plain operations while a model is attacked.

torch runs no recurrent layer under `vmap`, and on a GPU differentiates none in eval mode or twice (cuDNN). Of weight
norm, bilinear layers and bags of embeddings it runs one trial after another in there. Checkpointed parts of a model
are computed again when slopes are wanted, by then with other weights than those they were called with. Here all of
them are products and sums, and checkpointed parts keep what they computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_V = torch._C._VariableFunctions  # what the layers of torch.nn call
States = tuple[Tensor, ...]
# (what enters the gates from the layer below (N, gates), the states before, weights of the step before) -> the states
Cell = Callable[[Tensor, States, Sequence[Tensor | None]], States]


class WrittenOut(TorchFunctionMode):
    """While it lasts, these layers are plain operations; `only` names some of them."""

    def __init__(self, only: Iterable[Callable[..., Any]] | None = None) -> None:
        super().__init__()
        self._forms = _FORMS if only is None else {function: _FORMS[function] for function in only}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        form = self._forms.get(func)
        made = None if form is None else form(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if made is None else made


def recurrent_written_out() -> WrittenOut:
    """Recurrent layers alone: what no GPU differentiates twice."""
    return WrittenOut((_V.lstm, _V.gru, _V.rnn_tanh, _V.rnn_relu))


@contextmanager
def nothing_computed_again() -> Iterator[None]:
    """Parts of a model behind `torch.utils.checkpoint` run as if they were not."""
    kept = {name: getattr(checkpointing, name) for name in _CHECKPOINTS}
    for name, plain in _CHECKPOINTS.items():
        setattr(checkpointing, name, plain)
    try:
        yield
    finally:
        for name, own in kept.items():
            setattr(checkpointing, name, own)


class _Kept:
    """In place of the `torch.autograd.Function` that computes again."""

    @staticmethod
    def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)


def _around_nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


_CHECKPOINTS = {"CheckpointFunction": _Kept, "_checkpoint_without_reentrant_generator": _around_nothing}


# --- recurrent layers -----------------------------------------------------------------------------------------------


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found = x @ weight.transpose(-1, -2)
    return found if bias is None else found + bias


def _lstm_cell(below: Tensor, states: States, own: Sequence[Tensor | None]) -> States:
    weight, bias, projection = own
    assert weight is not None
    i, f, g, o = (below + _linear(states[0], weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if projection is None else _linear(h, projection, None)), c


def _gru_cell(below: Tensor, states: States, own: Sequence[Tensor | None]) -> States:
    weight, bias, _ = own
    assert weight is not None
    (r, z, n), (r_, z_, n_) = below.chunk(3, -1), _linear(states[0], weight, bias).chunk(3, -1)
    z = torch.sigmoid(z + z_)
    return ((1 - z) * torch.tanh(n + torch.sigmoid(r + r_) * n_) + z * states[0],)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(below: Tensor, states: States, own: Sequence[Tensor | None]) -> States:
        weight, bias, _ = own
        assert weight is not None
        return (activation(below + _linear(states[0], weight, bias)),)

    return cell


def _recurrent(cell: Cell) -> Callable[..., Any]:
    def layers(
        x: Tensor,
        begin: Any,
        parameters: Any,
        biased: bool = True,
        depth: int = 1,
        dropout: float = 0.0,
        training: bool = False,
        both_ways: bool = False,
        batch_first: bool = False,
    ) -> Any:
        """As `torch.lstm` and its like; None where sequences are packed or units dropped at random."""
        starts: States = (begin,) if isinstance(begin, Tensor) else tuple(begin)
        if isinstance(parameters, Tensor) or isinstance(biased, list | tuple) or (dropout and training):
            return None
        ways = 2 if both_ways else 1
        each = len(parameters) // (depth * ways)  # weights and biases of one layer in one direction
        rows = x.transpose(0, 1) if batch_first else x
        ends: list[States] = []
        for layer in range(depth):
            heard = []
            for way in range(ways):
                number = layer * ways + way
                own = list(parameters[number * each : (number + 1) * each])
                bias, hidden_bias = (own[2], own[3]) if biased else (None, None)
                projection = own[-1] if each % 2 else None
                below = _linear(rows, own[0], bias)
                states = tuple(s[number] for s in starts)
                passed = []
                for step in reversed(range(len(rows))) if way else range(len(rows)):
                    states = cell(below[step], states, (own[1], hidden_bias, projection))
                    passed.append(states[0])
                heard.append(torch.stack(passed[::-1] if way else passed))
                ends.append(states)
            rows = torch.cat(heard, -1)
        last = [torch.stack(kind) for kind in zip(*ends, strict=True)]
        return (rows.transpose(0, 1) if batch_first else rows, *last)

    return layers


# --- others ---------------------------------------------------------------------------------------------------------


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    across = [d for d in range(v.dim()) if d != dim % v.dim()] if dim != -1 else list(range(v.dim()))
    return v * (g / v.square().sum(across, keepdim=True).sqrt())


def _bilinear(left: Tensor, right: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found = torch.einsum("...i,oij,...j->...o", left, weight, right)
    return found if bias is None else found + bias


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,  # noqa: ARG001 - of max_norm
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,  # noqa: ARG001 - sums are the same
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,  # noqa: ARG001 - of offsets
    padding_idx: int | None = None,
    *,
    look_up: Callable[[Tensor, Tensor], Tensor] = F.embedding,
) -> Tensor | None:
    """`F.embedding_bag` of bags as rows; None where they are one behind another."""
    if input.dim() != 2 or offsets is not None or max_norm is not None or scale_grad_by_freq or padding_idx is not None:
        return None
    rows = look_up(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    return rows.amax(1) if mode == "max" else rows.sum(1) if mode == "sum" else rows.mean(1)


_FORMS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    _V.lstm: _recurrent(_lstm_cell),
    _V.gru: _recurrent(_gru_cell),
    _V.rnn_tanh: _recurrent(_plain_cell(torch.tanh)),
    _V.rnn_relu: _recurrent(_plain_cell(torch.relu)),
    torch._weight_norm: _weight_norm,
    F.bilinear: _bilinear,
    torch.bilinear: _bilinear,
    F.embedding_bag: embedding_bag,
}


def without_stale_graphs(model: nn.Module) -> None:
    """Tensors that a layer made of its parameters and keeps, as weight norm did before parametrizations, are cut off.

    Only leaves can be copied with the model; the layer makes them anew when it is called.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                setattr(module, name, value.detach())

"""Whole numbers that a search may move: a category is a share of each of its values until the model looks it up.

A model takes tokens and categories as whole numbers. While `SoftCategories` lasts it gets the most likely ones, and
wherever it looks one up in an embedding (or makes it one-hot) it gets the mean over all values by their shares. So a
search has slopes, and a true sample gives exactly what it gives without any of this. What a model does to the whole
numbers before the look-up is followed as far as it moves them about: columns, slices, new axes, views, a constant
added. Behind anything else they are looked up as whole numbers, and the search has no slope there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from leakgauge.engine.written_out import embedding_bag

_T = torch.Tensor
_SAME = (_T.long, _T.int, _T.to, _T.clone, _T.contiguous, _T.detach, _T.type, torch.clone, torch.detach)
_SHAPED = (_T.view, _T.reshape, torch.reshape, _T.expand)
_AXES = (
    _T.unsqueeze, torch.unsqueeze, _T.squeeze, torch.squeeze, _T.select, torch.select, _T.narrow, torch.narrow,
    _T.transpose, torch.transpose, _T.flatten, torch.flatten, _T.unbind, torch.unbind, _T.split, torch.split,
    _T.chunk, torch.chunk,
)  # fmt: skip
_ADDED = (_T.add, torch.add, _T.__add__, _T.__radd__)


@dataclass(frozen=True)
class _Shares:
    shares: Tensor  # (..., size)
    offset: Any = 0  # what was added to the whole numbers since


class SoftCategories(TorchFunctionMode):
    """While it lasts, these whole numbers stand for shares."""

    def __init__(self, shares: Sequence[Tensor]) -> None:
        super().__init__()
        self.numbers = [s.argmax(-1) for s in shares]
        self._known: dict[int, tuple[Tensor, _Shares]] = {
            id(n): (n, _Shares(s)) for n, s in zip(self.numbers, shares, strict=True)
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func in (F.embedding, torch.embedding):
            return self._looked_up(func, args, given)
        if func is F.embedding_bag and args and self._of(args[0]) is not None:
            bags = partial(embedding_bag, look_up=self._row_of_each)(*args, **given)
            return func(*args, **given) if bags is None else bags
        if func in (F.one_hot, getattr(torch._C._nn, "one_hot", None)) and (soft := self._of(args[0])) is not None:
            found = func(*args, **given)
            return F.pad(soft.shares, (0, found.shape[-1] - soft.shares.shape[-1]))
        found = func(*args, **given)
        for place in range(2 if func in _ADDED else 1):
            if len(args) > place and (soft := self._of(args[place])) is not None:
                self._follow(func, soft, args, given, found, place)
        return found

    def _of(self, numbers: Any) -> _Shares | None:
        return self._known[id(numbers)][1] if id(numbers) in self._known else None

    def _looked_up(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        named = (
            dict(zip(("input", "weight") if func is F.embedding else ("weight", "indices"), args, strict=False)) | given
        )
        numbers, weight = named.get("input", named.get("indices")), named["weight"]
        soft = self._of(numbers)
        if soft is None:
            return func(*args, **given)
        size = soft.shares.shape[-1]
        if isinstance(soft.offset, int):
            rows = weight[soft.offset : soft.offset + size]  # a column may have fewer values than its neighbour
            return soft.shares[..., : len(rows)] @ rows
        places = torch.arange(size, device=weight.device) + soft.offset[..., None]
        return (soft.shares[..., None] * weight[places.clamp(max=len(weight) - 1)]).sum(-2)

    def _row_of_each(self, numbers: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = self._looked_up(F.embedding, (numbers, weight), {})
        return found

    def _follow(
        self,
        func: Callable[..., Any],
        soft: _Shares,
        args: tuple[Any, ...],
        given: dict[str, Any],
        found: Any,
        place: int,
    ) -> None:
        if func in _ADDED:
            other = args[1 - place]
            shares = soft.shares
            if isinstance(other, Tensor) and other.dim():
                shares = shares.expand(*(shares[..., 0] + other).shape, shares.shape[-1])
            self._remember(found, _Shares(shares, other + soft.offset))
            return
        if not isinstance(soft.offset, int):
            return
        moved = _moved(func, soft.shares, args, given, found)
        for whole, shares in zip(
            *((found, moved) if isinstance(found, list | tuple) else ((found,), (moved,))), strict=True
        ):
            if shares is not None:
                self._remember(whole, _Shares(shares, soft.offset))

    def _remember(self, numbers: Any, soft: _Shares) -> None:
        if isinstance(numbers, Tensor):
            self._known[id(numbers)] = (numbers, soft)  # the tensor is kept, so that its id stays its own


def _moved(func: Callable[..., Any], shares: Tensor, args: tuple[Any, ...], given: dict[str, Any], found: Any) -> Any:
    """The shares after what was done to the whole numbers; None (or one for each result) if that is not followed."""
    if func in _SAME:
        return shares if found.dtype in (torch.int64, torch.int32) else None
    if func is _T.__getitem__:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return shares[(*index, slice(None)) if Ellipsis in index else index]
    if func in _SHAPED:
        return (
            shares.reshape(*found.shape, shares.shape[-1]) if func is not _T.expand else shares.expand(*found.shape, -1)
        )
    if func in _AXES:
        return _along_axes(func, shares, args[1:], given)
    return [None] * len(found) if isinstance(found, list | tuple) else None


def _along_axes(func: Callable[..., Any], shares: Tensor, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Axes that are counted from behind stand one further in front of the shares."""
    name = func.__name__
    counted = {"split": (1,), "chunk": (1,), "narrow": (0,), "select": (0,)}.get(name, range(len(args)))
    own = tuple(a - 1 if i in counted and isinstance(a, int) and a < 0 else a for i, a in enumerate(args))
    more = {k: v - 1 if k.endswith("dim") and v < 0 else v for k, v in given.items()}
    if name == "flatten" and len(own) < 2 and "end_dim" not in more:
        more["end_dim"] = -2
    if name == "squeeze" and not own and not more:
        return shares.reshape(*(s for s in shares.shape[:-1] if s != 1), shares.shape[-1])
    return func(shares, *own, **more)

"""Where an optimisation begins: the initial seeds of the CPL framework (Wei et al. 2020, section 3), in raw pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.engine.randomness import normal, per_trial, uniform
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.types import Batch

PATTERNS = ("patterned-2", "patterned-4", "patterned-8")
COLOURS = ("red", "green", "blue")
PUBLIC = ("optimal", "same-class", "hybrid")
STARTS = ("random", *PATTERNS, "dark", "light", *COLOURS, *PUBLIC)


def start_inputs(
    kind: str,
    seeds: Sequence[int],
    role: str,
    shape: tuple[int, ...],
    public: Batch | None = None,
    labels: Tensor | None = None,
) -> Tensor:
    """(T, N, *sample) to begin from.

    random: N(0, 1). patterned-k: a U[0, 1) tile repeated k x k. dark, light, red, green, blue: constant. optimal: a
    public sample of the same kind. same-class: one with the label (T, N) that the attacker knows or has read; of any
    class where no public sample has that label. hybrid: optimal with its centre replaced by U[0, 1).
    """
    if kind == "random":
        return normal(seeds, role, shape)
    if kind in PUBLIC:
        return _from_public(kind, seeds, role, shape, public, labels)
    if kind in PATTERNS:
        return _patterned(int(kind.partition("-")[2]), seeds, role, shape)
    start = torch.full((len(seeds), *shape), 1.0 if kind == "light" else 0.0)
    if kind in COLOURS:
        if len(shape) != 4 or shape[1] != 3:
            raise NotApplicable(f"start {kind!r} needs three colour channels, a sample is {shape[1:]}; use --init dark")
        start[:, :, COLOURS.index(kind)] = 1.0
    return start


def _patterned(repeats: int, seeds: Sequence[int], role: str, shape: tuple[int, ...]) -> Tensor:
    """One tile repeated along height and width, or along the columns of a table: exactly periodic."""
    fixed, sides = (shape[:2], shape[2:]) if len(shape) == 4 else (shape[:1], shape[1:])
    if min(sides) < repeats:
        got = "x".join(map(str, sides))
        raise BadInput(f"init patterned-{repeats}", allowed=f"on sides of {repeats} or more", got=got, do="repeat less")
    tile = uniform(seeds, role, (*fixed, *(-(-side // repeats) for side in sides)))
    tiled = tile.repeat(*[1] * (1 + len(fixed)), *[repeats] * len(sides))
    for axis, side in enumerate(sides, start=1 + len(fixed)):
        tiled = tiled.narrow(axis, 0, side)
    return tiled


def _from_public(
    kind: str, seeds: Sequence[int], role: str, shape: tuple[int, ...], public: Batch | None, labels: Tensor | None
) -> Tensor:
    if public is None:
        raise NotApplicable(f"start {kind!r} needs public data, which this threat model hides; use --init patterned-2")
    pool = public.inputs[0].cpu()
    if kind == "same-class":
        if labels is None:
            raise NotApplicable("start 'same-class' needs labels, which are searched for here; use --init optimal")
        draws = uniform(seeds, f"{role}/class", (labels.shape[1], len(pool)))  # (T, N, pool)
        fits = labels.cpu()[..., None] == public.classes[0].cpu()
        return pool[(draws + fits).argmax(-1)]  # a match adds 1, so that any match beats all others
    picks = per_trial(seeds, f"{role}/pick", lambda g: torch.randint(len(pool), (shape[0],), generator=g))
    start = pool[picks].clone()  # (T, N, *sample)
    if kind == "hybrid" and len(shape) == 4:
        h, w = shape[2:]
        middle = (..., slice(h // 4, h // 4 + h // 2), slice(w // 4, w // 4 + w // 2))
        start[middle] = uniform(seeds, f"{role}/centre", (*shape[:2], h // 2, w // 2))
    return start

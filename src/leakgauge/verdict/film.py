"""Pictures of a search on its way: kept behind what was recovered, as bytes on disk.

What is kept of a trial is ((1 + F) N, *shape): its N records, then the same after each of F steps. An attack with a
film has one answer, so nothing else lies behind the records.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.metrics.assignment import reorder
from leakgauge.types import BLANK

_LEVELS = 255  # a frame is a picture to look at, nothing is scored by it


def with_film(recovered: Tensor, film: Tensor, order: Tensor) -> Tensor:
    """(T, N, *shape), and (T, F, M, *shape) in the attack's order (T, M) of the records -> (T, (1 + F) N, *shape)."""
    tidy = torch.nan_to_num(film.detach().to(recovered), BLANK, 1, 0).clamp(0, 1)
    frames = [reorder(frame, order)[:, : recovered.shape[1]] for frame in tidy.unbind(1)]
    return torch.cat((recovered, *((_LEVELS * f).round() / _LEVELS for f in frames)), 1)


def records_in(kept: Tensor, frames: int) -> Tensor:
    """What is kept of trials, (T, rows, *shape), without its film."""
    return kept[:, : kept.shape[1] // (1 + frames)] if frames else kept


def film_in(kept: Tensor, frames: int) -> Tensor:
    """(T, (1 + F) N, *shape) -> (T, F, N, *shape)."""
    return kept.reshape(len(kept), 1 + frames, -1, *kept.shape[2:])[:, 1:]


def packed(film: Tensor) -> Tensor:
    """As bytes, a quarter of the size."""
    return (_LEVELS * film).round().to(torch.uint8)


def unpacked(film: Tensor) -> Tensor:
    return film.float() / _LEVELS

"""What an update itself gives away about the defense behind it, and the same defense for the attacker's own gradients.

Li et al. 2022 (GGL), section 3.3: a clipping bound is the norm of the update, pruning shows in its exact zeros, and
a muted layer in the empty columns of the last weight. A gradient that the attacker simulates goes through the guess
before it is compared, so that the true sample still costs nothing. Noise leaves nothing to imitate.

Kept entries are counted per tensor, which repeats pruning of each tensor and of the whole update alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

TRANSFORMS = ("auto", "none", "clip", "compress", "columns")
_SHORTER = 0.9  # an update shorter than this share of every simulated one was clipped


@dataclass(frozen=True)
class Guess:
    """Per trial, what to do to a simulated gradient; empty means nothing."""

    kept: Mapping[str, Tensor] = field(default_factory=dict)  # tensor -> (T,) how many entries were sent
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # tensor -> (T, 1, d) which columns were sent
    bound: Tensor | None = None  # (T,) largest norm; infinite where nothing was clipped

    def applied(self, gradients: Mapping[str, Tensor], trials: Tensor) -> dict[str, Tensor]:
        """The gradients (A, *parameter) of rows that belong to these trials (A,), as a defended client sends them."""
        changed = dict(gradients)
        for name, mask in self.columns.items():  # first: their zeros are counted among those not kept
            changed[name] = changed[name] * mask[trials]
        for name, count in self.kept.items():
            changed[name] = largest(changed[name], count[trials])
        if self.bound is None:
            return changed
        scale = (self.bound[trials] / norms(changed).clamp_min(1e-30)).clamp(max=1.0)
        return {name: g * scale.view(-1, *[1] * (g.dim() - 1)) for name, g in changed.items()}


def guess(observed: Mapping[str, Tensor], transform: str, last_weight: str, usual: Tensor | None = None) -> Guess:
    """Read the defense off the update (T first).

    "auto" takes what is visible: exact zeros, and a norm below every one in `usual` (T, S), the norms of gradients that
    the attacker's own samples give. At the true sample a wrong guess of this kind costs nothing either.
    """
    found = Guess()
    if transform in ("columns", "auto") and last_weight in observed:
        sent = (observed[last_weight] != 0).any(1, keepdim=True)
        if transform == "columns" or not bool(sent.all()):
            found = Guess(columns={last_weight: sent.to(observed[last_weight])})
    if transform in ("compress", "auto"):
        counts = {name: (g != 0).flatten(1).sum(1) for name, g in observed.items()}
        holes = {name: c for name, c in counts.items() if bool((c < observed[name][0].numel()).any())}
        found = Guess(holes, found.columns if transform == "auto" else {})
    length = norms(observed)
    if transform == "clip":
        return Guess(bound=length)
    if transform == "auto" and usual is not None:
        clipped = length < _SHORTER * usual.amin(1)
        bound = torch.where(clipped, length, torch.full_like(length, torch.inf))
        return Guess(found.kept, found.columns, bound if bool(clipped.any()) else None)
    return found


def largest(tensor: Tensor, count: Tensor) -> Tensor:
    """(A, ...) with all but the `count` (A,) entries of largest magnitude of each row set to zero."""
    rows = tensor.flatten(1)
    order = rows.detach().abs().sort(dim=1, stable=True).indices
    place = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    sent = torch.zeros_like(rows).scatter(1, order, (place >= rows.shape[1] - count[:, None]).to(rows))
    return (rows * sent).view_as(tensor)


def norms(tensors: Mapping[str, Tensor]) -> Tensor:
    """(T,) length of the whole update."""
    squares = [(t * t).flatten(1).sum(1) for t in tensors.values()]
    return torch.stack(squares).sum(0).sqrt()

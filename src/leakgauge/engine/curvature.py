"""What L-BFGS remembers: the last m pairs of each row, and the direction -H g they give.

The inverse Hessian is used in its compact form (Byrd, Nocedal and Schnabel 1994): a handful of batched products instead
of two loops over the pairs. Its triangular factor R = triu(S'Y) is kept as its inverse: a new pair adds one column, and
dropping the oldest pair drops one row and column, so slots of a ring can be overwritten in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 1e-10  # pairs with less curvature are not remembered, where the objective is of the size of 1


@dataclass
class Curvature:
    """All tensors have the rows on their first axis and are changed in place."""

    pairs: Tensor  # (A, 2m, D): s of slot i at 2i, y at 2i + 1
    inverse: Tensor  # (A, m, m) of triu(S'Y) in slots; zero outside those in use. float64: it is ill-conditioned
    y_products: Tensor  # (A, m, m) y_i . y_j
    curvatures: Tensor  # (A, m) s_i . y_i
    count: Tensor  # (A,) pairs stored since the memory was last emptied
    gamma: Tensor  # (A,) scale of the initial inverse Hessian

    @classmethod
    def empty(cls, x: Tensor, size: int) -> Curvature:
        rows, width = x.shape

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(rows, *shape, dtype=torch.float64, device=x.device)

        count = torch.zeros(rows, dtype=torch.long, device=x.device)
        return cls(
            x.new_zeros(rows, 2 * size, width),
            zeros(size, size),
            zeros(size, size),
            zeros(size),
            count,
            x.new_ones(rows),
        )

    def keep(self, rows: Tensor) -> None:
        for name, tensor in vars(self).items():
            setattr(self, name, tensor[rows])

    def forget(self, rows: Tensor) -> None:
        """Empty the memory where `rows` (A,) is True."""
        stays = ~rows
        self.inverse *= stays[:, None, None]
        self.y_products *= stays[:, None, None]
        self.curvatures *= stays[:, None]
        self.count *= stays
        self.gamma.copy_(torch.where(rows, torch.ones_like(self.gamma), self.gamma))

    def store_and_direct(self, s: Tensor, y: Tensor, rows: Tensor, g: Tensor, least: Tensor | float = LEAST) -> Tensor:
        """Remember the pair of each row where `rows` is True, then give -H g for every row (-g if it has no pairs).

        Pairs with no more curvature than `least` are not remembered.

        The pairs are by far the largest thing here, so they are read twice an iteration and no more.
        """
        curvature = (s * y).sum(1)
        rows = rows & (curvature > least)
        a, slot = torch.arange(len(rows), device=rows.device), self.count % self.curvatures.shape[1]
        for place, value in ((2 * slot, s), (2 * slot + 1, y)):
            self.pairs[a, place] = torch.where(rows[:, None], value, self.pairs[a, place])
        # The first reading. This way round, long rows times long rows, is four times as fast on a CPU as the other.
        products = torch.bmm(torch.stack((y, g), 1), self.pairs.transpose(1, 2)).double()  # (A, 2, 2m)
        self._add(a, slot, curvature.double(), products[:, 0, 0::2], products[:, 0, 1::2], rows)
        size = (y * y).sum(1).clamp_min(torch.finfo(y.dtype).tiny)
        self.gamma.copy_(torch.where(rows, curvature / size, self.gamma))
        self.count += rows
        weights = self._weights(products[:, 1, 0::2], products[:, 1, 1::2]).to(g.dtype)
        return torch.bmm(weights[:, None], self.pairs)[:, 0] - self.gamma[:, None] * g  # the second reading

    def _add(self, a: Tensor, slot: Tensor, curvature: Tensor, sy: Tensor, yy: Tensor, rows: Tensor) -> None:
        """A new pair in `slot`: its products with all s and y are given. Only where `rows` is True."""
        new = rows[:, None]
        here = slot[:, None] == torch.arange(sy.shape[1], device=slot.device)  # (A, m)
        column = self.inverse[a, :, slot]
        self.inverse[a, slot] = torch.where(new, 0.0, self.inverse[a, slot])  # whatever was in the slot drops out
        self.inverse[a, :, slot] = torch.where(new, 0.0, column)
        added = torch.bmm(self.inverse, (-sy / curvature[:, None])[:, :, None])[:, :, 0]
        self.inverse[a, :, slot] = torch.where(new, torch.where(here, 1 / curvature[:, None], added), column)
        # Slots that are not in use hold stale pairs: their products must not enter.
        yy = torch.where(here | (self.curvatures != 0), yy, 0.0)
        fresh = torch.where(new, yy, self.y_products[a, slot])
        self.y_products[a, slot] = fresh
        self.y_products[a, :, slot] = fresh
        self.curvatures.copy_(torch.where(new & here, curvature[:, None], self.curvatures))

    def _weights(self, sg: Tensor, yg: Tensor) -> Tensor:
        """Weights (A, 2m) of the remembered vectors in -H g + gamma g, from their products with g: all of it small."""
        gamma = self.gamma.double()[:, None]
        u = torch.bmm(self.inverse, sg[:, :, None])[:, :, 0]
        w = self.curvatures * u + gamma * (torch.bmm(self.y_products, u[:, :, None])[:, :, 0] - yg)
        v = torch.bmm(self.inverse.transpose(1, 2), w[:, :, None])[:, :, 0]
        return torch.stack((-v, gamma * u), 2).flatten(1)

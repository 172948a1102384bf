"""Learned proportions: the server keeps a logit for each client and moves it with Adam, so that validation losses fall.

Ren's thesis (Swansea 2023, section 6.2) names this as future work: FedBoosting's proportions cost much communication
and computation, and Adam might produce them instead. It gives no loss, gradient or formula; what follows is ours.

Shares are p = softmax(logits) over the round's T clients. As in FedBoosting, clients try T models on samples they kept
back. Model i is the fused model, sum_k p_k update_k with the shares so far, moved towards client i: `own` is the share
of update i in place of the fused one. V_ij is its loss at client j. To first order in `own`, V_ij is the loss of the
fused model plus own (d_ij - sum_k p_k d_kj), where d_ij is the derivative of client j's loss by p_i. So
s_i = mean_j (V_ij - sum_k p_k V_kj) / own is the derivative of the clients' mean loss by p_i, up to what is the same
for all i, and through the softmax d/d logit_k = p_k (s_k - sum_i p_i s_i). One step of Adam (Kingma and Ba 2015)
follows that gradient in each round, before the updates are added.

  With `own=1` clients try each other's models as they are. That straight line has its least value at one end: with
  enough rounds or a large `lr` all weight goes to one client. Adam moves a logit as fast for a small difference as for
  a large one, so an honest client whose model is always a little worse loses its share too; a larger `eps` helps.
  A client's losses are scaled down where they differ by more than three times the median client's, so that one client
  cannot drown the others. A loss that is not finite counts as ten times the largest that is.
  Each client has its own count of Adam's steps. A client that is not drawn keeps what it has. The mean of the steps of
  a round is taken off, which leaves the shares alone, so that a client that joins late begins at a middling share.
  `every=5` tries models in every fifth round alone, which is the saving the thesis is after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.federation.aggregators.aggregator import Aggregator, Reported
from leakgauge.settings import setting

_LOUDEST = 3.0  # how far a client's losses may differ, as a multiple of the median client's
_BROKEN = 10.0  # what a loss that is not finite counts, as a multiple of the largest finite one


@dataclass(frozen=True)
class LearnedProportions(Aggregator):
    """Future work of Ren's thesis.

    Example: `leakgauge train --aggregator learned-proportions:lr=0.1 --partition kind=dirichlet,alpha=0.3,clients=10`
    """

    name: ClassVar[str] = "learned-proportions"
    summary: ClassVar[str] = "the server learns the clients' shares with Adam from losses on each other's samples"
    paper: ClassVar[str] = "Ren 2023, thesis, section 6.2 (future work); the gradient is ours"
    cross_validates: ClassVar[bool] = True

    lr: float = setting(0.1, "Adam's rate: about how far a client's logit moves in a round", above=0)
    beta1: float = setting(0.9, "share of the direction that is kept from round to round", low=0, high=0.9999)
    beta2: float = setting(0.999, "share of the squares that is kept from round to round", low=0, high=0.9999)
    eps: float = setting(1e-8, "slopes of logits that are smaller than this are not sped up", above=0)
    own: float = setting(
        0.1,
        "share of a client's own update in the model that others try; the rest is fused; 1 does not fuse",
        above=0,
        high=1,
    )
    start: str = setting("equal", "the shares that learning begins with", choices=("equal", "samples"))
    every: int = setting(1, "clients try each other's models in every so many rounds, from the first on", low=1)
    validation: float = setting(0.1, "share of a client's samples it keeps back to try models on", above=0, high=0.5)

    @property
    def mixing(self) -> float:
        return self.own

    def mixing_weights(self, reported: Reported, memory: Mapping[str, Tensor], g: torch.Generator) -> Tensor | None:  # noqa: ARG002
        """Each row the shares so far, and `own` of one client in their place."""
        if self.own == 1:
            return None
        so_far = self.weigh(reported, memory)[0]
        return (1 - self.own) * so_far.expand(len(so_far), -1) + self.own * torch.eye(len(so_far), dtype=torch.float64)

    def weights(self, reported: Reported) -> Tensor:
        """Of the first round."""
        return self.weigh(reported, {})[0]

    def weigh(self, reported: Reported, memory: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Remembers by client number, all (K,): `learned` (what is added to the first logits), `m`, `v` and `steps`."""
        who = torch.arange(len(reported.samples)) if reported.clients is None else reported.clients.cpu()
        nothing, clients = torch.zeros(0, dtype=torch.float64), int(who.max()) + 1
        known = {n: memory.get(n, nothing).cpu() for n in ("learned", "m", "v", "steps")}
        kept = {n: torch.cat([t, t.new_zeros(max(0, clients - len(t)))]) for n, t in known.items()}  # zeros if new
        learned, m, v, steps = (tensor[who] for tensor in kept.values())
        first = reported.samples.double().cpu().log() if self.start == "samples" else torch.zeros_like(learned)
        if reported.validation is not None:  # one step of Adam for these clients
            shares = torch.softmax(first + learned, 0)
            gradient = slopes_of_logits(reported.validation.double().cpu(), shares, self.own)
            steps = steps + 1
            m = self.beta1 * m + (1 - self.beta1) * gradient
            v = self.beta2 * v + (1 - self.beta2) * gradient**2
            step = m / (1 - self.beta1**steps) / ((v / (1 - self.beta2**steps)).sqrt() + self.eps)
            learned = learned - self.lr * (step - step.mean())
            for tensor, new in zip(kept.values(), (learned, m, v, steps), strict=True):
                tensor[who] = new
        return torch.softmax(first + learned, 0), kept


def slopes_of_logits(validation: Tensor, shares: Tensor, own: float) -> Tensor:
    """(T,) the gradient of the fused model's mean validation loss by the logits, to first order in `own`.

    `validation` (T, T) has the loss at client j of the model fused by `shares` (T,) and moved by `own` to client i.
    """
    finite = validation[validation.isfinite()]
    worst = _BROKEN * float(finite.max()) if len(finite) else 1.0
    losses = torch.where(validation.isfinite(), validation, torch.full_like(validation, worst))
    differences = (losses - shares @ losses) / own  # (T, T): of each model to the mean one, as client j sees it
    size = differences.norm(dim=0)
    differences = differences * (_LOUDEST * size.median() / size.clamp(min=1e-300)).clamp(max=1)
    slopes = differences.mean(1)
    gradient: Tensor = shares * (slopes - shares @ slopes)
    return gradient

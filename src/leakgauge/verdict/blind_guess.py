"""How often would a guess succeed that never saw an update? The kappa of every bound on reconstruction.

As many pictures as the update has records are chosen on public data: of the mean, the class means and some
samples, greedily those that together meet the criterion for most other public samples. Then they are tried on private
samples that nobody attacks. A record counts as guessed if any of the pictures meets the criterion, which is generous to
the guess. A cleverer guess may exist: kappa is that of the best we know, with its upper confidence limit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.metrics.criterion import Criterion, criterion_of
from leakgauge.metrics.intervals import at_most
from leakgauge.types import Batch, DataSpec, Rate

_TYPICAL, _DRAWN = 8, 16  # public samples that are tried as guesses: nearest to the mean, and any
_TRIED_ON = 160  # public samples that guesses are chosen by
_MEASURED_ON = 500  # private samples that they are measured on


def blind_success(
    data: DataSpec, public: Batch | None, private: Batch | None, guesses: int, *, by_label: bool = False
) -> Rate | None:
    """The share of private samples that `guesses` public pictures hit; `high` is the upper end of its 95 % interval.

    `by_label` lets the guesser know each label, as a threat model may. None without samples to choose or measure by.
    """
    if public is None or private is None:
        return None
    rule = criterion_of(data)
    pictures, labels = _pictures(public)
    some = Batch(public.inputs[:, :_TRIED_ON], public.labels[:, :_TRIED_ON])
    hits = _hits(rule, pictures, some, data)  # (G, P)
    if by_label:
        hits &= _told(labels, some)
    chosen = _greedy(hits, labels if by_label else torch.zeros_like(labels), guesses)
    held = Batch(private.inputs[:, :_MEASURED_ON], private.labels[:, :_MEASURED_ON])
    found = _hits(rule, pictures[chosen], held, data)
    if by_label:
        found &= _told(labels[chosen], held)
    k, n = int(found.any(0).sum()), found.shape[1]
    return Rate(k / n, 0.0, at_most(k, n), k, n, str(rule))


def _pictures(public: Batch) -> tuple[Tensor, Tensor]:
    """Guesses (G, *shape) and the label each is for; -1 stands for any."""
    inputs, labels = public.inputs[0], public.labels[0]
    mean = inputs.mean(0)
    present = torch.unique(labels)
    classes = torch.stack([inputs[labels == label].mean(0) for label in present])
    nearest = (inputs - mean).flatten(1).square().sum(1).argsort()
    typical = torch.cat([nearest[:_TYPICAL], torch.arange(min(_DRAWN, len(inputs)), device=inputs.device)])
    return torch.cat([mean[None], classes, inputs[typical]]), torch.cat(
        [-torch.ones_like(present[:1]), present, labels[typical]]
    )


def _hits(rule: Criterion, pictures: Tensor, held: Batch, data: DataSpec) -> Tensor:
    """(G, P) bool: does the picture meet the criterion for the sample?"""
    metric, samples = catalog.get("metrics", rule.metric), held.inputs[0]
    return rule.hits(torch.stack([metric(samples, picture.expand_as(samples), data) for picture in pictures]))


def _told(labels: Tensor, held: Batch) -> Tensor:
    """(G, P) bool: may the picture be used for a sample of that label?"""
    return (labels[:, None] == held.labels) | (labels[:, None] == -1)


def _greedy(hits: Tensor, groups: Tensor, guesses: int) -> list[int]:
    """Of each group the pictures that hit most samples that none before them did, up to so many."""
    chosen: list[int] = []
    for group in torch.unique(groups).tolist():
        members = (groups == group).nonzero()[:, 0]
        left = torch.ones_like(hits[0])
        for _ in range(min(guesses, len(members))):
            gains = (hits[members] & left).sum(1)
            best = members[int(gains.argmax())]
            chosen.append(int(best))
            left = left & ~hits[best]
    return sorted(set(chosen))

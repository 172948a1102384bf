"""Draws the private batches of the trials, and the public sample, from a data set.

No sample is drawn twice, and the victims of trial t are the same however many trials follow it. Crops of one photograph
are victims only if there are no others left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.data._dataset import Dataset
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.types import Batch


def draw_victims(
    dataset: Dataset,
    trials: int,
    batch_size: int,
    seed: int,
    batch_labels: str = "any",
    shares: Sequence[Tensor] = (),
    clients: int = 1,
) -> Batch:
    """T = `trials` batches of N = `batch_size` samples: inputs (T, N, *shape), labels (T, N).

    `batch_labels` "distinct" makes the labels within a batch pairwise different, "same" all equal. With `shares`, one
    index list per client, the batches come from the clients in turn, each from that client's share alone.

    With `clients`, that many less one others of as many samples stand behind each victim: (T, clients x N, ...). No
    sample is twice in one trial; those of two trials may share some. The others come in turn from the shares that are
    not the victim's, and a larger crowd begins with the smaller one.
    """
    victims = _victims(dataset, trials, batch_size, seed, batch_labels, shares)
    if clients == 1:
        return Batch(*dataset.take(torch.tensor(victims)))
    crowds = []
    for trial, own in enumerate(victims):
        order = _shuffled(len(dataset), generator(seed + trial, "crowd").initial_seed())
        home = trial % max(1, len(shares))
        pools = [share for number, share in enumerate(shares) if number != home] if len(shares) > 1 else []
        orders = [order[torch.isin(order, p)] for p in pools] or [order[~torch.isin(order, torch.tensor(own))]]
        others = _in_turn(dataset, orders, clients - 1, batch_size, batch_labels)
        crowds.append(own + [sample for batch in others for sample in batch])
    return Batch(*dataset.take(torch.tensor(crowds)))


def draw_others(
    dataset: Dataset,
    limit: int,
    trials: int,
    batch_size: int,
    seed: int,
    batch_labels: str = "any",
    shares: Sequence[Tensor] = (),
) -> Batch | None:
    """At most `limit` samples that `draw_victims` leaves alone, as one batch (1, K, ...); None if it takes all."""
    taken = torch.tensor(_victims(dataset, trials, batch_size, seed, batch_labels, shares)).flatten()
    order = _shuffled(len(dataset), generator(seed, "others").initial_seed())
    left = order[~torch.isin(order, taken)][:limit]
    return Batch(*dataset.take(left[None])) if len(left) else None


def _victims(
    dataset: Dataset, trials: int, batch_size: int, seed: int, batch_labels: str, shares: Sequence[Tensor]
) -> list[list[int]]:
    """The samples of each trial, by index."""
    for what, value in (("trials", trials), ("batch_size", batch_size)):
        if value < 1:
            raise BadInput(what, allowed="at least 1", got=value, do="choose a value in that range")
    if batch_labels not in ("any", "distinct", "same"):
        allowed = "one of any, distinct, same"
        raise BadInput("batch_labels", allowed=allowed, got=repr(batch_labels), do="choose one of these")
    order = _shuffled(len(dataset), seed)
    if dataset.origins is not None:  # crops of one photograph as far apart as can be: they are not two victims
        origins = dataset.origins[order]
        turns = (origins[:, None] == origins).tril(-1).sum(1)  # how many crops of its photograph come before it
        order = order[turns.argsort(stable=True)]
    orders = [order[torch.isin(order, share)] for share in shares] or [order]
    return _in_turn(dataset, orders, trials, batch_size, batch_labels)


def _in_turn(
    dataset: Dataset, orders: Sequence[Tensor], trials: int, batch_size: int, batch_labels: str
) -> list[list[int]]:
    """So many batches, from the first order, the second and so on, and the first again."""
    each = -(-trials // len(orders))  # rounded up
    draws = [_draw(dataset.labels, mine, each, batch_size, batch_labels) for mine in orders]
    rounds = [draws[t % len(draws)][t // len(draws) :][:1] for t in range(trials)]
    chosen = [batch for found in rounds for batch in found]
    if len(chosen) < trials:
        raise _too_few(dataset, len(chosen), trials, batch_size, batch_labels, len(orders))
    return chosen


def public_batch(dataset: Dataset, limit: int, seed: int) -> Batch:
    """At most `limit` samples of a public split as one batch: T = 1, N = min(limit, samples)."""
    if limit < 1:
        raise BadInput("limit", allowed="at least 1", got=limit, do="choose a value in that range")
    return Batch(*dataset.take(_shuffled(len(dataset), seed)[None, :limit]))


def _shuffled(samples: int, seed: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def _draw(labels: Tensor, order: Tensor, trials: int, batch_size: int, batch_labels: str) -> list[list[int]]:
    """Up to `trials` full batches of the samples that come first in the order and fit together."""
    if batch_labels == "any":
        rows = order.tolist()
        return [rows[i * batch_size : (i + 1) * batch_size] for i in range(min(trials, len(rows) // batch_size))]
    queues: dict[int, deque[tuple[int, int]]] = {}  # label -> (place in the order, sample), in order
    for place, (sample, label) in enumerate(zip(order.tolist(), labels[order].tolist(), strict=True)):
        queues.setdefault(label, deque()).append((place, sample))
    chosen: list[list[int]] = []
    while len(chosen) < trials:
        needed = batch_size if batch_labels == "same" else 1
        usable = sorted((q for q in queues.values() if len(q) >= needed), key=lambda q: q[0])
        if batch_labels == "same" and usable:
            chosen.append([usable[0].popleft()[1] for _ in range(batch_size)])
        elif batch_labels == "distinct" and len(usable) >= batch_size:
            chosen.append([q.popleft()[1] for q in usable[:batch_size]])
        else:
            break
    return chosen


def _too_few(
    dataset: Dataset, possible: int, trials: int, batch_size: int, batch_labels: str, clients: int
) -> BadInput:
    if clients > 1:
        allowed = f"small enough for {clients} clients that share {len(dataset)} samples"
        got, do = f"{trials} batches of {batch_size}", "lower either, use fewer clients or a milder partition"
        return BadInput("trials and batch_size", allowed=allowed, got=got, do=do)
    kind = "" if batch_labels == "any" else f" with {batch_labels} labels"
    counts = dataset.labels.bincount()
    classes = int((counts > 0).sum())
    of = f"data {dataset.spec.name!r} ({len(dataset)} samples of {classes} classes"
    if possible == 0:
        most = {"any": len(dataset), "distinct": classes, "same": int(counts.max())}[batch_labels]
        what, do = f"batch_size{kind} for {of})", "choose smaller batches or other data"
        return BadInput(what, allowed=f"at most {most}", got=batch_size, do=do)
    what = f"trials of {batch_size} samples{kind} for {of}, each used once)"
    do = "choose fewer trials, smaller batches or other data"
    return BadInput(what, allowed=f"at most {possible}", got=trials, do=do)

"""Local models tried on samples that clients kept back: T models, T clients, one result for each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput
from leakgauge.types import SharedUpdate

_CHUNK = 256  # samples at a time; all models see them side by side


def split_clients(clients: Sequence[Tensor], share: float, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """What each client trains on and what it keeps back: this share of its samples, drawn at random, at least one."""
    if share == 0:
        return list(clients), [indices[:0] for indices in clients]
    fewest = min(len(indices) for indices in clients)
    if fewest < 2:
        allowed = "with two samples or more at every client, one to keep back"
        do = "use fewer clients, a less skewed partition or another aggregator"
        raise BadInput("aggregator: validation", allowed=allowed, got=f"a client with {fewest}", do=do)
    train, kept = [], []
    for client, indices in enumerate(clients):
        count = max(1, round(share * len(indices)))
        back = torch.zeros(len(indices), dtype=torch.bool)
        back[torch.randperm(len(indices), generator=generator(seed, f"kept-back/{client}"))[:count]] = True
        train.append(indices[~back])
        kept.append(indices[back])
    return train, kept


def local_models(model: nn.Module, updates: SharedUpdate, lr: float) -> dict[str, Tensor]:
    """The T models behind T updates, by name: (T, *parameter), and buffers where they are shared."""
    sign = -lr if updates.kind == "gradient" else 1.0
    now = {n: p.detach() for n, p in model.named_parameters()}
    moved = {n: now[n] + sign * t.detach() for n, t in updates.tensors.items()}
    return moved | {n: b.detach() for n, b in updates.buffers.items()}


@torch.no_grad()
def tried(
    model: nn.Module, models: Mapping[str, Tensor], inputs: Tensor, labels: Tensor, owners: Tensor, metric: str
) -> Tensor:
    """(T, K) on the CPU: the mean loss or accuracy of each model on the samples of each of the K owners.

    `owners` (M,) numbers whose sample each is, 0 to K - 1.
    """
    worker = model.eval()
    side_by_side = vmap(lambda own, x: functional_call(worker, own, (x,)), in_dims=(0, None), randomness="different")
    pieces = zip(torch.split(inputs, _CHUNK), torch.split(labels, _CHUNK), strict=True)
    scores = torch.cat([_scored(side_by_side(dict(models), x), y, metric) for x, y in pieces], 1)  # (T, M)
    belongs = nn.functional.one_hot(owners.to(scores.device)).to(scores.dtype)  # (M, K)
    # A broken model has nan everywhere; as a product with zeros it would spoil only its own row, which is meant.
    return (scores @ belongs / belongs.sum(0)).cpu()


def _scored(logits: Tensor, labels: Tensor, metric: str) -> Tensor:
    """(T, M, C) -> (T, M), in double precision."""
    wanted = labels.expand(len(logits), -1)
    if metric == "accuracy":
        return (logits.argmax(-1) == wanted).double()
    return -torch.log_softmax(logits.double(), -1).gather(-1, wanted[..., None])[..., 0]

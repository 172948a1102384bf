"""Who holds what: split a data set's indices over clients, IID or skewed. Every sample goes to exactly one client."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leakgauge.errors import BadInput
from leakgauge.types import Partition


def iid(labels: Tensor, clients: int, seed: int) -> list[Tensor]:
    """Equal shares of a shuffled data set."""
    _check(labels, clients)
    order = np.random.default_rng(seed).permutation(len(labels))
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(order, clients)]


def classes_per_client(labels: Tensor, clients: int, classes: int, seed: int) -> list[Tensor]:
    """`classes` different labels per client, each label spread over those who hold it (McMahan et al. 2017).

    With fewer than one slot per label, the labels left over are handed to somebody so that no sample is lost.
    """
    _check(labels, clients)
    present = np.unique(labels.numpy())
    if not 1 <= classes <= len(present):
        raise BadInput(
            "classes per client", allowed=f"1 to {len(present)}", got=classes, do="choose a number in that range"
        )
    rng = np.random.default_rng(seed)
    owners = _deal_classes(present, clients, classes, rng)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in present:
        holders = [c for c in range(clients) if label in owners[c]]
        indices = rng.permutation(np.flatnonzero(labels.numpy() == label))
        for client, share in zip(holders, np.array_split(indices, len(holders)), strict=True):
            parts[client].append(share)
    return [torch.from_numpy(np.sort(np.concatenate(p))) for p in parts]


def dirichlet(labels: Tensor, clients: int, alpha: float, seed: int) -> list[Tensor]:
    """Each class is split in proportions drawn from Dirichlet(alpha) (Hsu et al. 2019); small alpha is skewed."""
    _check(labels, clients)
    if not alpha > 0:
        raise BadInput("alpha", allowed="above 0", got=alpha, do="use 0.1 for strong skew, 100 for almost IID")
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(labels.numpy()):
        indices = rng.permutation(np.flatnonzero(labels.numpy() == label))
        cuts = (np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(indices)).round().astype(int)
        for client, share in enumerate(np.split(indices, cuts)):
            parts[client].append(share)
    return [torch.from_numpy(np.sort(np.concatenate(p))) for p in parts]


def _deal_classes(present: np.ndarray, clients: int, classes: int, rng: np.random.Generator) -> list[set[int]]:
    """Deal `classes` different labels to each client so that all labels are held about equally often."""
    load = dict.fromkeys(present.tolist(), 0)
    owners: list[set[int]] = []
    for _ in range(clients):
        order = rng.permutation(present)
        chosen = sorted(order.tolist(), key=lambda label: load[label])[:classes]  # stable: ties stay random
        for label in chosen:
            load[label] += 1
        owners.append(set(chosen))
    for label in (c for c, n in load.items() if n == 0):  # fewer slots than labels: hand the rest to somebody
        owners[int(rng.integers(clients))].add(label)
    return owners


def shares(labels: Tensor, partition: Partition, seed: int) -> list[Tensor]:
    """One index list per client, as `partition` says; a single share of everything for kind "none"."""
    if partition.kind == "iid":
        return iid(labels, partition.clients, seed)
    if partition.kind == "classes":
        return classes_per_client(labels, partition.clients, partition.classes, seed)
    if partition.kind == "dirichlet":
        return dirichlet(labels, partition.clients, partition.alpha, seed)
    return [torch.arange(len(labels))]


def _check(labels: Tensor, clients: int) -> None:
    if not 1 <= clients <= len(labels):
        raise BadInput(
            "clients", allowed=f"1 to {len(labels)} (the samples)", got=clients, do="choose a number in that range"
        )

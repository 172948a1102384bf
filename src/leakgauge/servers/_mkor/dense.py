"""Dense layers in which every class has units of its own in the first one, so that their gradient is its alone.

Naive: all rows of the first layer are the same and the later layers are identities. Inconspicuous: the layers keep
their random values; each class owns a pair of first-layer units of opposite sign, of which one is always active, and
one unit in each later layer; what links other units to these is made small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.errors import NotApplicable

_TINY = 1e-30


@dataclass(frozen=True)
class Owners:
    """Which units belong to which class, layer by layer: what the server keeps for itself.

    Each class has P paths, so that one is left if dropout takes another: path p of class c is entry p C + c.
    """

    names: tuple[str, ...]  # of the dense layers
    pairs: Tensor  # (P C, 2) units of the first dense layer; both the same where one is enough
    chain: tuple[Tensor, ...]  # per later layer but the last: (P C,) units
    classes: int

    @property
    def written(self) -> tuple[Tensor, ...]:
        """Per later layer: the unit or logit on each path, (P C,)."""
        return (*self.chain, torch.arange(len(self.pairs)) % self.classes)


def plan_owners(
    widths: Mapping[str, int], classes: int, server: str, draw: torch.Generator | None, paths: int = 1
) -> Owners:
    """`widths` are the units of the dense layers in order; the last are the logits. In order without `draw`."""
    names, many = tuple(widths), len(widths)
    if paths > 1 and many == 1:
        raise NotApplicable(f"{server}: {paths} paths for each class need two dense layers or more; choose paths=1")
    own = torch.arange(paths * classes)
    in_order = draw is None or many == 1
    wanted = [len(own) * (1 if in_order else 2), *[len(own)] * (many - 2), classes][:many]
    several = f" with {paths} paths each" if paths > 1 else ""
    for (name, width), needed in zip(widths.items(), wanted, strict=True):
        if width < needed:
            taken = f"{classes} classes{several} take {needed} units, and it has {width}"
            raise NotApplicable(f"{server} cannot prepare layer {name!r}: {taken}")
    if in_order:
        return Owners(names, torch.stack((own, own), 1), (own,) * (many - 2), classes)
    first, *later = (torch.randperm(widths[name], generator=draw) for name in names[:-1])
    pairs = first[: 2 * len(own)].reshape(-1, 2)
    return Owners(names, pairs, tuple(units[: len(own)] for units in later), classes)


@torch.no_grad()
def write_naive(layers: Sequence[nn.Linear], owners: Owners) -> None:
    """The same mean of all features in every first unit, then identities; the last adds up the paths of a class."""
    for i, layer in enumerate(layers):
        layer.bias.zero_()
        if i == 0:
            layer.weight.fill_(1 / layer.in_features)
        else:
            nn.init.eye_(layer.weight)
    if len(layers) > 1:
        layers[-1].weight[owners.written[-1], torch.arange(len(owners.pairs))] = 1


@torch.no_grad()
def write_inconspicuous(
    layers: Sequence[nn.Linear],
    owners: Owners,
    link: float,
    leak: float,
    pair_noise: float,
    draw: torch.Generator,
    last_biases: bool = False,
) -> None:
    """In place: Eqs. 10-13 of the paper if `link` and `pair_noise` are 0, `leak` is its sigma, with `last_biases`.

    `link` is in standard deviations of the layer, `leak` and `pair_noise` are absolute and relative; `last_biases`
    makes those of the logits positive too, like the others.
    """

    def noise(rows: int, columns: int) -> Tensor:
        return torch.randn((rows, columns), generator=draw).to(first.weight)

    first, later = layers[0], layers[1:]
    up, down = owners.pairs.T
    ratio = -(0.5 + torch.rand(len(up), 1, generator=draw)).to(first.weight)
    uneven = pair_noise * first.weight.std() * noise(len(up), first.in_features)
    first.weight[down] = ratio * first.weight[up] + uneven
    first.bias[down] = ratio[:, 0] * first.bias[up]
    units = [owners.pairs, *(own[:, None] for own in owners.chain)]  # what each later layer reads, (P C, 1 or 2)
    for n, (layer, read, write) in enumerate(zip(later, units, owners.written, strict=True)):
        own = layer.weight[write[:, None], read].abs() + (link * layer.weight.std() if n == 0 else 0.0)
        columns = read.flatten()
        layer.weight[:, columns] = leak * noise(layer.out_features, len(columns))
        layer.weight[write[:, None], read] = own
        if last_biases or n < len(later) - 1:
            layer.bias[write] = layer.bias[write].abs()


def class_rows(gradient: Mapping[str, Tensor], model: nn.Module, owners: Owners) -> tuple[Tensor, Tensor]:
    """Per trial and class, what its own units received: weight rows (T, C, d) and bias entries (T, C).

    The two of a pair are put on one scale by the links that the gradient passed through; paths are added up.
    """
    weight, bias = gradient[f"{owners.names[0]}.weight"], gradient[f"{owners.names[0]}.bias"]
    up, down = owners.pairs.T.to(weight.device)
    rows, entries = weight[:, up], bias[:, up]  # (T, P C, d), (T, P C)
    if not torch.equal(up, down):
        following = model.get_submodule(owners.names[1]).get_parameter("weight").detach()
        write = owners.written[0].to(weight.device)
        link_up, link_down = following[write, up], following[write, down]  # (P C,)
        rows = rows / link_up[:, None] + weight[:, down] / link_down[:, None]
        entries = entries / link_up + bias[:, down] / link_down
    T, C = len(rows), owners.classes
    return rows.reshape(T, -1, C, rows.shape[2]).sum(1), entries.reshape(T, -1, C).sum(1)


def features_of(rows: Tensor, entries: Tensor) -> Tensor:
    """(T, C, d) over (T, C): the mean feature vector of each class, where anything is known of it."""
    safe = torch.where(entries.abs() < _TINY, torch.full_like(entries, _TINY), entries)
    return rows / safe[..., None]

"""Dense layers in which every class has units of its own in the first one, so that their gradient is its alone.

Naive: all rows of the first layer are the same and the later layers are identities. Inconspicuous: the layers keep
their random values; each class owns a pair of first-layer units of opposite sign, of which one is always active, and
one unit in each later layer; what links other units to these is made small.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    pairs: Tensor  # (P C, 2) units of the first dense layer; both the same where one is enough
    chain: tuple[Tensor, ...]  # per later layer but the last: (P C,) units
    classes: int

    @property
    def outputs(self) -> Tensor:
        """The logit at the end of each path, (P C,)."""
        return torch.arange(len(self.pairs)) % self.classes


def plan_owners(
    widths: list[int], classes: int, names: tuple[str, ...], server: str, draw: torch.Generator | None, paths: int = 1
) -> Owners:
    """`widths` are the units of the dense layers in order; the last are the logits. In order without `draw`."""
    if paths > 1 and len(widths) == 1:
        raise NotApplicable(f"{server}: {paths} paths for each class need two dense layers or more; choose paths=1")
    own = torch.arange(paths * classes)
    per_path = 1 if draw is None or len(widths) == 1 else 2
    wanted = [per_path * len(own), *[len(own)] * (len(widths) - 2), classes][: len(widths)]
    several = f" with {paths} paths each" if paths > 1 else ""
    for width, name, needed in zip(widths, names, wanted, strict=True):
        if width < needed:
            raise NotApplicable(
                f"{server} cannot prepare layer {name!r}: {classes} classes{several} take {needed} units, and it has "
                f"{width}"
            )
    if draw is None or len(widths) == 1:
        return Owners(torch.stack((own, own), 1), tuple(own for _ in widths[1:-1]), classes)
    pairs = torch.randperm(widths[0], generator=draw)[: 2 * len(own)].reshape(-1, 2)
    chain = tuple(torch.randperm(w, generator=draw)[: len(own)] for w in widths[1:-1])
    return Owners(pairs, chain, classes)


def write_naive(layers: list[nn.Linear], owners: Owners) -> None:
    """The same mean of all features in every first unit, then identities; the last adds up the paths of a class."""
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer.bias.zero_()
            if i == 0:
                layer.weight.fill_(1 / layer.in_features)
            else:
                nn.init.eye_(layer.weight)
        if len(layers) > 1:
            own = torch.arange(len(owners.pairs))
            layers[-1].weight[owners.outputs, own] = 1


def write_inconspicuous(
    layers: list[nn.Linear],
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
    first, later = layers[0], layers[1:]
    up, down = owners.pairs[:, 0], owners.pairs[:, 1]
    units = [owners.pairs, *(own[:, None] for own in owners.chain)]  # what each later layer reads, (P C, 1 or 2)
    outputs = [*owners.chain, owners.outputs]  # what it writes, (P C,)
    with torch.no_grad():
        ratio = -(0.5 + torch.rand(len(up), 1, generator=draw)).to(first.weight)
        spread = first.weight.std()
        noise = pair_noise * spread * _normal((len(up), first.in_features), draw, first.weight)
        first.weight[down] = ratio * first.weight[up] + noise
        first.bias[down] = ratio[:, 0] * first.bias[up]
        for n, layer in enumerate(later):
            read, write = units[n], outputs[n]
            strength = link * layer.weight.std() if n == 0 else 0.0
            own = layer.weight[write[:, None], read].abs() + strength
            columns = read.flatten()
            layer.weight[:, columns] = leak * _normal((layer.out_features, len(columns)), draw, layer.weight)
            layer.weight[write[:, None], read] = own
            if last_biases or n < len(later) - 1:
                layer.bias[write] = layer.bias[write].abs()


def class_rows(
    gradient: Mapping[str, Tensor], model: nn.Module, names: tuple[str, ...], owners: Owners
) -> tuple[Tensor, Tensor]:
    """Per trial and class, what its own units received: weight rows (T, C, d) and bias entries (T, C).

    The two of a pair are put on one scale by the links that the gradient passed through; paths are added up.
    """
    rows, entries = _path_rows(gradient, model, names, owners)
    T, C = len(rows), owners.classes
    return rows.reshape(T, -1, C, rows.shape[2]).sum(1), entries.reshape(T, -1, C).sum(1)


def _path_rows(
    gradient: Mapping[str, Tensor], model: nn.Module, names: tuple[str, ...], owners: Owners
) -> tuple[Tensor, Tensor]:
    """The same per path: (T, P C, d) and (T, P C)."""
    weight, bias = gradient[f"{names[0]}.weight"], gradient[f"{names[0]}.bias"]
    up, down = (owners.pairs[:, side].to(weight.device) for side in (0, 1))
    if torch.equal(up, down):
        return weight[:, up], bias[:, up]
    following = model.get_submodule(names[1])
    assert isinstance(following, nn.Linear)
    write = (owners.chain[0] if owners.chain else owners.outputs).to(weight.device)
    link_up, link_down = following.weight.detach()[write, up], following.weight.detach()[write, down]  # (P C,)
    rows = weight[:, up] / link_up[:, None] + weight[:, down] / link_down[:, None]
    return rows, bias[:, up] / link_up + bias[:, down] / link_down


def features_of(rows: Tensor, entries: Tensor) -> Tensor:
    """(T, C, d) over (T, C): the mean feature vector of each class, where anything is known of it."""
    safe = torch.where(entries.abs() < _TINY, torch.full_like(entries, _TINY), entries)
    return rows / safe[..., None]


def _normal(shape: tuple[int, ...], draw: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(shape, generator=draw).to(like)

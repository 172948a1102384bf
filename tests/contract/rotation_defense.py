"""Rotation: every layer's update is turned by a rotation that all clients share, and may be mirrored.

The rotation is drawn from a public key; whether a layer is mirrored is drawn from the client's own randomness.

How to beat it: turn the update back. What is left to guess is one sign per layer, and a wrong sign is always farther
from the update than the right one: a layer's sign is the one that fits the guess better. Labels cannot be read off a
mirrored layer, so they are searched for where the attack can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.engine.randomness import normal, uniform
from leakgauge.matching.first_layer import FirstLayer
from leakgauge.matching.problem import Matching
from leakgauge.settings import setting
from leakgauge.types import Batch, Defense, Fact, Observation, SharedUpdate, Step


@dataclass(frozen=True)
class Rotation(Defense):
    """Example: `--defense rotation:key=7`"""

    name: ClassVar[str] = "rotation"
    summary: ClassVar[str] = "turn every layer's update by a shared rotation, mirrored at random"
    paper: ClassVar[str] = "example of the documentation"

    key: int = setting(7, "what the rotations are drawn from; all clients and the server have it", low=0)

    def wrap(self, step: Step) -> Step:
        def rotated(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            return shared.map(lambda name, t: beside(drawn_sign(name, seeds), t) * self.turned(name, t))

        return rotated

    def turned(self, name: str, tensor: Tensor, back: bool = False) -> Tensor:
        """(T, *parameter): its rows, or the whole of a bias, turned by the rotation of this name."""
        rows = tensor.flatten(2) if tensor.dim() > 2 else tensor[:, None]  # (T, out, in) or (T, 1, out)
        rotation = self.rotation(name, rows.shape[-1]).to(tensor)
        return (rows @ (rotation.T if back else rotation)).view_as(tensor)

    def rotation(self, name: str, size: int) -> Tensor:
        """(size, size), orthogonal."""
        drawn = normal([self.key], f"rotation/{name}", (size, size))[0].double()
        return torch.linalg.qr(drawn)[0]

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        """The update turned back; of every guess each layer's sign is chosen anew."""
        back = {name: self.turned(name, g, back=True) for name, g in problem.observed.items()}
        found = problem.replace(observed=back, transforms=(*problem.transforms, with_fitting_signs))
        if problem.searches_labels and not observation.knows(Fact.LABELS):
            return found.replace(labels=None)
        return found

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:
        """Weight and bias turned back; they have one sign, which their ratio does not see."""
        return problem.replace(
            gradient={name: self.turned(name, g, back=True) for name, g in problem.gradient.items()},
            weight=self.turned(f"{problem.layer}.weight", problem.weight, back=True),
            bias=self.turned(f"{problem.layer}.bias", problem.bias, back=True),
        )


def with_fitting_signs(mine: Mapping[str, Tensor], observed: Mapping[str, Tensor], trials: Tensor) -> dict[str, Tensor]:
    """What a client with these gradients would have shared, if each layer's sign is the one nearer to the update."""
    signs = {layer: fitting_sign(mine, observed, layer) for layer in map(layer_of, observed)}
    return {name: beside(signs[layer_of(name)], mine[name]) * mine[name] for name in observed}


def fitting_sign(mine: Mapping[str, Tensor], observed: Mapping[str, Tensor], layer: str) -> Tensor:
    """(A,): 1 or -1."""
    products = [(mine[n] * g).flatten(1).sum(1).detach() for n, g in observed.items() if layer_of(n) == layer]
    return torch.where(sum(products) < 0, -1.0, 1.0)


def drawn_sign(name: str, seeds: Sequence[int]) -> Tensor:
    """(T,): whether the client mirrors this tensor's layer."""
    return torch.where(uniform(seeds, f"rotation/{layer_of(name)}", ()) < 0.5, -1.0, 1.0)


def layer_of(name: str) -> str:
    return name.rpartition(".")[0]


def beside(per_trial: Tensor, like: Tensor) -> Tensor:
    """(T,) -> (T, 1, ...), to be multiplied with (T, *parameter)."""
    return per_trial.to(like).view(-1, *[1] * (like.dim() - 1))

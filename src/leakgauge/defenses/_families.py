"""What families of defenses have in common: how they act on an update, and how they rewrite an attacker's problem."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.sums import mean_of_rounds
from leakgauge.errors import NotApplicable
from leakgauge.matching.compression import Compression
from leakgauge.matching.first_layer import LEAST_SQUARES, SOLVED, FirstLayer, PeeledLayer
from leakgauge.matching.noise import Noise
from leakgauge.matching.problem import Latent, Likely, Matching, innermost
from leakgauge.models.structure import last_listed_linear
from leakgauge.types import Attack, Batch, Defense, Fact, Observation, SharedUpdate, Step, TamperingServer

_PRIOR_SHARPNESS = 10.0  # neighbouring pixels of a picture differ by about 1/10: the scale of its smoothness prior
_STRONG_VARIATION = 0.01  # for attacks that match directions; a hundred times their usual weight
_BESIDE_A_COSINE = 1e-3  # weight of total variation for attacks that match directions; ten times their usual one


class FitsRows(Defense):
    """A defense behind which all rows of a first layer are fitted together: errors average out, zeros are left out."""

    leaves_zeros: ClassVar[bool] = False  # are zeros entries that were not sent?

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return problem.replace(combine=LEAST_SQUARES, match_nonzero=problem.match_nonzero or self.leaves_zeros)


class SolvesPeeled(FitsRows):
    """The same, and what a sample leaves in the units of a first layer is solved for instead of computed."""

    def informs_peeled(self, problem: PeeledLayer, observation: Observation, way: str) -> PeeledLayer:  # noqa: ARG002
        return problem.replace(coefficients=SOLVED)


class PerTensor(FitsRows):
    """A defense that sends a message of its own in place of each tensor of the update."""

    def message(self, name: str, tensor: Tensor, seeds: Sequence[int]) -> Tensor:
        """What is sent of one tensor (T, *parameter), in the same shape."""
        raise NotImplementedError  # abstract

    def wrap(self, step: Step) -> Step:
        def changed(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            return step(model, batch, seeds).map(lambda name, t: self.message(name, t, seeds))

        return step if self.idle else changed


class AddedNoise(PerTensor):
    """A defense that adds noise to every entry of the update."""

    @property
    def noise(self) -> Noise | None:
        """Its size on what is sent; None if it has no single size."""
        raise NotImplementedError  # abstract

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """A search without a prior on pictures has nothing to weigh against the noise."""
        return () if issubclass(attack.kind, Latent) else super().ways(attack)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        return problem if isinstance(problem, Latent) else against_noise(problem, self.noise)

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        """Larger gradients drown the noise, if its size does not grow with them."""
        return server if self.idle or self.noise is None else server.louder() or server

    def combined(self, updates: Sequence[SharedUpdate]) -> SharedUpdate:
        return mean_of_rounds(updates)


def spread_of(tensor: Tensor) -> Tensor:
    """The standard deviation of each trial's entries: (T, 1, ...)."""
    return tensor.flatten(1).std(1, unbiased=False).view(-1, *[1] * (tensor.dim() - 1))


def against_noise(problem: Matching, noise: Noise | None) -> Matching:
    """The problem of an attacker who knows of noise; None: of unknown size.

    If the distance may be the noise's likelihood, the search weighs it against a smoothness prior and stops where
    the noise alone explains the rest. All other searches get more smoothness.
    """
    if noise is not None and isinstance(problem, Likely):
        weight = _PRIOR_SHARPNESS * (2 * noise.scale**2 if noise.distance == "l2" else noise.scale)
        return problem.replace(noise=noise).with_variation(weight)
    return problem.smoother(_STRONG_VARIATION)


def compressed(
    problem: Matching, rule: Compression, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE
) -> Matching:
    """The problem of an attacker who knows the public rule by which the update was shortened."""
    return smoothed(problem, smoothness, beside_cosine).replace(compression=rule)


def smoothed(problem: Matching, smoothness: float, beside_cosine: float = _BESIDE_A_COSINE) -> Matching:
    """The problem with at least this weight of total variation: beside a squared distance, or beside a cosine."""
    return problem.smoother(beside_cosine if problem.by_direction else smoothness)


def with_labels_searched(problem: Matching) -> Matching:
    """The labels are searched for with the inputs, if the attack can do so and nobody revealed them."""
    if not problem.searches_labels or problem.observation.knows(Fact.LABELS):
        return problem
    return innermost(problem, lambda inside: inside.replace(labels=None)).replace(labels=None)


def with_last_linear(model: nn.Module, defense: str, changed: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """A copy of `model` with `changed` in the place of the last linear layer it lists."""
    name = last_listed_linear(model)
    if name is None:
        raise NotApplicable(f"{defense} needs a model with an nn.Linear layer; this one has none")
    model = copy.deepcopy(model)
    linear = model.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    if not name:  # the model is nothing but this layer
        return changed(linear)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, changed(linear))
    return model


def with_own_draws(
    step: Step, kind: type[nn.Module], buffer: str, draw: Callable[[Sequence[int], torch.Size], Tensor]
) -> Step:
    """`step` by clients who each put a draw of their own (T, *buffer) into the `buffer` of the last layer of `kind`."""

    def drawn(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        worker = copy.deepcopy(model)
        *_, layer = (module for module in worker.modules() if isinstance(module, kind))
        own = draw(seeds, layer.get_buffer(buffer).shape).to(layer.get_buffer(buffer))
        return one_by_one(step, worker, batch, seeds, lambda trial: setattr(layer, buffer, own[trial]))

    return drawn


def one_by_one(
    step: Step, worker: nn.Module, batch: Batch, seeds: Sequence[int], begin: Callable[[int], None]
) -> SharedUpdate:
    """The update of clients that differ in the model itself and so train one after another; `begin` sets each up."""
    updates = []
    for trial, seed in enumerate(seeds):
        begin(trial)
        updates.append(step(worker, batch.take([trial]), [seed]))
    return joined(updates)


def joined(updates: Sequence[SharedUpdate]) -> SharedUpdate:
    """The updates of clients that trained one after another, as one update of all of them."""
    tensors, buffers = (
        {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        for parts in ([u.tensors for u in updates], [u.buffers for u in updates])
    )
    return SharedUpdate(updates[0].kind, tensors, buffers)

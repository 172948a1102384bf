"""The matching problem of attacks with a generator: which latents' picture would have made this update?"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks._guessed_defense import Guess, guess, norms
from leakgauge.engine.gradients import trial_gradients
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.generators.generator import Generator
from leakgauge.generators.loading import load_generator
from leakgauge.matching.distance import distance_between
from leakgauge.matching.labels import single_label
from leakgauge.matching.problem import Distance, Latent, Matching, Transform, matching_of
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.types import DataSpec, Fact, Observation

_PROBES = 16  # pictures whose gradients say how long an update usually is


@dataclass(frozen=True)
class Latents:
    """Makes pictures from z = the latents of a trial's N samples."""

    generator: Generator
    labels: Tensor  # (T, N)
    reach: float = 0.0  # latents stay within plus or minus this, 0 for no bound

    @property
    def width(self) -> int:
        return self.labels.shape[1] * self.generator.latent

    def latents(self, z: Tensor) -> Tensor:
        """(A, N x D) -> (A, N, D). The bound is soft and leaves small entries as they are."""
        inside = self.reach * torch.tanh(z / self.reach) if self.reach else z
        return inside.reshape(-1, self.labels.shape[1], self.generator.latent)

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, None]:
        return self.generator.samples(self.latents(z), self.labels if trials is None else self.labels[trials]), None


@dataclass(frozen=True)
class GeneratorWeights:
    """Makes pictures from z = the weights of a trial's own copy of the generator, at latents that stay."""

    generator: Generator
    labels: Tensor  # (T, N)
    latents: Tensor  # (T, N, D)

    @property
    def width(self) -> int:
        return sum(p.numel() for p in self.generator.net.parameters())

    @property
    def start(self) -> Tensor:
        """(T, W): the weights as they are, once per trial."""
        flat = torch.cat([p.detach().flatten() for p in self.generator.net.parameters()])
        return flat.expand(len(self.labels), -1).clone()

    def __call__(self, z: Tensor, trials: Tensor | None) -> tuple[Tensor, None]:
        weights, begin = {}, 0
        for name, parameter in self.generator.net.named_parameters():
            end = begin + parameter.numel()
            weights[name] = z[:, begin:end].reshape(-1, *parameter.shape)
            begin = end
        latents, labels = (self.latents, self.labels) if trials is None else (self.latents[trials], self.labels[trials])
        return self.generator.own_samples(weights, latents, labels), None


def latent_problem(
    observation: Observation,
    seeds: Sequence[int],
    *,
    attack: str,
    generator: str,
    distance: str,
    transform: str,
    reach: float,
    pull: Callable[[Tensor], Tensor] | None = None,
) -> Latent:
    """What the observation asks, with the named generator; the defense is read off the update, as far as it shows."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    observed = observed_gradient(observation)
    last = classifier_layer(observation)
    made = load_generator(generator, data, observation.fact(Fact.PUBLIC_DATA))
    like = next(iter(observed.values()))
    made = dataclasses.replace(made, net=copy.deepcopy(made.net).to(like.device, like.dtype))
    labels = _labels(observation, observed, last, attack)
    plain = matching_of(observation, labels, distance=_mean_over_tensors(distance), prior=_none)
    painter = Latents(made, labels, reach)
    usual = _usual_norms(plain, painter, seeds) if transform == "auto" else None

    def imitated(name: str) -> Transform:
        return _as_sent(guess(observed, name, f"{last}.weight", usual))

    return Latent(
        **vars(plain)
        | {
            "painter": painter,
            "source": painter,
            "by_direction": distance == "cosine",
            "transforms": (imitated(transform),),
            "pull": pull,
            "imitated": imitated,
        }
    )


def start_of(problem: Matching) -> Callable[[Sequence[int], int], Tensor]:
    """(T, D): near the middle of the latents first, then N(0, 1)."""

    def start(seeds: Sequence[int], attempt: int) -> Tensor:
        drawn = normal(seeds, f"start/{attempt}", (problem.width,))
        return (0.1 * drawn if attempt == 0 else drawn).to(problem.like)  # not the middle: no spread has no KL

    return start


def _none(_: Matching, inputs: Tensor, __: Tensor) -> Tensor:
    return inputs.new_zeros(len(inputs))


def _mean_over_tensors(named: str) -> Distance:
    """The named distance, as a mean over tensors."""

    def to(observed: list[Tensor], known: list[Tensor] | None) -> Callable[[list[Tensor]], Tensor]:
        parts = 1 if named == "cosine" else len(observed)
        return lambda mine: distance_between(mine, observed, named, known) / parts

    return to


def _as_sent(seen: Guess) -> Transform:
    def transform(mine: Mapping[str, Tensor], _: Mapping[str, Tensor], trials: Tensor) -> dict[str, Tensor]:
        return seen.applied(mine, trials)

    return transform


def _labels(observation: Observation, observed: dict[str, Tensor], last: str, attack: str) -> Tensor:
    """(T, N): as revealed, or read off the last layer for one sample."""
    if observation.knows(Fact.LABELS):
        revealed: Tensor = observation.fact(Fact.LABELS)
        return revealed
    if observation.fact(Fact.NUM_SAMPLES) > 1:
        raise NotApplicable(
            f"{attack} reads the label of a single sample off the last layer; use --batch-size 1, or give the labels "
            "with a threat model that ends in '+labels'"
        )
    return single_label(observed, last)[:, None]


def _usual_norms(problem: Matching, painter: Latents, seeds: Sequence[int]) -> Tensor:
    """(T, S): how long the gradients of pictures from the generator are, each trial with its own label."""
    z = normal(seeds, "probes", (_PROBES, painter.width)).to(problem.like)
    lengths = []
    with torch.no_grad():
        for probe in range(_PROBES):
            gradients = trial_gradients(problem.model, painter(z[:, probe], None)[0], painter.labels)
            lengths.append(norms({name: g.detach() for name, g in gradients.items()}))
    return torch.stack(lengths, 1)

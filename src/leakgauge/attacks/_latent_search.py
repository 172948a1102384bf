"""The question that generator attacks ask: which latent's picture would have made this update?

One problem per trial, as a function of a flat vector z: the latents of the trial's N samples, or (`weights_problem`)
the generator's own weights.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.attacks._guessed_defense import Guess, guess, norms
from leakgauge.engine.driving import Evaluate, Problem
from leakgauge.engine.gradients import runs_one_by_one, trial_gradients, working_model
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.generators.generator import Generator
from leakgauge.generators.loading import load_generator
from leakgauge.matching.distance import distance_between, rows_of
from leakgauge.matching.labels import single_label
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.types import DataSpec, Fact, LocalTraining, Observation

_PROBES = 16  # pictures whose gradients say how long an update usually is
Values = Callable[[Tensor], Tensor]  # z (A, D) -> (A,)
Samples = Callable[[Tensor], Tensor]  # z (A, D) -> (A, N, *shape)


@dataclass(frozen=True)
class LatentPuzzle:
    """Everything that is fixed while the attack searches."""

    model: nn.Module
    generator: Generator
    observed: dict[str, Tensor]  # name -> (T, *parameter)
    labels: Tensor  # (T, N)
    distance: str = "l2"
    reach: float = 0.0  # latents stay within plus or minus this, 0 for no bound
    kl: float = 0.0  # weight of the pull towards N(0, 1)
    defense: Guess = dataclasses.field(default_factory=Guess)

    @property
    def like(self) -> Tensor:
        """A tensor on the update's device and in its precision."""
        return next(iter(self.observed.values()))

    @property
    def width(self) -> int:
        return self.labels.shape[1] * self.generator.latent

    def latents(self, z: Tensor) -> Tensor:
        """(A, N x D) -> (A, N, D). The bound is soft and leaves small entries as they are."""
        inside = self.reach * torch.tanh(z / self.reach) if self.reach else z
        return inside.reshape(-1, self.labels.shape[1], self.generator.latent)

    def samples(self, z: Tensor, trials: Tensor) -> Tensor:
        """The pictures (A, N, *shape) of rows that belong to these trials (A,)."""
        return self.generator.samples(self.latents(z), self.labels[trials])

    def cost(self, inputs: Tensor, trials: Tensor) -> Tensor:
        """(A,): the mean over tensors of how far these samples' gradients are from the observed ones."""
        names = list(self.observed)
        mine = self.defense.applied(trial_gradients(self.model, inputs, self.labels[trials]), trials)
        theirs = rows_of({name: g[trials] for name, g in self.observed.items()}, names)
        apart = distance_between(rows_of(mine, names), theirs, self.distance)
        return apart if self.distance == "cosine" else apart / len(names)

    def pull(self, z: Tensor) -> Tensor:
        """(A,): KL of a normal with the entries' own mean and variance against N(0, 1), weighted."""
        mean, variance = z.mean(1), z.var(1, unbiased=False).clamp_min(1e-12)
        return self.kl * 0.5 * (mean**2 + variance - 1 - variance.log())

    def problem(self, attempts: int) -> Problem:
        """Value and slope in the latents; row r belongs to trial r // attempts."""

        def rows(some: Tensor) -> Evaluate:
            trials = some // attempts
            return self._evaluator(lambda z, mine: self.samples(z, mine), trials, self.pull if self.kl else None)

        return rows

    def values(self, trials: Tensor) -> Values:
        """The value alone, for searches without slopes: no second derivative is taken."""

        def evaluate(z: Tensor) -> Tensor:
            with torch.no_grad():
                value = self.cost(self.samples(z, trials), trials).detach()
                return value + self.pull(z) if self.kl else value

        return evaluate

    def weights_problem(self, latents: Tensor) -> Problem:
        """Value and slope in the generator's weights, a copy of them per trial, for latents (T, N, D) that stay."""

        def samples(flat: Tensor, trials: Tensor) -> Tensor:
            return self.own_samples(flat, latents[trials], trials)

        return lambda trials: self._evaluator(samples, trials, None)

    def own_samples(self, flat: Tensor, latents: Tensor, trials: Tensor) -> Tensor:
        """Pictures of generators whose weights are the rows of `flat` (A, W)."""
        weights, begin = {}, 0
        for name, parameter in self.generator.net.named_parameters():
            end = begin + parameter.numel()
            weights[name] = flat[:, begin:end].reshape(-1, *parameter.shape)
            begin = end
        return self.generator.own_samples(weights, latents, self.labels[trials])

    def weights(self) -> Tensor:
        """(T, W): the generator's weights as they are, once per trial."""
        flat = torch.cat([p.detach().flatten() for p in self.generator.net.parameters()])
        return flat.expand(len(self.labels), -1).clone()

    def _evaluator(self, samples: Callable[[Tensor, Tensor], Tensor], trials: Tensor, pull: Values | None) -> Evaluate:
        if len(trials) > 1 and runs_one_by_one(self.model):  # one graph at a time: less memory
            each = [self._evaluator(samples, trial[None], pull) for trial in trials]

            def one_after_another(z: Tensor) -> tuple[Tensor, Tensor]:
                found = [one(row[None]) for one, row in zip(each, z, strict=True)]
                return torch.cat([value for value, _ in found]), torch.cat([slope for _, slope in found])

            return one_after_another

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            z = z.detach().requires_grad_()
            value = self.cost(samples(z, trials), trials)
            whole = value if pull is None else value + pull(z)
            (slope,) = torch.autograd.grad(whole.sum(), z)
            return whole.detach(), slope

        return evaluate


def latent_puzzle(
    observation: Observation,
    seeds: Sequence[int],
    *,
    attack: str,
    generator: str,
    distance: str,
    transform: str,
    reach: float,
    kl: float,
) -> LatentPuzzle:
    """What the observation asks, with the named generator; the defence is guessed from the update."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    observed = observed_gradient(observation)
    last = classifier_layer(observation)
    made = load_generator(generator, data, observation.fact(Fact.PUBLIC_DATA))
    like = next(iter(observed.values()))
    net = copy.deepcopy(made.net).to(like.device, like.dtype)
    puzzle = LatentPuzzle(
        model=working_model(observation.model, local.batchnorm),
        generator=dataclasses.replace(made, net=net),
        observed=observed,
        labels=_labels(observation, observed, last, attack),
        distance=distance,
        reach=reach,
        kl=kl,
    )
    usual = _usual_norms(puzzle, seeds) if transform == "auto" else None
    return dataclasses.replace(puzzle, defense=guess(observed, transform, f"{last}.weight", usual))


def _labels(observation: Observation, observed: dict[str, Tensor], last: str, attack: str) -> Tensor:
    """(T, N): as told, or read off the last layer for one sample."""
    if observation.knows(Fact.LABELS):
        told: Tensor = observation.fact(Fact.LABELS)
        return told
    if observation.fact(Fact.NUM_SAMPLES) > 1:
        raise NotApplicable(
            f"{attack} reads the label of a single sample off the last layer; use --batch-size 1, or give the labels "
            "with a threat model that ends in '+labels'"
        )
    return single_label(observed, last)[:, None]


def _usual_norms(puzzle: LatentPuzzle, seeds: Sequence[int]) -> Tensor:
    """(T, S): how long the gradients of pictures from the generator are, each trial with its own label."""
    z = normal(seeds, "probes", (_PROBES, puzzle.width)).to(puzzle.like)
    each = torch.arange(len(z), device=z.device)
    lengths = []
    with torch.no_grad():
        for probe in range(_PROBES):
            gradients = trial_gradients(puzzle.model, puzzle.samples(z[:, probe], each), puzzle.labels)
            lengths.append(norms({name: g.detach() for name, g in gradients.items()}))
    return torch.stack(lengths, 1)

"""What `ggl` and `gias` share: which latents of a generator draw the picture that would have made this update?

Li et al. 2022 (GGL), section 3.3: an update gives away something of the defense behind it. A clipping bound is the norm
of the update, pruning shows in its exact zeros, and a muted layer in the empty columns of the last weight. A gradient
that the attacker simulates goes through the same before it is compared, so that the true sample still costs nothing.
Noise leaves nothing to imitate. Kept entries are counted per tensor, which repeats pruning of each tensor and of the
whole update alike.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.engine.gradients import trial_gradients
from leakgauge.engine.losses import loss_of
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.generators.generator import Generator
from leakgauge.generators.loading import load_generator
from leakgauge.matching.attempts import SearchAttack
from leakgauge.matching.distance import distance_between
from leakgauge.matching.labels import revealed_labels, single_label
from leakgauge.matching.problem import Distance, Latent, Matching, Start, Transform, matching_of
from leakgauge.matching.updates import classifier_layer, observed_gradient
from leakgauge.settings import setting
from leakgauge.types import Fact, Observation

TRANSFORMS = ("auto", "none", "clip", "compress", "columns")
_PROBES = 16  # pictures whose gradients say how long an update usually is
_SHORTER = 0.9  # an update shorter than this share of every simulated one was clipped


@dataclass(frozen=True)
class LatentSearch(SearchAttack):
    """Fields and problem of attacks that search a generator's latents."""

    kind: ClassVar[type] = Latent
    needs: ClassVar[frozenset[Fact]] = frozenset(
        {Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING, Fact.PUBLIC_DATA}
    )
    decoy: ClassVar[bool] = True

    generator: str = setting("public", "a file from train-generator, dcgan-faces, or public: from the public samples")
    steps: int = setting(500, "optimiser steps, or generations of cma-es, per attempt", low=1)
    restarts: int = setting(2, "attempts; the one with the lowest cost is kept", low=1)
    lr: float = setting(0.1, "step length of adam", above=0)
    distance: str = setting("l2", "how gradients are compared", choices=("l2", "l1", "cosine"))
    transform: str = setting("auto", "the defense that simulated gradients go through", choices=TRANSFORMS)
    reach: float = setting(2.5, "latents stay within plus or minus this; 0 leaves them free", low=0)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Latent:
        """With the named generator; the defense is read off the update, as far as it shows."""
        observed, last = observed_gradient(observation), classifier_layer(observation)
        made = load_generator(self.generator, observation.fact(Fact.INPUT_SPEC), observation.fact(Fact.PUBLIC_DATA))
        like = next(iter(observed.values()))
        made = dataclasses.replace(made, net=copy.deepcopy(made.net).to(like.device, like.dtype))
        labels = self._labels(observation, observed, last)
        plain = matching_of(observation, labels, distance=_mean_over_tensors(self.distance))
        painter = Latents(made, labels, self.reach)
        usual = _usual_norms(plain, painter, seeds) if self.transform == "auto" else None

        def imitated(name: str) -> Transform:
            seen = guess(observed, name, f"{last}.weight", usual)
            return lambda mine, _, trials: seen.applied(mine, trials)

        action, by_direction = (imitated(self.transform),), self.distance == "cosine"
        drawn = Latent(**vars(plain)).replace(painter=painter, source=painter, imitated=imitated)
        return drawn.replace(transforms=action, by_direction=by_direction)

    def start(self, problem: Matching, seeds: tuple[int, ...]) -> Start:  # noqa: ARG002
        """(T, D): near the middle of the latents first, then N(0, 1)."""

        def start(some: Sequence[int], attempt: int) -> Tensor:
            drawn = normal(some, f"start/{attempt}", (problem.width,))
            return (0.1 * drawn if attempt == 0 else drawn).to(problem.like)  # not the middle: no spread has no KL

        return start

    def _labels(self, observation: Observation, observed: dict[str, Tensor], last: str) -> Tensor:
        """(T, N): as revealed, or read off the last layer for one sample."""
        if (revealed := revealed_labels(observation)) is not None:
            return revealed
        if observation.fact(Fact.NUM_SAMPLES) > 1:
            how = "use --batch-size 1, or give the labels with a threat model that ends in '+labels'"
            raise NotApplicable(f"{self.name} reads the label of a single sample off the last layer; {how}")
        return single_label(observed, last)[:, None]


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


def _mean_over_tensors(named: str) -> Distance:
    """The named distance, as a mean over tensors."""

    def to(observed: list[Tensor], known: list[Tensor] | None) -> Callable[[list[Tensor]], Tensor]:
        parts = 1 if named == "cosine" else len(observed)
        return lambda mine: distance_between(mine, observed, named, known) / parts

    return to


def _usual_norms(problem: Matching, painter: Latents, seeds: Sequence[int]) -> Tensor:
    """(T, S): how long the gradients of pictures from the generator are, each trial with its own label."""
    z = normal(seeds, "probes", (_PROBES, painter.width)).to(problem.like)
    lengths, loss = [], loss_of(problem.observation.fact(Fact.LOCAL_TRAINING))
    with torch.no_grad():
        for probe in range(_PROBES):
            gradients = trial_gradients(problem.model, painter(z[:, probe], None)[0], painter.labels, loss_of=loss)
            lengths.append(norms({name: g.detach() for name, g in gradients.items()}))
    return torch.stack(lengths, 1)


@dataclass(frozen=True)
class Guess:
    """Per trial, what to do to a simulated gradient; empty means nothing."""

    kept: Mapping[str, Tensor] = field(default_factory=dict)  # tensor -> (T,) how many entries were sent
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # tensor -> (T, 1, d) which columns were sent
    bound: Tensor | None = None  # (T,) largest norm; infinite where nothing was clipped

    def applied(self, gradients: Mapping[str, Tensor], trials: Tensor) -> dict[str, Tensor]:
        """The gradients (A, *parameter) of rows that belong to these trials (A,), as a defended client sends them."""
        changed = dict(gradients)
        for name, mask in self.columns.items():  # first: their zeros are counted among those not kept
            changed[name] = changed[name] * mask[trials]
        for name, count in self.kept.items():
            changed[name] = largest(changed[name], count[trials])
        if self.bound is None:
            return changed
        scale = (self.bound[trials] / norms(changed).clamp_min(1e-30)).clamp(max=1.0)
        return {name: g * scale.view(-1, *[1] * (g.dim() - 1)) for name, g in changed.items()}


def guess(observed: Mapping[str, Tensor], transform: str, last_weight: str, usual: Tensor | None = None) -> Guess:
    """Read the defense off the update (T first).

    "auto" takes what is visible: exact zeros, and a norm below every one in `usual` (T, S), the norms of gradients that
    the attacker's own samples give. At the true sample a wrong guess of this kind costs nothing either.
    """
    kept, columns, bound = {}, {}, None
    if transform in ("columns", "auto") and last_weight in observed:
        sent = (observed[last_weight] != 0).any(1, keepdim=True)
        if transform == "columns" or not bool(sent.all()):
            columns = {last_weight: sent.to(observed[last_weight])}
    if transform in ("compress", "auto"):
        counts = {name: (g != 0).flatten(1).sum(1) for name, g in observed.items()}
        kept = {name: c for name, c in counts.items() if bool((c < observed[name][0].numel()).any())}
    length = norms(observed)
    if transform == "clip":
        bound = length
    elif transform == "auto" and usual is not None:
        clipped = length < _SHORTER * usual.amin(1)
        bound = torch.where(clipped, length, torch.inf) if bool(clipped.any()) else None
    return Guess(kept, columns, bound)


def largest(tensor: Tensor, count: Tensor) -> Tensor:
    """(A, ...) with all but the `count` (A,) entries of largest magnitude of each row set to zero."""
    rows = tensor.flatten(1)
    order = rows.detach().abs().sort(dim=1, stable=True).indices
    place = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    sent = torch.zeros_like(rows).scatter(1, order, (place >= rows.shape[1] - count[:, None]).to(rows))
    return (rows * sent).view_as(tensor)


def norms(tensors: Mapping[str, Tensor]) -> Tensor:
    """(T,) length of the whole update."""
    return torch.stack([(t * t).flatten(1).sum(1) for t in tensors.values()]).sum(0).sqrt()

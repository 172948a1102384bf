"""GRNN: train a generator, from scratch for each victim, until its pictures and labels have the observed gradient.

Ren, Deng and Xie, "GRNN: Generative Regression Neural Network", ACM TIST 2022. Fixed noise goes through a small network
of two branches, pictures and labels; its weights are what is searched, by RMSprop with momentum 0.99 and a constant
rate. The loss is Eq. 3.4 of Ren's thesis:

mse     sum (g' - g)^2 over the entries of a guess's gradient g' and the observed g
wd      sum |sort(g') - sort(g)|, the Wasserstein-1 distance between the values of both, over all tensors together
tv      a little of the absolute differences of neighbouring pixels

It weighs mse and wd alike, which says something only on one scale: both as sums, or both as means over the p entries.
A sum of squares beside a mean of distances ("mixed") makes wd p times lighter.

Where we depart. The text and the released code differ: the code calls the plain norm of the difference a Wasserstein
distance and squares the variation (`as_released=True`); here values are sorted, as the name says. The text's loss does
worse than the sum of squares alone (recipe ren2022grnn, Table 3.12), so the audit's suites play `scale=mixed,
variation=squared`, whose Wasserstein distance weighs next to nothing. The released initialisation of the generator has
no effect, so torch's own is used here too. Pictures whose side is no power of two are cut out of the next larger one.
The point with the lowest loss is kept, not the last one. If the threat model reveals labels they are used. Victims run
side by side, each with its own generator, of which a quarter is enough if an update has one sample (`OneSample`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.engine import descent
from leakgauge.engine.per_trial_layers import batch_norm, dense, doubled_convolution, gated, unfolded
from leakgauge.engine.randomness import normal, uniform
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.attempts import SCHEDULES, Minimise, SearchAttack
from leakgauge.matching.distance import distance_between
from leakgauge.matching.labels import revealed_labels
from leakgauge.matching.priors import absolute_variation, squared_variation
from leakgauge.matching.problem import Generated, Matching, Rows, Start, generated, matching_of
from leakgauge.settings import setting
from leakgauge.types import DataSpec, Fact, Observation

SCALES = SUM, MEAN, MIXED = ("sum", "mean", "mixed")
VARIATIONS = ABSOLUTE, SQUARED = ("absolute", "squared")
_HIDDEN_START = 0.1  # how far the numbers that a layer hides begin from what is public
_FIRST = 4  # pixels behind the transposed convolution
_NARROWEST = 32  # channels that the last block sees
_LARGEST = 256


@dataclass(frozen=True)
class GRNN(SearchAttack):
    """Generative regression neural network.

    Example: `leakgauge attack grnn --data digits --model lenet-dlg --steps 2000 --trials 4`
    """

    name: ClassVar[str] = "grnn"
    summary: ClassVar[str] = "train a generator of pictures and labels until they have the observed gradient"
    paper: ClassVar[str] = "Ren et al. 2022, GRNN: Generative Regression Neural Network, ACM TIST"
    tier: ClassVar[str] = "standard"
    cost: ClassVar[float] = 8.0
    in_suites: ClassVar[Mapping[str, str | None]] = {
        "standard": "steps=4000,scale=mixed,variation=squared",
        "full": "restarts=2,scale=mixed,variation=squared",
    }
    kind: ClassVar[type] = Generated

    steps: int = setting(8000, "optimiser steps per attempt", low=1)
    restarts: int = setting(1, "attempts, each with a fresh generator; the one with the lowest loss is kept", low=1)
    schedule: str = setting("halving", "all attempts to the end, or the worse half given up early", choices=SCHEDULES)
    lr: float = setting(1e-4, "step length", above=0)
    momentum: float = setting(0.99, "momentum of RMSprop", low=0, high=1)
    decay: str = setting("none", "how the step length falls", choices=descent.DECAYS)
    mse: float = setting(1.0, "weight of the squared differences between the gradients", low=0)
    wd: float = setting(1.0, "weight of the Wasserstein distance between the gradients' values", low=0)
    cosine: float = setting(0.0, "weight of one minus the cosine between the gradients", low=0)
    scale: str = setting(SUM, "mse and wd: two sums, two means, or a sum beside a mean", choices=SCALES)
    tv: float = setting(1e-3, "weight of total variation; the paper has 1e-6 for ResNets", low=0)
    variation: str = setting(ABSOLUTE, "tv: a sum of absolute differences, or a mean of squares", choices=VARIATIONS)
    noise_width: int = setting(128, "numbers of noise that each sample is made from", low=1)
    as_released: bool = setting(False, "the released code's loss: the norm of the difference for wd, squared tv")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.mse or self.wd or self.cosine):
            allowed = "above 0 for one of them at least"
            raise BadInput("grnn: mse, wd and cosine", allowed=allowed, got="0, 0 and 0", do="use mse=1")
        if self.as_released and self.scale != SUM:
            allowed = f"{SUM!r} with as_released, whose root is that of a sum"
            raise BadInput("grnn: scale", allowed=allowed, got=repr(self.scale), do="leave one out")

    def numbers_per_row(self, observation: Observation) -> int:
        """About a dozen copies of the generator, and its activations for every sample."""
        pixels: int = observation.fact(Fact.NUM_SAMPLES) * math.prod(observation.fact(Fact.INPUT_SPEC).shape)
        return 12 * self._generator(observation, (0,)).width + 60 * pixels

    def check(self, observation: Observation) -> None:
        picture_shape(observation.fact(Fact.INPUT_SPEC))

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> Generated:
        """Inputs and labels come out of a generator of the trial's own, whose weights are searched."""
        squared = self.as_released or self.variation == SQUARED
        variation = squared_variation if squared else absolute_variation
        problem = matching_of(
            observation,
            revealed_labels(observation),
            distance=Loss(self.mse, self.wd, self.cosine, self.scale, self.as_released),
            prior=lambda problem, inputs, _: (problem.variation or 0.0) * variation(inputs),
            variation=self.tv,
        )
        return generated(problem, self._generator(observation, seeds))

    def optimiser(self, problem: Matching, seeds: tuple[int, ...]) -> Minimise:  # noqa: ARG002
        rule = partial(descent.descend, rule="rmsprop", momentum=self.momentum, decay=self.decay)
        return partial(rule, steps=self.steps, lr=self.lr)

    def start(self, problem: Matching, seeds: tuple[int, ...]) -> Start:  # noqa: ARG002
        assert isinstance(problem, Generated)
        generator = problem.source

        def start(some: Sequence[int], attempt: int) -> Tensor:
            more = _HIDDEN_START * normal(some, f"hidden/{attempt}", (problem.width - generator.width,))
            return torch.cat((generator.start(some, f"generator/{attempt}"), more), 1).to(problem.like)

        return start

    def _generator(self, observation: Observation, seeds: Sequence[int]) -> Generator | OneSample:
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        like = next(iter(observation.update.tensors.values()))
        noise = draw_noise(seeds, observation.fact(Fact.NUM_SAMPLES), self.noise_width).to(like)
        whole = Generator(noise, picture_shape(data), 0 if observation.knows(Fact.LABELS) else data.classes)
        return OneSample(whole) if noise.shape[1] == 1 else whole


@dataclass(frozen=True)
class Loss:
    """The weights of the loss's parts; a part of weight zero is not computed."""

    mse: float = 1.0
    wd: float = 1.0
    cosine: float = 0.0
    scale: str = SUM
    as_released: bool = False  # the root of the sum of squares for wd

    def __call__(self, observed: Rows, known: Rows | None) -> Callable[[Rows], Tensor]:
        """(observed rows (A, p) each, entries that count) -> (rows of a guess -> (A,))."""
        entries = sum(row.shape[1] for row in observed)
        per_square = self.mse / (entries if self.scale == MEAN else 1)
        per_gap = self.wd * (entries if self.scale == SUM else 1)
        gap = mean_gap(observed, known) if self.wd and not self.as_released else None

        rooted = self.wd if self.as_released else 0.0

        def distance(mine: Rows) -> Tensor:
            value = torch.zeros_like(mine[0][:, 0])
            if self.mse or rooted:
                squares = distance_between(mine, observed, "l2", known)
                value = value + per_square * squares
                if rooted:  # a root has no slope at zero
                    value = value + rooted * squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
            if gap is not None:
                value = value + per_gap * gap(mine)
            if self.cosine:
                value = value + self.cosine * distance_between(mine, observed, "cosine", known)
            return value

        return distance


def mean_gap(observed: Rows, known: Rows | None) -> Callable[[Rows], Tensor]:
    """Wasserstein-1 distance between the values of both, (rows of a guess -> (A,)); entries that do not count are 0."""
    goal = _counting(observed, known)
    goal = goal.gather(1, order(goal))

    def distance(mine: Rows) -> Tensor:
        values = _counting(mine, known)
        partner = torch.empty_like(goal).scatter_(1, order(values.detach()), goal)  # of the same rank
        return (values - partner).abs().mean(1)

    return distance


def _counting(rows: Rows, known: Rows | None) -> Tensor:
    """All entries in one row per trial, (A, p); those that do not count are zeros."""
    return torch.cat(rows if known is None else [row * mask for row, mask in zip(rows, known, strict=True)], 1)


def order(values: Tensor) -> Tensor:
    """The indices that sort each row. On a CPU by NumPy, which is four times as fast there."""
    if values.device.type != "cpu":
        return values.argsort(1)
    return torch.from_numpy(np.argsort(values.numpy(), 1))


@dataclass(frozen=True)
class Generator:
    """The network without its weights: `noise` is each trial's fixed input, `z` in a call holds the weights.

    Image branch: a transposed convolution to 4 x 4, then blocks of [enlarge by two, Conv k3 p1, BatchNorm, GLU] that
    halve the channels, the last of which gives the picture, and a sigmoid. Label branch: one dense layer. Parameters
    have the shapes and the initial distribution of the layers of `torch.nn`; a trial's parameters are one row of z.
    """

    noise: Tensor  # (T, N, d)
    picture: tuple[int, int, int]  # (C, H, W)
    classes: int  # 0 where labels are known: there is no label branch

    @property
    def blocks(self) -> int:
        """Those that enlarge, the last one included: 3 for 32 px."""
        return (_side(self.picture) // _FIRST).bit_length() - 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Parameters by name, without the trials axis."""
        width, channels = self.noise.shape[2], _NARROWEST * 2 ** (self.blocks - 1)
        found: dict[str, tuple[int, ...]] = {"seed.weight": (width, 2 * channels, _FIRST, _FIRST)}
        found["seed.bias"] = (2 * channels,)
        for block in range(self.blocks):
            into = self.picture[0] if block == self.blocks - 1 else channels // 2
            found[f"block{block}.conv.weight"] = (2 * into, channels, 3, 3)
            found[f"block{block}.norm.weight"] = found[f"block{block}.norm.bias"] = (2 * into,)
            channels = into
        if self.classes:
            found |= {"label.weight": (self.classes, width), "label.bias": (self.classes,)}
        return found

    @property
    def width(self) -> int:
        """Numbers in one trial's z."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def start(self, seeds: Sequence[int], role: str) -> Tensor:
        """Freshly initialised parameters (A, D), distributed as `torch.nn` has them: uniform about 0, norms fixed."""
        bounds, centres = [], []
        for name, shape in self.shapes.items():
            layer, _, part = name.rpartition(".")
            fan_in = math.prod(self.shapes[f"{layer}.weight"][1:])  # torch counts the second axis, transposed or not
            fixed = layer.endswith("norm")
            bounds.append(torch.full((math.prod(shape),), 0.0 if fixed else fan_in**-0.5))
            centres.append(torch.full((math.prod(shape),), 1.0 if fixed and part == "weight" else 0.0))
        return torch.cat(centres) + torch.cat(bounds) * (2 * uniform(seeds, role, (self.width,)) - 1)

    def __call__(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Weights (A, D) of rows that belong to `trials` (A,): pictures (A, N, C, H, W), logits (A, N, K) or None."""
        noise = self.noise if trials is None else self.noise[trials]
        weights = unpacked(z, self.shapes)
        pictures = self.painted(gated(unfolded(noise, weights["seed.weight"], weights["seed.bias"])), weights)
        return pictures, dense(noise, weights["label.weight"], weights["label.bias"]) if self.classes else None

    def painted(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """The blocks that enlarge: (A, N, 4, 4, 32 * 2^n) -> (A, N, C, H, W)."""
        for block in range(self.blocks):
            x = doubled_convolution(x, weights[f"block{block}.conv.weight"])
            x = gated(batch_norm(x, weights[f"block{block}.norm.weight"], weights[f"block{block}.norm.bias"]))
        pictures, (_, height, width) = torch.sigmoid(x).movedim(-1, 2), self.picture
        top, left = ((pictures.shape[-1] - side) // 2 for side in (height, width))
        return pictures[..., top : top + height, left : left + width]


def draw_noise(seeds: Sequence[int], samples: int, width: int) -> Tensor:
    """Each trial's fixed input, (T, N, d)."""
    return normal(seeds, "noise", (samples, width))


def unpacked(z: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Rows of numbers (A, D) as the tensors they are, by name."""
    parts = zip(shapes.items(), z.split_with_sizes([math.prod(s) for s in shapes.values()], 1), strict=True)
    return {name: part.reshape(len(z), *shape) for (name, shape), part in parts}


def picture_shape(data: DataSpec) -> tuple[int, int, int]:
    """(C, H, W) of what is to be generated, if it can be."""
    if len(data.shape) != 3:
        raise NotApplicable(f"grnn generates pictures, the samples are shaped {data.shape}; use dlg")
    channels, height, width = data.shape
    if _side((channels, height, width)) > _LARGEST:
        raise NotApplicable(f"grnn generates pictures of up to {_LARGEST} px, these are {height} x {width}; use dlg")
    return channels, height, width


def _side(picture: tuple[int, int, int]) -> int:
    """The smallest power of two, from 8, that holds the picture."""
    return max(2 * _FIRST, 1 << (max(picture[1:]) - 1).bit_length())


@dataclass(frozen=True)
class OneSample:
    """The generator `whole` for updates of one sample: a quarter of the numbers, and the same steps.

    Its first layer and its label layer see one vector of noise v, fixed for the whole run. Their weights W enter by v W
    alone, whose gradient d reaches W as the outer product of v and d. RMSprop divides every entry by its own root mean
    square, so row i moves by sign(v_i) times one and the same vector, and v W by |v|_1 times it. Here u with
    v W = |v|_1 u is searched in place of W: by RMSprop it takes exactly those steps. Only the optimiser's epsilon,
    1e-8, weighs less. Under a rule that does not divide so, plain descent for one, it would go elsewhere.

    `z` in a call holds u and all other weights.
    """

    whole: Generator

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Numbers that are searched, by name, without the trials axis."""
        outputs = {"seed.weight": slice(1, None), "label.weight": slice(0, 1)}
        return {name: shape[outputs.get(name, slice(None))] for name, shape in self.whole.shapes.items()}

    @property
    def width(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def start(self, seeds: Sequence[int], role: str) -> Tensor:
        """(A, D): where the whole generator would start."""
        weights = unpacked(self.whole.start(seeds, role), self.whole.shapes)
        noise = draw_noise(seeds, 1, self.whole.noise.shape[2])[:, 0].to(weights["seed.weight"])
        size = noise.abs().sum(1)
        products = {"seed.weight": "ti,ti...->t...", "label.weight": "ti,toi->to"}
        for name in products.keys() & weights.keys():
            outputs = torch.einsum(products[name], noise, weights[name])
            weights[name] = outputs / size.reshape(-1, *[1] * (outputs.dim() - 1))
        return torch.cat([part.flatten(1) for part in weights.values()], 1)

    def __call__(self, z: Tensor, trials: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As the whole generator: pictures (A, 1, C, H, W), logits (A, 1, K) or None."""
        weights = unpacked(z, self.shapes)
        noise = self.whole.noise if trials is None else self.whole.noise[trials]
        size = noise.abs().sum((1, 2))
        seed = size[:, None, None, None] * weights["seed.weight"] + weights["seed.bias"][:, :, None, None]
        pictures = self.whole.painted(gated(seed.permute(0, 2, 3, 1)[:, None]), weights)
        if not self.whole.classes:
            return pictures, None
        return pictures, (size[:, None] * weights["label.weight"] + weights["label.bias"])[:, None]

"""Noise on a few random slices of the update, which are cut to carry equal risk; the server takes the noise out again.

Wang et al., "Protect Privacy from Gradient Leakage Attack in Federated Learning", INFOCOM 2022. The risk of a tensor is
how strongly it answers to the sample, ||d g_l / dX||_F averaged over root samples. The update is cut into slices of
equal risk (`slicing.py`); d = max(1, floor(slices x gamma)) of them are drawn by reservoir sampling for each client and
round, and get Gaussian noise. The server averages and removes what random matrix theory explains by noise
(`compensation.py`). With `clip` each sample's gradient is clipped to that bound first, and the noise is std x clip.
The paper's noise variance is 0.01, hence std 0.1; its released code has std 0.0005. A training cuts the slices once,
from its first model, or with `recut` from each round's model; an attacked update cuts them from the model at hand.

Where we depart. The risk is the Frobenius norm that the paper defines, by random probes (`probes=0`: exactly). Root
samples are made up unless `roots` says real or distilled; the paper's are real. Slices are packed longest first, which
gives every slice the same part of every tensor; `packing=sweep` goes from left to right as the released code does,
which leaves whole layers in one slice; `packing=size` is the paper's baseline. `as_released` also has that code's risk
(an all-ones product, exactly zero for a last linear layer), its overlapping bounds and its compensation, which changes
nothing; not its clipping, which fails to run. That code draws its slices from a fixed seed (`secret=false`); a real
client draws slices and noise from a generator that nobody can predict. The server's variance is that of the weighted
mean; `variance=printed` is the paper's formula. `keep` has both of its rules for eigenvalues. Most of the update is
sent as it is, so nothing is accounted: `guarantee` stays None.

How to beat it. What has no noise is exact. Gradient matching that knows the bounds fits the slices that agree and drops
the rest, or takes the noise out first, as the server does. In a first linear layer the clean rows are parallel to one
another and no noised row is parallel to anything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from leakgauge.defenses._clipping import SAMPLE, WHOLE, Clipping, SampleRule
from leakgauge.defenses.sensitivity.compensation import KEEPS, VARIANCES, compensated, mean_variance
from leakgauge.defenses.sensitivity.robust_search import search_in_slices
from leakgauge.defenses.sensitivity.slicing import (
    PACKINGS,
    ROOTS,
    Slicing,
    flattened,
    reservoir,
    root_samples,
    sliced,
    unflattened,
)
from leakgauge.engine.gradients import parameters_of
from leakgauge.engine.jacobian_norms import JacobianNorms, all_ones_norms, jacobian_norms
from leakgauge.engine.randomness import normal
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.first_layer import PARALLEL, SOLVED, FirstLayer, PeeledLayer
from leakgauge.matching.problem import Generated, Matching
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Defense, Observation, SharedUpdate, Step, TamperingServer

_PUBLIC_SEED = 0
WITHOUT, COMPENSATED = ("without noised slices", "compensated")


@dataclass(frozen=True)
class Sensitivity(Defense):
    """Example: `--defense sensitivity:gamma=0.3,std=0.1`"""

    name: ClassVar[str] = "sensitivity"
    summary: ClassVar[str] = "add Gaussian noise to a random few of the update's slices of equal risk"
    paper: ClassVar[str] = "Wang et al. 2022, Protect Privacy from Gradient Leakage Attack, INFOCOM"

    slices: int = setting(10, "number of slices the update is cut into", low=2)
    gamma: float = setting(0.3, "share of slices that is noised; at least one is", low=0, high=1)
    std: float = setting(0.1, "standard deviation of the noise, in units of clip if that is given; 0 adds none", low=0)
    root: int = setting(50, "root samples by which the risk of a tensor is measured", low=1)
    roots: str = setting("made-up", "where the root samples come from", choices=ROOTS)
    root_data: str = setting("", "the data set of real or distilled root samples, such as mnist")
    bias: float = setting(0.0, "share of root samples with label 0; 0 is even", low=0, high=1)
    probes: int = setting(4, "random probes per root sample; 0 takes every input entry in turn, which is exact", low=0)
    packing: str = setting("balanced", "slices balanced by risk, left to right, or by size alone", choices=PACKINGS)
    recut: bool = setting(False, "in a training, cut the slices from each round's model; false: once, from the first")
    clip: float = setting(0.0, "bound on each sample's gradient; 0 clips nothing", low=0)
    q: float = setting(6.0, "aspect of the matrix in which the server looks for noise", low=1)
    compensate: bool = setting(True, "the server takes out of the mean what noise explains")
    keep: str = setting("outside", "eigenvalues that are no noise: on both sides of the band, or above", choices=KEEPS)
    variance: str = setting("weights", "the noise of the weighted mean, or the paper's formula", choices=VARIANCES)
    secret: bool = setting(True, "each client draws its slices by itself; false: all from a seed that is known")
    as_released: bool = setting(False, "risk, slices and compensation of the released code")

    _first_cut: ClassVar[Slicing | None] = None  # of a training that has begun

    def __post_init__(self) -> None:
        super().__post_init__()
        made_up = self.roots == "made-up"
        if made_up == bool(self.root_data):
            allowed = "left out with roots=made-up" if made_up else f"the name of a data set with roots={self.roots}"
            do = "write roots=real,root_data=mnist, for example"
            raise BadInput("sensitivity: root_data", allowed=allowed, got=repr(self.root_data), do=do)

    def begun(self, model: nn.Module, shape: Sequence[int]) -> Self:
        """With the slices of this model, for all rounds."""
        if self.recut or self.std == 0:
            return self
        begun = dataclasses.replace(self)
        object.__setattr__(begun, "_first_cut", self.cut(model, shape))
        return begun

    def wrap(self, step: Step) -> Step:
        if self.clip:
            step = SampleRule(self.name, self._clipping).around(step)
        if self.std == 0:
            return step

        def perturbed(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            cut = self._first_cut or self.cut(model, batch.inputs.shape[2:])
            noised = unflattened(cut.touched(self.chosen(seeds)), shared.tensors)
            drawn = {n: normal(seeds, f"sensitivity/{n}", t.shape[1:]).to(t) for n, t in shared.tensors.items()}
            return shared.map(lambda n, t: t + self.noise_std * noised[n].to(t) * drawn[n])

        return perturbed

    @property
    def noised(self) -> int:
        """d, how many slices each client noises."""
        return max(1, math.floor(self.slices * self.gamma + 1e-9))  # 10 x 0.3 must be 3 in floating point

    @property
    def noise_std(self) -> float:
        return self.std * (self.clip or 1.0)

    def cut(self, model: nn.Module, shape: Sequence[int]) -> Slicing:
        """The slices for a model of samples of this shape: public, since clients, server and attacker cut alike."""
        sizes = {name: p.numel() for name, p in parameters_of(model).items()}
        if not sizes:
            raise NotApplicable("sensitivity needs a model with trainable parameters; this one has none")
        by_size, sweep = self.packing == "size" and not self.as_released, self.as_released or self.packing == "sweep"
        risk = None if by_size else self.risk(model, shape).mean
        return Slicing(sliced(sizes, self.slices, risk, sweep), self.slices, overlap=self.as_released)

    def risk(self, model: nn.Module, shape: Sequence[int]) -> JacobianNorms:
        """How strongly each tensor answers to the sample."""
        inputs, labels = root_samples(model, shape, self.root, self.roots, self.root_data, self.bias)
        if self.as_released:
            return all_ones_norms(model, inputs, labels)
        return jacobian_norms(model, inputs, labels, self.probes, _PUBLIC_SEED)

    def chosen(self, seeds: Sequence[int]) -> Tensor:
        """(T, d) the slices each client's seed chooses; the same ones for all if the choice is no secret."""
        return reservoir(seeds if self.secret else [_PUBLIC_SEED] * len(seeds), self.slices, self.noised)

    def aggregate(self, updates: SharedUpdate) -> SharedUpdate:
        """The mean of the clients, without what noise explains."""
        return self.aggregate_weighted(updates, torch.full((updates.trials,), 1 / updates.trials))

    def aggregate_weighted(self, scaled: SharedUpdate, weights: Tensor) -> SharedUpdate:
        """The same of clients with these weights, by which the rows are scaled."""
        mean = super().aggregate(scaled)
        if not self.compensate:
            return mean
        rule, keep = ("printed", "outside") if self.as_released else (self.variance, self.keep)
        variance = mean_variance(self.noise_std, self.noised / self.slices, weights.tolist(), rule)
        rows = compensated(flattened(mean.tensors), variance, self.q, keep, pad=not self.as_released)
        return dataclasses.replace(mean, tensors=unflattened(rows, mean.tensors))

    @property
    def idle(self) -> bool:
        return self.std == 0 and self.clip == 0

    @property
    def _clipping(self) -> Clipping:
        return Clipping(self.clip, WHOLE, SAMPLE)

    def numbers_per_row(self, observation: Observation) -> int:
        return self._clipping.numbers_per_row(observation)

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """The noised slices are found and left out, or the noise is taken out as the server does."""
        if self.idle or isinstance(attack, TamperingServer):
            return super().ways(attack)
        if self.std == 0:
            return ("",) if self.has_rule_for(type(attack)) and self._clipping.helps(attack) else ()
        if issubclass(attack.kind, PeeledLayer):
            return ()
        if issubclass(attack.kind, Generated):
            return (COMPENSATED,)
        return (WITHOUT, COMPENSATED) if issubclass(attack.kind, Matching) else super().ways(attack)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        if self.clip:
            problem = self._clipping.matching(problem)
        if self.std == 0:
            return problem
        return problem.replace(strategy=search_in_slices(self, compensate=way == COMPENSATED))

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        if self.std == 0:
            return self._clipping.first_layer(problem)
        return problem.replace(combine=PARALLEL)  # rows without noise agree with one another

    def informs_peeled(self, problem: PeeledLayer, observation: Observation, way: str) -> PeeledLayer:  # noqa: ARG002
        return problem.replace(coefficients=SOLVED) if self.std == 0 else problem

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        return server if self.clip or self.idle else server.louder() or server

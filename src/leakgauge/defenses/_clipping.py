"""Clipping as clients do it, sample by sample or on the whole update, and as an attacker replays it.

A client that clips every sample's gradient, adds them up and adds noise must equal this slow loop: for each sample on
its own, its gradient, its norm, its factor min(1, C / norm); their sum, plus noise, divided by their number. Here every
sample is a trial of its own, as many side by side as memory allows. For FedAvg this happens at every local step. Behind
a defense that was written earlier in the chain only what is shared can be seen: one gradient per sample is still well
defined there, several local steps are not.

Such a client shares a mean with weights of its own, min(1, C / |g_k|) for sample k. No common scale undoes that, so the
guess's samples are clipped to the same C before they are averaged: the true samples then cost nothing. A client's
update that was clipped as a whole differs by one scale (or one per tensor), which the distances `scaled` and
`scaled-each` leave open; its bound is known as well: distances are measured in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.chain import ClientStep
from leakgauge.client.fedavg import control_of, epochs_of, trained
from leakgauge.defenses._families import SolvesPeeled, against_noise
from leakgauge.engine.gradients import client_gradients, kept_bytes, parameters_of, trial_gradients, working_model
from leakgauge.engine.losses import Loss, loss_of
from leakgauge.engine.memory import fitting
from leakgauge.engine.precision import in_precision
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import LEAST_SQUARES, FirstLayer, PeeledLayer
from leakgauge.matching.noise import JOINT_SUM, UPDATE, Noise, noise_in_gradient
from leakgauge.matching.problem import ClientGradient, Latent, Likely, Matching
from leakgauge.types import Attack, Batch, Client, Fact, Observation, SharedUpdate, Step, TamperingServer

SAMPLE, CLIENT = UNITS = ("sample", "client")
WHOLE, LAYER = SCOPES = ("whole", "layer")
_CLIPPING_ALONE = "clipping alone"
_TINY = 1e-30
_COPIES = 4  # of a sample's gradient at the client: as computed, squared, clipped and added up
_COPIES_REPLAYED = 16  # in the attacker's double backward pass
Rows = dict[str, Tensor]  # name -> (R, *parameter)
EachGradient = Callable[[Tensor, Tensor, Sequence[int], int], Rows]  # (R, 1, ...), (R, 1), seeds and trials -> rows


@dataclass(frozen=True)
class Clipping:
    """What each sample's gradient or the update is shortened to, over all tensors or each tensor for itself."""

    norm: float  # largest length that passes
    scope: str  # WHOLE or LAYER
    unit: str  # SAMPLE or CLIENT

    def helps(self, attack: Attack) -> bool:
        """Does `attack` get better by knowing it? A direction does not feel the length of a whole update."""
        if issubclass(attack.kind, (Latent, PeeledLayer)):
            return self.scope == WHOLE
        if issubclass(attack.kind, Matching):
            return self.unit == SAMPLE or self._distance(getattr(attack, "distances", ())) is not None
        return True

    def matching(self, problem: Matching) -> Matching:
        """The problem with each sample of a guess clipped likewise, or with a distance that leaves lengths open."""
        unit = self.length(problem.observation) if isinstance(problem, Likely) else problem.length_unit
        if self.unit == SAMPLE:
            return problem.replace(client_gradient=partial(self.mean, each=problem.client_gradient), length_unit=unit)
        distance = self._distance(problem.distances)
        return problem if distance is None else problem.replace(distance=distance, length_unit=unit)

    def first_layer(self, problem: FirstLayer) -> FirstLayer:
        """All rows fitted together; tensors that were clipped apart have scales of their own."""
        return problem.replace(combine=LEAST_SQUARES, fit_scale=problem.fit_scale or self.scope == LAYER)

    def length(self, observation: Observation) -> float:
        """What to measure distances in: the bound, as a length of the matched gradient, or 1 if that is shorter."""
        return min(1.0, self.norm * (noise_in_gradient(UPDATE, observation) if self.unit == CLIENT else 1.0))

    def numbers_per_row(self, observation: Observation) -> int:
        """What a search holds more if each sample of its guess has a gradient of its own."""
        if self.unit == CLIENT or self.norm == 0:
            return 0
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        return _COPIES_REPLAYED * (samples - 1) * sum(p.numel() for p in observation.model.parameters())

    def mean(
        self,
        model: nn.Module,
        inputs: Tensor,  # (A, N, *shape)
        targets: Tensor,
        weights: Mapping[str, Tensor] | None = None,
        buffers: Mapping[str, Tensor] | None = None,
        each: ClientGradient = trial_gradients,  # of a client with one sample
    ) -> dict[str, Tensor]:
        """The mean over samples of their clipped gradients, (A, *parameter), differentiable as `trial_gradients` is."""
        rows, samples = inputs.shape[:2]
        own = None if weights is None else {n: w.repeat_interleave(samples, 0) for n, w in weights.items()}
        masks = {n: b.repeat_interleave(samples, 0) for n, b in (buffers or {}).items()}
        found = each(model, inputs.flatten(0, 1)[:, None], targets.flatten(0, 1)[:, None], own, masks)
        squares = {n: (g * g).flatten(1).sum(1) for n, g in found.items()}
        if self.scope == WHOLE:
            squares = dict.fromkeys(found, torch.stack(list(squares.values())).sum(0))
        factors = {n: (self.norm / (s + _TINY).sqrt()).clamp(max=1.0) for n, s in squares.items()}
        short = {n: g * factors[n].view(-1, *[1] * (g.dim() - 1)) for n, g in found.items()}
        return {n: g.reshape(rows, samples, *g.shape[1:]).mean(1) for n, g in short.items()}

    def _distance(self, distances: tuple[str, ...]) -> str | None:
        wanted = ("scaled-each", "cosine-each") if self.scope == LAYER else ("scaled",)
        return next((name for name in wanted if name in distances), None)


class KnownClipping(SolvesPeeled):
    """A defense that clips, and may add noise to what it clipped."""

    @property
    def clipping(self) -> Clipping:
        raise NotImplementedError  # abstract

    @property
    def clipped_noise(self) -> Noise | None:
        """The noise that comes with it, if any."""
        return None

    def wrap(self, step: Step) -> Step:
        clipping, noise = self.clipping, self.clipped_noise
        if self.idle:
            return step
        if clipping.unit == SAMPLE:
            return SampleRule(self.name, clipping, noise).around(step)

        def shortened(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            shared = step(model, batch, seeds)
            short = clipped(shared.tensors, clipping.norm, clipping.scope)
            if noise is None:
                return shared.map(lambda name, _: short[name])
            drawn = {n: normal(seeds, f"{self.name}/{n}", t.shape[1:]).to(t) for n, t in short.items()}
            return shared.map(lambda name, _: short[name] + noise.scale * drawn[name])

        return shortened

    def numbers_per_row(self, observation: Observation) -> int:
        return self.clipping.numbers_per_row(observation)

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """A search without a likelihood gets more smoothness against noise, which hurts where the noise is small.

        So it is played with the clipping alone, and smoother besides.
        """
        if self.idle or isinstance(attack, TamperingServer) or not self.has_rule_for(type(attack)):
            return ()
        weighs = issubclass(attack.kind, Likely)  # may its distance be the likelihood of known noise?
        smoothed = issubclass(attack.kind, Matching) and not issubclass(attack.kind, (Likely, Latent))
        if self.clipped_noise is None:
            weighs = smoothed = False
        if not self.clipping.helps(attack):
            return ("",) if smoothed or weighs else ()
        return (_CLIPPING_ALONE, "smoother") if smoothed else ("",)

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:  # noqa: ARG002
        if isinstance(problem, Latent) and problem.imitated is not None:
            return problem.replace(transforms=(problem.imitated("clip"),))
        problem = self.clipping.matching(problem)
        noise = self.clipped_noise
        return problem if noise is None or way == _CLIPPING_ALONE else against_noise(problem, noise)

    def informs_first_layer(self, problem: FirstLayer, observation: Observation, way: str) -> FirstLayer:  # noqa: ARG002
        return self.clipping.first_layer(problem)

    def informs_server(self, server: TamperingServer) -> TamperingServer:
        return server  # whatever it makes large is shortened


@dataclass(frozen=True)
class SampleRule:
    """What a defense does to the samples' gradients of one step."""

    defense: str  # its name: in messages, and in the role of its randomness
    clipping: Clipping
    noise: Noise | None = None  # on every entry of the sum of the samples' gradients

    def around(self, step: Step) -> Step:
        """`step` with the rule inside it."""

        def private(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            if not isinstance(step, ClientStep):
                return self._behind_another(step, model, batch, seeds)
            self._refuse_mixing(model, step.local.batchnorm)
            return self._trained(step.local, model, batch, seeds)

        return private

    def _trained(self, local: Client, model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        worker, loss = working_model(model, local.batchnorm), loss_of(local)

        def cast(inputs: Tensor, gradients_of: Callable[[Loss], Rows]) -> Rows:
            return {n: g.detach() for n, g in in_precision(local.precision, inputs.device, loss, gradients_of).items()}

        if local.kind == "fedsgd":

            def alone(inputs: Tensor, labels: Tensor, *_: object) -> Rows:
                return cast(inputs, lambda loss: client_gradients(worker, inputs, labels, loss))

            return SharedUpdate("gradient", self._step(worker, alone, batch, seeds))
        before = parameters_of(worker)

        def private(inputs: Tensor, labels: Tensor, weights: Rows, number: int) -> Rows:
            def of_own_weights(inputs: Tensor, labels: Tensor, _: Sequence[int], samples: int) -> Rows:
                own = {n: w.repeat_interleave(samples, 0) for n, w in weights.items()}
                return cast(inputs, lambda loss: trial_gradients(worker, inputs, labels, own, loss_of=loss))

            return self._step(worker, of_own_weights, Batch(inputs, labels), seeds, number)

        orders = list(epochs_of(batch, local, seeds)) if local.order == "shuffled" else [batch]
        weights = trained(before, orders, local, private, control=control_of(local, before))
        return SharedUpdate("weight_delta", {n: w - before[n] for n, w in weights.items()})

    def _behind_another(self, step: Step, model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        """Each sample's gradient as the earlier defense shares it."""
        self._refuse_mixing(model, "unknown")

        def as_shared(inputs: Tensor, labels: Tensor, repeated: Sequence[int], _: int) -> Rows:
            shared = step(model, Batch(inputs, labels), repeated)
            if shared.kind != "gradient":
                raise NotApplicable(
                    f"{self.defense} clips at every local step, and an earlier defense hides those; write it first"
                )
            return dict(shared.tensors)

        return SharedUpdate("gradient", self._step(working_model(model, "eval"), as_shared, batch, seeds))

    def _step(self, worker: nn.Module, each: EachGradient, batch: Batch, seeds: Sequence[int], number: int = 0) -> Rows:
        """The clipped mean with its noise, (T, *parameter); as many samples of all trials at once as fit."""
        trials, samples = batch.labels.shape[:2]
        gradient = sum(p.numel() * p.element_size() for p in worker.parameters() if p.requires_grad)
        at_once = fitting(_COPIES * gradient + kept_bytes(worker, batch.inputs[0, :1]), batch.inputs.device)
        size = max(1, at_once // trials)
        total: Rows = {}
        for begin in range(0, samples, size):
            inputs, labels = batch.inputs[:, begin : begin + size], batch.labels[:, begin : begin + size]
            some = labels.shape[1]
            repeated = [seed for seed in seeds for _ in range(some)]
            rows = each(inputs.flatten(0, 1)[:, None], labels.flatten(0, 1)[:, None], repeated, some)
            for name, g in clipped(rows, self.clipping.norm, self.clipping.scope).items():
                part = g.reshape(trials, some, *g.shape[1:]).sum(1)
                total[name] = part if begin == 0 else total[name] + part
        if self.noise is not None:
            std = self.noise.scale * (math.sqrt(len(total)) if self.noise.on == JOINT_SUM else 1.0)
            roles = {name: f"{self.defense}/{number}/{name}" for name in total}
            total = {n: t + std * normal(seeds, roles[n], t.shape[1:]).to(t) for n, t in total.items()}
        return {name: t / samples for name, t in total.items()}

    def _refuse_mixing(self, model: nn.Module, batchnorm: str) -> None:
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and (batchnorm != "eval" or module.running_mean is None):
                instead = f", and write {self.defense} first in the chain" if batchnorm == "unknown" else ""
                raise NotApplicable(
                    f"{self.defense} needs each sample's own gradient, and BatchNorm layer {name!r} mixes the samples "
                    f"of a batch; use batchnorm=eval{instead}, or a model with GroupNorm"
                )


def clipped(rows: Mapping[str, Tensor], norm: float, scope: str) -> Rows:
    """Every row shortened to at most `norm`: over all its tensors together, or each tensor for itself.

    Lengths are taken in double precision: a bound that holds only roughly promises nothing.
    """
    lengths = {n: torch.linalg.vector_norm(t.flatten(1), dim=1, dtype=torch.float64) for n, t in rows.items()}
    if scope == WHOLE:
        lengths = dict.fromkeys(rows, torch.stack(list(lengths.values())).norm(dim=0))
    factors = {n: (norm / length.clamp_min(1e-300)).clamp(max=1.0) for n, length in lengths.items()}
    return {n: t * factors[n].to(t).view(-1, *[1] * (t.dim() - 1)) for n, t in rows.items()}

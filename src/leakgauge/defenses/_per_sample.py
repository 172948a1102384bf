"""A client that clips every sample's gradient before it adds them up, and adds noise to the sum.

The slow loop it must equal: for each sample on its own, its gradient, its norm, its factor min(1, C / norm); their sum,
plus noise, divided by their number. Here every sample is a trial of its own, as many side by side as memory allows.

For FedAvg this happens at every local step. Behind a defense that was written earlier in the chain the training cannot
be seen, only what it shares: one gradient per sample is still well defined there, several local steps are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.chain import ClientStep
from leakgauge.client.fedavg import control_of, epochs_of, trained
from leakgauge.engine.gradients import client_gradients, kept_bytes, parameters_of, trial_gradients, working_model
from leakgauge.engine.losses import loss_of
from leakgauge.engine.memory import fitting
from leakgauge.engine.randomness import normal
from leakgauge.errors import NotApplicable
from leakgauge.types import Batch, LocalTraining, SharedUpdate, Step

SCOPES = ("whole", "layer")
_COPIES = 4  # of a sample's gradient: as computed, squared, clipped and added up
Rows = dict[str, Tensor]  # name -> (R, *parameter)
EachGradient = Callable[[Tensor, Tensor, Sequence[int], int], Rows]  # (R, 1, ...), (R, 1), seeds and trials -> rows


@dataclass(frozen=True)
class SampleRule:
    """What a defense does to the samples' gradients of one step."""

    defense: str  # its name: in messages, and in the role of its randomness
    norm: float  # C
    scope: str = "whole"
    sigma: float = 0.0  # noise on every entry of the sum, in units of what one sample can move
    joint: bool = True  # what a sample can move in all tensors together; False: in one tensor

    def around(self, step: Step) -> Step:
        """`step` with the rule inside it."""

        def private(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            if not isinstance(step, ClientStep):
                return self._behind_another(step, model, batch, seeds)
            self._refuse_mixing(model, step.local.batchnorm)
            return self._trained(step.local, model, batch, seeds)

        return private

    def _trained(self, local: LocalTraining, model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        worker, loss = working_model(model, local.batchnorm), loss_of(local)
        at_once = _rows_at_once(worker, batch.inputs)
        if local.kind == "fedsgd":

            def of_shared_model(inputs: Tensor, labels: Tensor, _: Sequence[int], __: int) -> Rows:
                return client_gradients(worker, inputs, labels, loss)

            return SharedUpdate("gradient", self._step(of_shared_model, batch, seeds, 0, at_once))
        before = parameters_of(worker)

        def private(inputs: Tensor, labels: Tensor, weights: Rows, number: int) -> Rows:
            def of_own_weights(inputs: Tensor, labels: Tensor, _: Sequence[int], samples: int) -> Rows:
                own = {n: w.repeat_interleave(samples, 0) for n, w in weights.items()}
                return {n: g.detach() for n, g in trial_gradients(worker, inputs, labels, own, loss_of=loss).items()}

            return self._step(of_own_weights, Batch(inputs, labels), seeds, number, at_once)

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

        at_once = _rows_at_once(working_model(model, "eval"), batch.inputs)
        return SharedUpdate("gradient", self._step(as_shared, batch, seeds, 0, at_once))

    def _step(
        self, each: EachGradient, batch: Batch, seeds: Sequence[int], number: int, at_once: int
    ) -> dict[str, Tensor]:
        """The clipped mean with its noise, (T, *parameter); as many samples of all trials at once as fit."""
        trials, samples = batch.labels.shape[:2]
        size = max(1, at_once // trials)
        total: dict[str, Tensor] = {}
        for begin in range(0, samples, size):
            inputs, labels = batch.inputs[:, begin : begin + size], batch.labels[:, begin : begin + size]
            some = labels.shape[1]
            repeated = [seed for seed in seeds for _ in range(some)]
            rows = each(inputs.flatten(0, 1)[:, None], labels.flatten()[:, None], repeated, some)
            for name, g in clipped(rows, self.norm, self.scope).items():
                part = g.reshape(trials, some, *g.shape[1:]).sum(1)
                total[name] = part if begin == 0 else total[name] + part
        if self.sigma:
            noise = self.sigma * sensitivity(self.norm, self.scope, len(total) if self.joint else 1)
            roles = {name: f"{self.defense}/{number}/{name}" for name in total}
            total = {n: t + noise * normal(seeds, roles[n], t.shape[1:]).to(t) for n, t in total.items()}
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
    """Every row shortened to at most `norm`: over all its tensors together, or each tensor for itself."""
    lengths = {name: _lengths(t) for name, t in rows.items()}
    if scope == "whole":
        whole = torch.stack(list(lengths.values())).norm(dim=0)
        lengths = dict.fromkeys(rows, whole)
    return {name: t * _factor(lengths[name], norm, t) for name, t in rows.items()}


def sensitivity(norm: float, scope: str, tensors: int) -> float:
    """How far one clipped gradient can move the sum: `norm`, or its length over all tensors clipped for themselves."""
    return norm if scope == "whole" else norm * math.sqrt(tensors)


def _lengths(rows: Tensor) -> Tensor:
    """(R,), in double precision: a bound that holds only roughly promises nothing."""
    lengths: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    return lengths


def _factor(lengths: Tensor, norm: float, like: Tensor) -> Tensor:
    factor = (norm / lengths.clamp_min(1e-300)).clamp(max=1.0)
    return factor.to(like).view(-1, *[1] * (like.dim() - 1))


def _rows_at_once(model: nn.Module, inputs: Tensor) -> int:
    gradient = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return fitting(_COPIES * gradient + kept_bytes(model, inputs[0, :1]), inputs.device)

"""FedAvg: the client trains for some local steps and shares how its weights moved (McMahan et al. 2017).

The steps are those that frameworks ship: an optimiser with momentum, decay or squares, a schedule, accumulation,
clipping, FedProx's pull (Li et al. 2020) and SCAFFOLD's correction (Karimireddy et al. 2020), which is added to the
gradient before the optimiser sees it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.own_training import own_training
from leakgauge.engine.checkpointing import checkpointed
from leakgauge.engine.gradients import parameters_of, trial_gradients, working_model
from leakgauge.engine.losses import Loss, loss_of
from leakgauge.engine.optimizers import LocalStep, Optimizer, clipped, local_plan, torch_optimizer
from leakgauge.engine.penalties import collecting
from leakgauge.engine.precision import autocast, in_precision, outside_autocast, rounded_to
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, Unreadable
from leakgauge.reading.tensors import read_safetensors, read_torch
from leakgauge.types import Batch, Client, SharedUpdate, Step

Weights = dict[str, Tensor]  # name -> (T, *parameter)
# (inputs (T, n, ...), targets, weights, number of the mini-batch from 0) -> the gradient of a mini-batch
PartGradient = Callable[[Tensor, Tensor, Weights, int], Mapping[str, Tensor]]


def fedavg(local: Client, shuffled: bool = False) -> Step:
    """A step that shares `weights after - weights before`.

    Samples are visited in the order given, or if `shuffled` in one of each epoch's own. BatchNorm layers in train mode
    also move their running statistics; those are shared as buffers.
    """
    shuffled = shuffled or local.order == "shuffled"

    def step(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
        orders = seeds if shuffled else ()
        if local.fit:
            shared = own_training(model, batch, local, seeds)
        elif local.batchnorm == "train" and any(isinstance(m, _BatchNorm) for m in model.modules()):
            shared = _one_by_one(model, batch, local, orders)
        else:
            shared = _side_by_side(model, batch, local, orders)
        return shared.map(lambda _, t: rounded_to(t, local.shared_as))

    return step


def mini_batches(samples: int, local: Client) -> Iterator[slice]:
    """The slices one client visits, epoch after epoch; the last of an epoch may be smaller."""
    for step in local_plan(samples, local):
        yield from step.parts


def local_steps(samples: int, local: Client) -> int:
    """How many steps of the optimiser stand behind one weight difference."""
    return len(local_plan(samples, local))


def epochs_of(batch: Batch, local: Client, seeds: Sequence[int]) -> Iterator[Batch]:
    """The samples as each epoch visits them; with seeds every trial draws an order of its own for every epoch."""
    trials, samples = batch.labels.shape[:2]
    sources = [generator(seed, "order of samples") for seed in seeds]
    row = torch.arange(trials, device=batch.labels.device)[:, None]
    for _ in range(local.epochs):
        if not sources:
            yield batch
            continue
        order = torch.stack([torch.randperm(samples, generator=source) for source in sources]).to(row.device)
        yield Batch(batch.inputs[row, order], batch.labels[row, order])


def trained(
    before: Mapping[str, Tensor],
    epochs: Sequence[Batch],
    local: Client,
    gradient_of: PartGradient,
    *,
    control: Mapping[str, Tensor] | None = None,
    softness: float = 0.0,
    on_step: Callable[[Mapping[str, Tensor]], None] | None = None,
    low_memory: bool = False,
) -> Weights:
    """The weights (T, *parameter) of all trials after their local steps, from `before` (*parameter).

    `epochs` are the samples (T, N, ...) as each epoch visits them, repeated if there are fewer than epochs.

    Differentiable in samples and targets as far as `gradient_of` is; with `low_memory` one step's graph is alive at a
    time. `on_step` gets the gradient that each step took.
    """
    trials, samples = epochs[0].inputs.shape[:2]
    weights: Weights = {n: p.expand(trials, *p.shape) for n, p in before.items()}
    memory: Weights = {}
    rule = Optimizer(local, softness)
    for number, step in enumerate(local_plan(samples, local)):
        seen = epochs[step.epoch % len(epochs)]

        def moved(
            weights: Weights, memory: Weights, seen: Batch, number: int = number, step: LocalStep = step
        ) -> tuple[Weights, Weights]:
            gradient = _of_step(seen, step, weights, number, gradient_of)
            if on_step is not None:
                on_step(gradient)
            if local.proximal:
                gradient = {n: g + local.proximal * (weights[n] - before[n]) for n, g in gradient.items()}
            if control:
                gradient = {n: g + control[n] for n, g in gradient.items()}
            if local.clip:
                gradient = clipped(gradient, local.clip)
            return rule(weights, gradient, memory, number + 1, step.lr)

        weights, memory = checkpointed(moved, weights, memory, seen) if low_memory else moved(weights, memory, seen)
    return weights


def _of_step(
    seen: Batch, step: LocalStep, weights: Weights, number: int, gradient_of: PartGradient
) -> dict[str, Tensor]:
    total: Weights = {}
    for i, part in enumerate(step.parts):
        found = gradient_of(seen.inputs[:, part], seen.labels[:, part], weights, number * step.accumulated + i)
        total = {n: g if not total else total[n] + g for n, g in found.items()}
    return total if step.accumulated == 1 else {n: g / step.accumulated for n, g in total.items()}


def _side_by_side(model: nn.Module, batch: Batch, local: Client, seeds: Sequence[int]) -> SharedUpdate:
    """All trials at once: each carries its own weights (T, *parameter)."""
    worker = working_model(model, local.batchnorm)
    before, loss = parameters_of(worker), loss_of(local)

    def gradient_of(inputs: Tensor, labels: Tensor, weights: Weights, _: int) -> dict[str, Tensor]:
        def gradients(loss: Loss) -> dict[str, Tensor]:
            return trial_gradients(worker, inputs, labels, weights, loss_of=loss, differentiable=False)

        return {n: g.detach() for n, g in in_precision(local.precision, inputs.device, loss, gradients).items()}

    orders = list(epochs_of(batch, local, seeds)) if seeds else [batch]
    weights = trained(before, orders, local, gradient_of, control=control_of(local, before))
    return SharedUpdate("weight_delta", {n: w - before[n] for n, w in weights.items()})


def _one_by_one(model: nn.Module, batch: Batch, local: Client, seeds: Sequence[int]) -> SharedUpdate:
    """The plain loop, which also moves the running statistics (vmap cannot update them in place)."""
    rows = []
    for trial in range(batch.trials):
        worker = copy.deepcopy(model).eval()
        for module in worker.modules():
            if isinstance(module, _BatchNorm):
                module.train()
        _train_alone(worker, batch.take([trial]), local, seeds[trial : trial + 1])
        rows.append(worker)
    return moved_by(model, rows)


def _train_alone(worker: nn.Module, batch: Batch, local: Client, seeds: Sequence[int]) -> None:
    loss, moving = loss_of(local), {n: p for n, p in worker.named_parameters() if p.requires_grad}
    before = {n: p.detach().clone() for n, p in moving.items()}
    control = control_of(local, before)
    optimiser = torch_optimizer(local, list(moving.values()))
    epochs = list(epochs_of(batch, local, seeds)) if seeds else [batch] * local.epochs
    for step in local_plan(batch.labels.shape[1], local):
        optimiser.zero_grad()
        for part in step.parts:
            seen = epochs[step.epoch]
            with collecting() as penalties, autocast(local.precision, batch.inputs.device):
                value = loss(worker(seen.inputs[0, part]), seen.labels[0, part])
            _add_gradients(sum(penalties, value) / step.accumulated, moving.values(), local.precision)
        for name, parameter in moving.items():
            assert parameter.grad is not None
            if local.proximal:
                parameter.grad += local.proximal * (parameter.detach() - before[name])
            if control:
                parameter.grad += control[name]
        if local.clip:
            torch.nn.utils.clip_grad_norm_(moving.values(), local.clip)
        for group in optimiser.param_groups:
            group["lr"] = step.lr
        optimiser.step()


def _add_gradients(loss: Tensor, parameters: Iterable[nn.Parameter], precision: str) -> None:
    own = list(parameters)

    def gradients(loss_of: Loss) -> dict[str, Tensor]:
        with outside_autocast(loss.device):
            found = torch.autograd.grad(loss_of(loss, loss), own, retain_graph=precision == "float16")
        return {str(i): g for i, g in enumerate(found)}

    found = in_precision(precision, loss.device, lambda value, _: value, gradients)
    for parameter, g in zip(own, found.values(), strict=True):
        parameter.grad = g if parameter.grad is None else parameter.grad + g


def moved_by(model: nn.Module, trained: Sequence[nn.Module]) -> SharedUpdate:
    """What T trained copies of a model share: how their parameters moved, and their buffers as they are now."""
    before = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    after = [copy_.state_dict() for copy_ in trained]
    tensors = {n: torch.stack([one[n].detach() - b for one in after]) for n, b in before.items()}
    known = dict(model.named_parameters())
    buffers = {n: torch.stack([one[n] for one in after]) for n in after[0] if n not in known}
    return SharedUpdate("weight_delta", tensors, buffers)


def control_of(local: Client, before: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """SCAFFOLD's correction, server's minus own control variate, for each parameter."""
    if not local.control:
        return None
    tensors = _read_control(local.control)
    for name, parameter in before.items():
        if name not in tensors or tensors[name].shape != parameter.shape:
            got = "none" if name not in tensors else tuple(tensors[name].shape)
            allowed = f"a tensor {name!r} of shape {tuple(parameter.shape)} in it"
            raise BadInput(f"control {local.control!r}", allowed=allowed, got=got, do="save one for each parameter")
    return {name: tensors[name].to(parameter) for name, parameter in before.items()}


@cache
def _read_control(path: str) -> dict[str, Tensor]:
    try:
        return read_safetensors(Path(path))[0] if path.endswith(".safetensors") else dict(read_torch(Path(path)))
    except (Unreadable, OSError, ValueError, TypeError) as error:
        do = "save a dictionary of tensors with torch.save or safetensors"
        raise BadInput(f"control {path!r}", allowed="a file of tensors", got=error, do=do) from error

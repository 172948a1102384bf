"""What the fishing servers share: a last layer that asks for one class, and the search for the picture that answers.

All rows of the last layer are zero but that of class c, so the gradient of a sample enters the layers below only
through its error at c, which is p_c - [y = c]. A server that makes this error vanish for all samples but one gets that
sample's gradient, divided by the size of the batch. The gradient of bias c is the sum of these errors over that size:
it says how many samples answered, and the gradient of row c over it is the mean of their features.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.last_layer import dummy_inputs
from leakgauge.matching.updates import observed_gradient
from leakgauge.models.structure import last_linear
from leakgauge.settings import setting
from leakgauge.types import (
    Batch,
    DataSpec,
    Fact,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
    SharedUpdate,
    TamperingServer,
)

MID_GREY = 0.5  # a picture to see the model run
_OUT_OF_REACH = 4.0  # other biases are this many times what the asked class reaches on samples at hand, or more
_ASKED = "queries_so_far"  # what the server notes on its own copy of the model; no parameter, so no client sees it


@dataclass(frozen=True)
class Fishing(TamperingServer):
    """The search behind the fished gradient, by `inverting-gradients` with the class that the server chose."""

    paper: ClassVar[str] = "Wen et al. 2022, Fishing for User Data in Large-Batch Federated Learning, ICML"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    changes: ClassVar[str] = "parameters"
    asks_again: ClassVar[bool] = True

    steps: int = setting(4800, "optimiser steps per attempt", low=1)
    restarts: int = setting(1, "attempts; the one with the lowest cost is kept", low=1)
    lr: float = setting(0.1, "step length in standard deviations of the data", above=0)
    tv: float = setting(1e-4, "weight of total variation", low=0)
    time_budget: float | None = setting(None, "seconds for all victims together; none unless given", above=0)
    target: int = setting(-1, "class that is asked for; -1: as the labels of the batch suggest", low=-1)

    @property
    def rows_per_trial(self) -> int:
        return self.restarts

    def layer_of(self, model: nn.Module, data: DataSpec) -> str:
        """The layer that is changed; refuses a model or a target that cannot be fished with."""
        if self.target >= data.classes:
            raise BadInput(
                f"{self.name}: target",
                allowed=f"-1 or a class below {data.classes}",
                got=self.target,
                do=f"choose one of the classes of {data.name}",
            )
        like = next(model.parameters())
        layer = last_linear(model, torch.full((1, *data.shape), MID_GREY, device=like.device, dtype=like.dtype))
        if not layer:
            name, last = [(n, m) for n, m in model.named_modules() if any(True for _ in m.parameters(recurse=False))][
                -1
            ]
            raise NotApplicable(
                f"{self.name} changes an nn.Linear that gives the logits, behind other layers; "
                f"this model ends in {name or 'the whole model'!r} ({type(last).__name__})"
            )
        last = model.get_submodule(layer)
        if last.bias is None:
            raise NotApplicable(f"{self.name} silences classes by their biases, and {layer!r} has none")
        if not all(p.requires_grad for p in last.parameters(recurse=False)):
            raise NotApplicable(f"{self.name} reads the gradient of {layer!r}, which is frozen or not shared")
        return layer

    def search(
        self,
        observation: Observation,
        seeds: tuple[int, ...],
        progress: Progress,
        caught: Sequence[int],
        alone: Callable[[Observation, int], Observation],
        labels: Tensor | None,
        notes: Sequence[str],
    ) -> Reconstruction:
        """Pictures first; a sample that was not fished is not claimed.

        `caught` is how many samples answered in each trial; `alone` makes the observation of these samples only.
        """
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        like = next(iter(observation.update.tensors.values()))
        trials = len(seeds)
        inputs = like.new_full((trials, samples, *data.shape), MID_GREY)
        claimed = torch.arange(samples) < torch.tensor(list(caught))[:, None]
        objective = like.new_ones(trials)
        steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=like.device)
        finished = torch.ones(trials, dtype=torch.bool, device=like.device)
        traces: list[tuple[Tensor, Tensor]] = []
        seconds, interrupted = 0.0, False
        attack = InvertingGradients(
            steps=self.steps, restarts=self.restarts, lr=self.lr, tv=self.tv, time_budget=self.time_budget
        )
        for count in sorted(set(caught) - {0}):  # trials run one by one unless someone asks for several
            rows = [t for t, number in enumerate(caught) if number == count]
            part = attack(alone(observation.take(rows), count), [seeds[t] for t in rows], progress)
            assert part.inputs is not None
            at = torch.tensor(rows, device=like.device)
            inputs[at, :count] = part.inputs.to(inputs)
            objective[at], steps[at], evaluations[at] = part.objective.to(objective), part.steps, part.evaluations
            seconds += part.seconds
            if part.trace is not None:
                traces.append((at, part.trace))
            if part.finished is not None:
                finished[at], interrupted = part.finished, True
        return Reconstruction(
            inputs,
            labels,
            objective,
            steps,
            evaluations,
            seconds,
            _trace(objective, traces),
            finished if interrupted else None,
            tuple(notes),
            claimed=claimed,
        )


@dataclass(frozen=True)
class Answer:
    """The last layer as it was sent, and what its gradient says."""

    layer: str
    weight: Tensor  # (C, d), as sent
    bias: Tensor  # (C,), as sent
    rows: Tensor  # (T, C, d), gradient of the weight
    errors: Tensor  # (T, C), gradient of the bias: mean of p - onehot(y)
    samples: int  # N

    @property
    def asked(self) -> int | None:
        """The class whose row alone is not zero; None if there is no such row."""
        there = torch.nonzero(self.weight.abs().amax(1))[:, 0]
        return int(there) if len(there) == 1 else None

    def take(self, trial: int) -> Answer:
        """What it says about one trial."""
        return dataclasses.replace(self, rows=self.rows[[trial]], errors=self.errors[[trial]])

    def answering(self, target: int) -> Tensor:
        """(T,) sum of the errors at the class over the batch: -1 for one sample of it, if all others are silent."""
        return self.samples * self.errors[:, target]

    def mean_features(self, target: int) -> Tensor:
        """(T, d) features of the samples that answered, averaged by their errors; zeros where none did."""
        error = self.errors[:, target, None]
        return (self.rows[:, target] / error).where(error != 0, torch.zeros_like(error))


def answer_to(observation: Observation, layer: str) -> Answer:
    """What the update says about its last layer."""
    gradient, last = observed_gradient(observation), observation.model.get_submodule(layer)
    return Answer(
        layer,
        last.get_parameter("weight").detach(),
        last.get_parameter("bias").detach(),
        gradient[f"{layer}.weight"],
        gradient[f"{layer}.bias"],
        observation.fact(Fact.NUM_SAMPLES),
    )


def changed(model: nn.Module, layer: str, weight: Tensor, bias: Tensor, queries: int) -> nn.Module:
    """A copy of the model with this last layer, to be sent as query number `queries`."""
    sent = copy.deepcopy(model)
    last = sent.get_submodule(layer)
    with torch.no_grad():
        last.get_parameter("weight").copy_(weight)
        last.get_parameter("bias").copy_(bias)
    setattr(sent, _ASKED, queries)
    return sent


def queries_behind(observation: Observation) -> str:
    """How often the client was asked, in words."""
    queries = getattr(observation.model, _ASKED, 1)
    return "1 query" if queries == 1 else f"{queries} queries"


def asks_for(weight: Tensor, target: int, row: Tensor | float) -> Tensor:
    """A last layer (C, d) of zeros but for the row of one class."""
    rows = torch.zeros_like(weight)
    rows[target] = row
    return rows


def silenced(weight: Tensor, target: int, features: Tensor, low: float) -> Tensor:
    """Biases (C,) under which `target` is never predicted: the others' are `low`, or more if its logit comes near.

    `features` (S, d) are those of samples at hand.
    """
    reach = float((features @ weight[target]).max())
    bias = weight.new_full((len(weight),), max(low, _OUT_OF_REACH * reach))
    bias[target] = 0
    return bias


def features_at_hand(model: nn.Module, layer: str, data: DataSpec, public: Batch | None) -> Tensor:
    """What enters the layer (S, d) for public samples, or for made-up ones where there are none."""
    like = next(model.parameters())
    inputs = dummy_inputs(data.shape) if public is None else public.inputs[0]
    seen: list[Tensor] = []
    worker = copy.deepcopy(model).eval()
    hook = worker.get_submodule(layer).register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    with torch.no_grad():
        for part in torch.split(inputs.to(like), 128):
            worker(part)
    hook.remove()
    return torch.cat(seen)


def public_of(observation: Observation) -> Batch | None:
    public: Batch | None = observation.fact(Fact.PUBLIC_DATA) if observation.knows(Fact.PUBLIC_DATA) else None
    return public


def refuse_batch_statistics(name: str, observation: Observation) -> None:
    """Through the statistics of the batch every sample has a part in every other's gradient."""
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    normalised = [n for n, m in observation.model.named_modules() if isinstance(m, _BatchNorm)]
    if local.batchnorm == "train" and normalised:
        raise NotApplicable(
            f"{name} isolates the gradient of one sample, and {normalised[0]!r} mixes the samples of a batch by its "
            "statistics; it works with local training under batchnorm=eval"
        )


def fished_alone(
    observation: Observation, answer: Answer, target: int, row: Tensor, bias: Tensor, count: int
) -> Observation:
    """What `count` samples of the target class alone would have shown on the model with this row and these biases.

    The row must be a multiple of the one that was sent, and the biases must silence the class: each sample's error is
    then -1 there and 1 / (C - 1) elsewhere. The other samples' part in the last layer is left out: the features are
    known, and so is what they make of its gradient.
    """
    sent = answer.weight[target]
    largest = int(sent.abs().argmax())
    scale = -(row[largest] / sent[largest]) / answer.errors[:, target]  # (T,)
    tensors = {
        name: tensor * scale.view(-1, *[1] * (tensor.dim() - 1))
        for name, tensor in observed_gradient(observation).items()
    }
    classes = len(answer.bias)
    error = answer.errors.new_full((classes,), 1 / (classes - 1))
    error[target] = -1
    tensors[f"{answer.layer}.weight"] = error[:, None] * answer.mean_features(target)[:, None]
    tensors[f"{answer.layer}.bias"] = error.expand(len(scale), -1)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    revealed = {
        **observation.revealed,
        Fact.NUM_SAMPLES: count,
        Fact.LABELS: torch.full((len(scale), count), target, device=scale.device),  # no oracle: the server chose it
        Fact.LOCAL_TRAINING: dataclasses.replace(local, kind="fedsgd", epochs=1, batch_size=0),
    }
    model = changed(observation.model, answer.layer, asks_for(answer.weight, target, row), bias, queries=0)
    return dataclasses.replace(observation, model=model, update=SharedUpdate("gradient", tensors), revealed=revealed)


def _trace(objective: Tensor, parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """(T, S) from the traces of some trials; the others stay where they began."""
    longest = max((trace.shape[1] for _, trace in parts), default=1)
    whole = objective.new_full((len(objective), longest), torch.nan)
    whole[:, 0] = 1.0
    for rows, trace in parts:
        whole[rows, : trace.shape[1]] = trace.to(whole)
    return whole

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
from leakgauge.types import BLANK, Batch, DataSpec, Fact, Observation, Progress, Reconstruction, SharedUpdate
from leakgauge.types.attack import TamperingServer

_OUT_OF_REACH = 4.0  # other biases are this many times what the asked class reaches on samples at hand, or more
_ASKED = "queries_so_far"  # what the server notes on its own copy of the model; no parameter, so no client sees it


@dataclass(frozen=True)
class Fishing(TamperingServer):
    """The search behind the fished gradient, by `inverting-gradients` with the class that the server chose."""

    paper: ClassVar[str] = "Wen et al. 2022, Fishing for User Data in Large-Batch Federated Learning, ICML"
    tier: ClassVar[str] = "standard"
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
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
            allowed, do = f"-1 or a class below {data.classes}", f"choose one of the classes of {data.name}"
            raise BadInput(f"{self.name}: target", allowed=allowed, got=self.target, do=do)
        layer = last_linear(model, torch.full((1, *data.shape), BLANK).to(next(model.parameters())))
        if not layer:
            name, last = [(n, m) for n, m in model.named_modules() if [*m.parameters(recurse=False)]][-1]
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

    def answer(self, observation: Observation) -> Answer:
        """What the update says; refuses BatchNorm whose statistics mix every sample into every other's gradient."""
        normalised = [n for n, m in observation.model.named_modules() if isinstance(m, _BatchNorm)]
        if observation.fact(Fact.LOCAL_TRAINING).batchnorm == "train" and normalised:
            raise NotApplicable(
                f"{self.name} isolates the gradient of one sample, and {normalised[0]!r} mixes the samples of a batch "
                "by its statistics; it works with local training under batchnorm=eval"
            )
        return answer_to(observation, self.layer_of(observation.model, observation.fact(Fact.INPUT_SPEC)))

    def search(
        self,
        answer: Answer,
        seeds: tuple[int, ...],
        progress: Progress,
        caught: Sequence[int],
        alone: Callable[[Answer, int], Observation],
        labels: Tensor | None,
        notes: Sequence[str],
    ) -> Reconstruction:
        """Pictures first; a sample that was not fished is not claimed.

        `caught` is how many samples answered in each trial; `alone` makes the observation of these samples only.
        """
        attack = InvertingGradients(
            steps=self.steps, restarts=self.restarts, lr=self.lr, tv=self.tv, time_budget=self.time_budget
        )
        parts: list[tuple[Tensor, int, Reconstruction]] = []
        like, trials = answer.errors, len(seeds)
        for count in sorted(set(caught) - {0}):  # trials run one by one unless someone asks for several
            rows = [t for t, number in enumerate(caught) if number == count]
            part = attack(alone(answer.take(rows), count), [seeds[t] for t in rows], progress)
            parts.append((torch.tensor(rows, device=like.device), count, part))
        data: DataSpec = answer.observation.fact(Fact.INPUT_SPEC)
        inputs = like.new_full((trials, answer.samples, *data.shape), BLANK)
        objective, finished = like.new_ones(trials), torch.ones(trials, dtype=torch.bool, device=like.device)
        steps, evaluations = torch.zeros(2, trials, dtype=torch.long, device=like.device)
        traces = [part.trace for _, _, part in parts if part.trace is not None]
        trace = like.new_full((trials, max((t.shape[1] for t in traces), default=1)), torch.nan)
        trace[:, 0] = 1.0  # a trial without a search stays where it began
        for at, count, part in parts:
            assert part.inputs is not None
            inputs[at, :count] = part.inputs.to(inputs)
            objective[at], steps[at], evaluations[at] = part.objective.to(objective), part.steps, part.evaluations
            if part.trace is not None:
                trace[at, : part.trace.shape[1]] = part.trace.to(trace)
            if part.finished is not None:
                finished[at] = part.finished
        seconds = sum(part.seconds for _, _, part in parts)
        cut_off = finished if any(part.finished is not None for _, _, part in parts) else None
        claimed = torch.arange(answer.samples) < torch.tensor(list(caught))[:, None]
        return Reconstruction(
            inputs, labels, objective, steps, evaluations, seconds, trace, cut_off, tuple(notes), claimed=claimed
        )


@dataclass(frozen=True)
class Answer:
    """The last layer as it was sent, and what its gradient says."""

    observation: Observation
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

    @property
    def queries(self) -> str:
        """How often the client was asked, in words."""
        queries = getattr(self.observation.model, _ASKED, 1)
        return "1 query" if queries == 1 else f"{queries} queries"

    def take(self, trials: Sequence[int]) -> Answer:
        """What it says about some trials."""
        return answer_to(self.observation.take(trials), self.layer)

    def answering(self, target: int) -> Tensor:
        """(T,) sum of the errors at the class over the batch: -1 for one sample of it, if all others are silent."""
        return self.samples * self.errors[:, target]

    def mean_features(self, target: int) -> Tensor:
        """(T, d) features of the samples that answered, averaged by their errors; zeros where none did."""
        error = self.errors[:, target, None]
        return (self.rows[:, target] / error).where(error != 0, torch.zeros_like(error))

    def features(self) -> Tensor:
        """What enters the layer (S, d) for public samples, or for made-up ones where there are none."""
        known, facts = self.observation.knows(Fact.PUBLIC_DATA), self.observation.fact
        public: Batch | None = facts(Fact.PUBLIC_DATA) if known else None
        return features_at_hand(self.observation.model, self.layer, facts(Fact.INPUT_SPEC), public)

    def alone(self, target: int, row: Tensor, bias: Tensor, count: int) -> Observation:
        """What `count` samples of the target class alone would have shown on the model with this row and these biases.

        The row must be a multiple of the one that was sent, and the biases must silence the class: each sample's error
        is then -1 there and 1 / (C - 1) elsewhere. The other samples' part in the last layer is left out: the features
        are known, and so is what they make of its gradient.
        """
        sent, gradient = self.weight[target], observed_gradient(self.observation)
        largest, classes = int(sent.abs().argmax()), len(self.bias)
        scale = -(row[largest] / sent[largest]) / self.errors[:, target]  # (T,)
        tensors = {name: tensor * scale.view(-1, *[1] * (tensor.dim() - 1)) for name, tensor in gradient.items()}
        error = self.errors.new_full((classes,), 1 / (classes - 1))
        error[target] = -1
        tensors[f"{self.layer}.weight"] = error[:, None] * self.mean_features(target)[:, None]
        tensors[f"{self.layer}.bias"] = error.expand(len(scale), -1)
        local = self.observation.fact(Fact.LOCAL_TRAINING)
        facts = {
            Fact.NUM_SAMPLES: count,
            Fact.LABELS: torch.full((len(scale), count), target, device=scale.device),  # no oracle: the server chose it
            Fact.LOCAL_TRAINING: dataclasses.replace(local, kind="fedsgd", epochs=1, batch_size=0),
        }
        return dataclasses.replace(
            self.observation,
            model=changed(self.observation.model, self.layer, asks_for(self.weight, target, row), bias, queries=0),
            update=SharedUpdate("gradient", tensors),
            revealed={**self.observation.revealed, **facts},
        )


def answer_to(observation: Observation, layer: str) -> Answer:
    """What the update says about its last layer."""
    gradient, last = observed_gradient(observation), observation.model.get_submodule(layer)
    weight, bias = last.get_parameter("weight").detach(), last.get_parameter("bias").detach()
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    return Answer(observation, layer, weight, bias, gradient[f"{layer}.weight"], gradient[f"{layer}.bias"], samples)


def changed(model: nn.Module, layer: str, weight: Tensor, bias: Tensor, queries: int) -> nn.Module:
    """A copy of the model with this last layer, to be sent as query number `queries`."""
    sent = copy.deepcopy(model)
    last = sent.get_submodule(layer)
    with torch.no_grad():
        last.get_parameter("weight").copy_(weight)
        last.get_parameter("bias").copy_(bias)
    setattr(sent, _ASKED, queries)
    return sent


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
    inputs = dummy_inputs(data.shape) if public is None else public.inputs[0]
    seen: list[Tensor] = []
    worker = copy.deepcopy(model).eval()
    worker.get_submodule(layer).register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    with torch.no_grad():
        for part in torch.split(inputs.to(next(model.parameters())), 128):
            worker(part)
    return torch.cat(seen)

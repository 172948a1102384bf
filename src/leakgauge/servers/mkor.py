"""MKOR: convolutions that copy the picture and dense layers in which every class is read off by itself.

Wang et al., "Maximum Knowledge Orthogonality Reconstruction with Gradients in Federated Learning", 2023. The server
keeps the architecture and chooses all its parameters; nothing is optimised. The gradient of a class's own unit in the
first dense layer, divided by its bias entry, is the mean feature vector of that class in the batch, and the features
are copies of the picture as far as pooling leaves them.

The released code applies NLL to raw logits, which alone keeps the classes apart (`--local loss=nll-on-logits`). Real
cross-entropy adds the same mixture of all samples to every class. A class that is absent from the batch shows that
mixture and is subtracted, exactly; where every class occurs it is guessed from public samples or a grey picture.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.engine.losses import cross_entropy
from leakgauge.engine.randomness import generator
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import observed_gradient
from leakgauge.matching.whole_counts import nearest_counts, sorted_labels
from leakgauge.servers._parts.block import add_noise, offsets, write_block
from leakgauge.servers._parts.blueprint import Blueprint, blueprint
from leakgauge.servers._parts.copies import Copies, narrowed, plan_copies, used_features, write_copies
from leakgauge.servers._parts.decoupling import (
    Owners,
    class_rows,
    features_of,
    plan_owners,
    write_inconspicuous,
    write_naive,
)
from leakgauge.servers._parts.norms import pass_on
from leakgauge.servers._parts.regions import pictures, unscaled
from leakgauge.settings import setting
from leakgauge.types import (
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Batch,
    DataSpec,
    Fact,
    Observation,
    Progress,
    Reconstruction,
    TamperingServer,
)

_GREY = 0.5
_LOUD = 1e4
_FEW = 64  # public samples behind a guessed mixture where the whole network must run for it
_AT_ONCE = 32
_RELEASED_ENTRY = -1e-6  # bias gradient below which the released code takes a class to be there


@dataclass(frozen=True)
class MKOR(TamperingServer):
    """Copying convolutions and a unit for every class: whole batches in closed form.

    Takes chains of convolutions, with BatchNorm or without, with 2x2 pooling (VGG, LeNet-5) or strides of 2 or
    neither, and dense layers.

    Example: `leakgauge attack mkor --data mnist --model lenet5-mkor --threat-model malicious-parameters`
    """

    name: ClassVar[str] = "mkor"
    summary: ClassVar[str] = "parameters that copy the picture and keep the classes apart, read in closed form"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 22.0
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)

    parameters: str = setting(
        "naive", "plain to see, or hidden among random values", choices=("naive", "inconspicuous")
    )
    mixture: str = setting(
        "auto",
        "how cross-entropy's mixture is known: by an absent class if there is one, else as named; "
        "none divides as released",
        choices=("auto", "public", "grey", "none"),
    )
    design: str = setting(
        "auto",
        "what the convolutions' edit covers: the block between the channels in use (Eq. 20), or their whole "
        "rows, emptied; auto takes rows if naive, else the block",
        choices=("auto", "block", "rows"),
    )
    beta: float = setting(1.0, "factor on the block's filters; a larger one drowns what other channels add", above=0)
    sigma: float = setting(1e-3, "deviation of the block's other weights", low=0)
    directions: int = setting(-1, "layers that send four shifted copies (I); -1 for as many as fit", low=-1)
    dense: str = setting(
        "enlarged",
        "inconspicuous dense layers: links enlarged until a class's units stay active, or Eqs. 10-13 as "
        "printed, without link and pair_noise",
        choices=("enlarged", "text"),
    )
    link: float = setting(300.0, "how far the second layer's own links stand out, in its deviations", low=0)
    leak: float = setting(0.0, "deviation of what links other units to those of a class (sigma in Eq. 12)", low=0)
    paths: int = setting(1, "units of each class in every dense layer, for a client whose dropout takes some", low=1)
    noise: float = setting(0.0, "deviation of the noise on the convolutions' parameters", low=0)
    noise_on: str = setting(
        "modified", "which of them get it: those that the server wrote, or all", choices=("modified", "all")
    )
    pair_noise: float = setting(0.0, "noise on the mirrored rows, relative to the layer's deviation", low=0)
    magnify: float = setting(1.0, "factor on the last layer, and so on the gradients before it", above=0)
    blur: int = setting(5, "pixels of the window that smooths the result; 1 for none", low=1)
    secret: int = setting(0, "the server's own random number: which units and channels it uses", low=0)
    as_released: bool = setting(False, "divide without correction, and drop classes with a bias gradient near zero")

    def louder(self) -> MKOR:
        return dataclasses.replace(self, magnify=_LOUD)

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        plan = blueprint(model, data, self.name)
        sent = copy.deepcopy(model)
        copies, owners = self._layout(plan, sent, data)
        layers = _dense(sent, plan)
        draw = generator(self.secret, "mkor/values")
        if self._in_block:
            write_block(sent, plan, copies, self.sigma, generator(self.secret, "mkor/block"))
        else:
            write_copies(sent, plan, copies)
        if any(layer.norm for layer in plan.convolutions):
            pass_on(sent, plan, copies, None if public is None else public.inputs[0, :_FEW])
        if self.parameters == "naive":
            write_naive(layers, owners)
        elif self.dense == "text":
            write_inconspicuous(layers, owners, 0.0, self.leak, 0.0, draw, last_biases=True)
        else:
            write_inconspicuous(layers, owners, self.link, self.leak, self.pair_noise, draw)
        with torch.no_grad():
            if len(layers) > 1:
                layers[-1].weight.mul_(self.magnify)
            if self.noise and self.noise_on == "modified":
                add_noise(sent, plan, copies, self.noise, not self._in_block, draw)
            elif self.noise:
                for parameter in (p for c in plan.convolutions for p in sent.get_submodule(c.name).parameters()):
                    parameter.add_(self.noise * torch.randn(parameter.shape, generator=draw).to(parameter))
        return sent

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        plan = blueprint(observation.model, data, self.name)
        copies, owners = self._layout(plan, observation.model, data)
        if self._in_block and copies.places:
            still = copy.deepcopy(observation.model).eval()
            reference = self._reference(observation, next(still.parameters()), _AT_ONCE)
            copies = dataclasses.replace(copies, offsets=offsets(still, plan, copies, reference))
        gradient = observed_gradient(observation)
        counts = self._counts(observation, gradient[f"{plan.dense[-1]}.bias"], samples)  # (T, C)
        rows, entries = class_rows(gradient, observation.model, plan.dense, owners)
        found = counts > 0
        if self.as_released:
            found &= entries < _RELEASED_ENTRY
        shift, level = self._mixture(observation, plan, owners, rows, entries, counts)
        features = features_of(rows - shift[:, None], entries - level[:, None])  # (T, C, d)
        labels = sorted_labels(counts, samples)
        unseen = self._unseen(observation)
        inputs = torch.stack(
            [
                self._pictures(f, t_labels, t_found, plan, copies, data, unseen)
                for f, t_labels, t_found in zip(features, labels, found, strict=True)
            ]
        )
        own = features
        if self._in_block:
            own = unscaled(own.reshape(-1, *plan.features), plan, copies).flatten(1).view_as(own)
        outside = (own - own.clamp(0, 1)).abs().mean(2)
        objective = (outside * found).sum(1) / found.sum(1).clamp_min(1)
        ones = torch.ones(len(labels), dtype=torch.long)
        notes = tuple(_note(c, samples) for c in counts)
        return Reconstruction(inputs, labels, objective, ones, 0 * ones, time.perf_counter() - began, notes=notes)

    @property
    def _in_block(self) -> bool:
        return self.design == "block" or (self.design == "auto" and self.parameters == "inconspicuous")

    def _layout(self, plan: Blueprint, model: nn.Module, data: DataSpec) -> tuple[Copies, Owners]:
        """Which channels and units the server uses: drawn from its secret, so the same before and after."""
        draw = None if self.parameters == "naive" else generator(self.secret, "mkor/places")
        if self.parameters == "inconspicuous" and len(plan.dense) < 2:
            raise NotApplicable(f"{self.name}: inconspicuous parameters need two dense layers or more; use naive")
        gain = self.beta if self._in_block else 1.0
        copies = plan_copies(plan, self.name, draw, self.directions, gain)
        widths = [layer.out_features for layer in _dense(model, plan)]
        if widths[-1] != data.classes:
            raise NotApplicable(f"{self.name} needs {data.classes} logits out of {plan.dense[-1]!r}, not {widths[-1]}")
        return copies, plan_owners(widths, data.classes, plan.dense, self.name, draw, self.paths)

    def _counts(self, observation: Observation, entries: Tensor, samples: int) -> Tensor:
        """How often each class occurs (T, C), from the bias gradient of the logits (T, C)."""
        if observation.fact(Fact.LOCAL_TRAINING).loss == NLL_ON_LOGITS:
            return nearest_counts(-samples * entries, samples)
        return nearest_counts(samples * (1 / entries.shape[1] - entries), samples)

    def _mixture(
        self, observation: Observation, plan: Blueprint, owners: Owners, rows: Tensor, entries: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What cross-entropy added to every class: a row (T, d) and an entry (T,). Zero for NLL on logits."""
        nothing = torch.zeros_like(rows[:, 0]), torch.zeros_like(entries[:, 0])
        if observation.fact(Fact.LOCAL_TRAINING).loss == NLL_ON_LOGITS or self.as_released or self.mixture == "none":
            return nothing
        absent = (counts == 0).to(rows)  # (T, C)
        some = absent.sum(1)  # (T,)
        each = absent / some.clamp_min(1)[:, None]
        row, entry = torch.einsum("tc,tcd->td", each, rows), (each * entries).sum(1)
        if self.mixture == "auto" and bool((some > 0).all()):
            return row, entry
        guess_row, guess_entry = self._guessed(observation, plan, owners)
        known = (some > 0) & (self.mixture == "auto")
        return torch.where(known[:, None], row, guess_row), torch.where(known, entry, guess_entry)

    def _guessed(self, observation: Observation, plan: Blueprint, owners: Owners) -> tuple[Tensor, Tensor]:
        """What an absent class would show if the batch were the public samples, or one grey picture: (d,) and ()."""
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        copies, _ = self._layout(plan, observation.model, data)
        narrow = self.parameters == "naive" and not self._in_block  # else the other channels matter
        model = narrowed(observation.model, plan, copies) if narrow else copy.deepcopy(observation.model)
        model.eval().requires_grad_(False)
        first = model.get_submodule(plan.dense[0])
        parameters = list(first.requires_grad_(True).parameters())
        guess = self._reference(observation, parameters[0], None if narrow else _FEW)
        labels = torch.zeros(len(guess), dtype=torch.long, device=guess.device)
        weight, bias = (torch.zeros_like(p) for p in parameters)
        for part in range(0, len(guess), _AT_ONCE):
            some = slice(part, part + _AT_ONCE)
            with torch.enable_grad():
                loss = cross_entropy(model(guess[some]), labels[some]) * len(guess[some]) / len(guess)
                found = torch.autograd.grad(loss, parameters)
            weight, bias = weight + found[0], bias + found[1]
        gradient = {f"{plan.dense[0]}.weight": weight[None], f"{plan.dense[0]}.bias": bias[None]}
        rows, entries = class_rows(gradient, model, plan.dense, owners)
        row = rows[0, 1:].mean(0)  # of all classes but the one that was named
        if narrow:
            whole = row.new_zeros(int(torch.Size(plan.features).numel()))
            row = whole.index_copy(0, used_features(plan, copies).to(row.device), row)
        return row, entries[0, 1:].mean()

    def _reference(self, observation: Observation, like: Tensor, most: int | None) -> Tensor:
        """Pictures that the batch may resemble, (N, *sample): public ones, or a grey one."""
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        if self.mixture != "grey" and observation.knows(Fact.PUBLIC_DATA):
            public: Batch = observation.fact(Fact.PUBLIC_DATA)
            return public.inputs[0, :most].to(like)
        return torch.full((1, *data.shape), _GREY, dtype=like.dtype, device=like.device)

    def _unseen(self, observation: Observation) -> Tensor | float | None:
        """What stands where pooling without padding leaves a border: the public mean; black as released."""
        if self.as_released:
            return 0.0
        if not observation.knows(Fact.PUBLIC_DATA):
            return None
        public: Batch = observation.fact(Fact.PUBLIC_DATA)
        return public.inputs[0].mean(0)

    def _pictures(
        self,
        features: Tensor,
        labels: Tensor,
        found: Tensor,
        plan: Blueprint,
        copies: Copies,
        data: DataSpec,
        unseen: Tensor | float | None,
    ) -> Tensor:
        """One trial: (C, d) and the labels (N,) of its records -> (N, *sample); grey for what was not found."""
        classes, place = torch.unique(labels, return_inverse=True)
        seen = pictures(features[classes].reshape(len(classes), *plan.features), plan, copies, self.blur, unseen)
        if seen.shape[1:] != torch.Size(data.shape):
            seen = F.adaptive_avg_pool2d(seen, (data.shape[1], data.shape[2]))  # the network had enlarged it
        seen = torch.where(found[classes].view(-1, *[1] * len(data.shape)), seen, torch.full_like(seen, _GREY))
        return seen[place]


def _dense(model: nn.Module, plan: Blueprint) -> list[nn.Linear]:
    layers = [model.get_submodule(name) for name in plan.dense]
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def expected_singletons(samples: int, classes: int) -> float:
    """How many samples of a random batch are the only one of their class, if all classes are as likely."""
    return float(samples * (1 - 1 / classes) ** (samples - 1))


def _note(counts: Tensor, samples: int) -> str:
    single = int((counts == 1).sum())
    return (
        f"{int((counts > 0).sum())} classes read, {single} of them with one record "
        f"(a random batch has {expected_singletons(samples, len(counts)):.1f})"
    )

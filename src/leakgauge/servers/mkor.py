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
from collections.abc import Sequence
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
from leakgauge.servers._first_layer import FirstLayerServer, expected_alone
from leakgauge.servers._mkor import convolutions, dense
from leakgauge.servers._mkor.blueprint import blueprint
from leakgauge.servers._mkor.convolutions import Copies
from leakgauge.servers._mkor.dense import Owners
from leakgauge.servers._mkor.regions import pictures, unscaled
from leakgauge.settings import setting
from leakgauge.types import BLANK, NLL_ON_LOGITS, Batch, DataSpec, Fact, Observation, Progress, Reconstruction

_LOUD = 1e4
_FEW = 64  # public samples behind a guessed mixture where the whole network must run for it
_AT_ONCE = 32
_RELEASED_ENTRY = -1e-6  # bias gradient below which the released code takes a class to be there


@dataclass(frozen=True)
class MKOR(FirstLayerServer):
    """Copying convolutions and a unit for every class: whole batches in closed form.

    Takes chains of convolutions, with BatchNorm or without, with 2x2 pooling (VGG, LeNet-5) or strides of 2 or
    neither, and dense layers.

    Example: `leakgauge attack mkor --data mnist --model lenet5-mkor --threat-model malicious-parameters`
    """

    name: ClassVar[str] = "mkor"
    summary: ClassVar[str] = "parameters that copy the picture and keep the classes apart, read in closed form"
    paper: ClassVar[str] = "Wang et al. 2023 (MKOR)"
    cost: ClassVar[float] = 22.0

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
        sent = copy.deepcopy(model)
        copies, owners = self._layout(sent, data)
        layers, draw = _dense(sent, owners.names), generator(self.secret, "mkor/values")
        block = (self.sigma, generator(self.secret, "mkor/block")) if self._in_block else None
        convolutions.write_copies(sent, copies, block)
        convolutions.pass_on(sent, copies, None if public is None else public.inputs[0, :_FEW])
        if self.parameters == "naive":
            dense.write_naive(layers, owners)
        elif self.dense == "text":
            dense.write_inconspicuous(layers, owners, 0.0, self.leak, 0.0, draw, last_biases=True)
        else:
            dense.write_inconspicuous(layers, owners, self.link, self.leak, self.pair_noise, draw)
        with torch.no_grad():
            if len(layers) > 1:
                layers[-1].weight.mul_(self.magnify)
            if self.noise and self.noise_on == "modified":
                convolutions.add_noise(sent, copies, self.noise, not self._in_block, draw)
            elif self.noise:
                for parameter in (p for _, _, module in copies.layers(sent) for p in module.parameters()):
                    parameter.add_(self.noise * torch.randn(parameter.shape, generator=draw).to(parameter))
        return sent

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        copies, owners = self._layout(observation.model, data)
        if self._in_block and copies.places:
            still = copy.deepcopy(observation.model).eval()
            reference = self._reference(observation, next(still.parameters()), _AT_ONCE)
            copies = dataclasses.replace(copies, offsets=convolutions.offsets(still, copies, reference))
        gradient = observed_gradient(observation)
        logits = gradient[f"{owners.names[-1]}.bias"]  # (T, C)
        raw = observation.fact(Fact.LOCAL_TRAINING).loss == NLL_ON_LOGITS
        counts = nearest_counts(samples * ((0 if raw else 1 / data.classes) - logits), samples)  # (T, C), by class
        rows, entries = dense.class_rows(gradient, observation.model, owners)
        found = counts > 0
        if self.as_released:
            found &= entries < _RELEASED_ENTRY
        if not raw and not self.as_released and self.mixture != "none":
            row, entry = self._mixture(observation, copies, owners, rows, entries, counts)
            rows, entries = rows - row[:, None], entries - entry[:, None]
        features = dense.features_of(rows, entries)  # (T, C, d)
        labels = sorted_labels(counts, samples)
        public = _public(observation)  # its mean stands where pooling without padding leaves a border
        unseen = public if public is None else public.mean(0)
        trials = zip(features, labels, found, strict=True)
        inputs = torch.stack(
            [self._pictures(*trial, copies, data, 0.0 if self.as_released else unseen) for trial in trials]
        )
        own = features
        if self._in_block:
            own = unscaled(own.reshape(-1, *copies.plan.features), copies).flatten(1).view_as(own)
        outside = (own - own.clamp(0, 1)).abs().mean(2)
        objective = (outside * found).sum(1) / found.sum(1).clamp_min(1)
        ones = torch.ones(len(labels), dtype=torch.long)
        notes = tuple(_note(own, samples) for own in counts)
        return Reconstruction(inputs, labels, objective, ones, 0 * ones, time.perf_counter() - began, notes=notes)

    @property
    def _in_block(self) -> bool:
        return self.design == "block" or (self.design == "auto" and self.parameters == "inconspicuous")

    def _layout(self, model: nn.Module, data: DataSpec) -> tuple[Copies, Owners]:
        """Which channels and units the server uses: drawn from its secret, so the same before and after."""
        plan = blueprint(model, data, self.name)
        draw = None if self.parameters == "naive" else generator(self.secret, "mkor/places")
        if draw is not None and len(plan.dense) < 2:
            raise NotApplicable(f"{self.name}: inconspicuous parameters need two dense layers or more; use naive")
        copies = convolutions.plan_copies(plan, self.name, draw, self.directions, self.beta if self._in_block else 1.0)
        widths = {name: layer.out_features for name, layer in zip(plan.dense, _dense(model, plan.dense), strict=True)}
        logits = widths[plan.dense[-1]]
        if logits != data.classes:
            raise NotApplicable(f"{self.name} needs {data.classes} logits out of {plan.dense[-1]!r}, not {logits}")
        return copies, dense.plan_owners(widths, data.classes, self.name, draw, self.paths)

    def _mixture(
        self, observation: Observation, copies: Copies, owners: Owners, rows: Tensor, entries: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What cross-entropy added to every class: a row (T, d) and an entry (T,)."""
        absent = (counts == 0).to(rows)  # (T, C)
        some = absent.sum(1)  # (T,)
        each = absent / some.clamp_min(1)[:, None]
        row, entry = torch.einsum("tc,tcd->td", each, rows), (each * entries).sum(1)
        if self.mixture == "auto" and bool((some > 0).all()):
            return row, entry
        guess_row, guess_entry = self._guessed(observation, copies, owners)
        known = (some > 0) & (self.mixture == "auto")
        return torch.where(known[:, None], row, guess_row), torch.where(known, entry, guess_entry)

    def _guessed(self, observation: Observation, copies: Copies, owners: Owners) -> tuple[Tensor, Tensor]:
        """What an absent class would show if the batch were the public samples, or one grey picture: (d,) and ()."""
        narrow = self.parameters == "naive" and not self._in_block  # else the other channels matter
        model = convolutions.narrowed(observation.model, copies) if narrow else copy.deepcopy(observation.model)
        model.eval().requires_grad_(False)
        named = dict(model.get_submodule(owners.names[0]).requires_grad_(True).named_parameters(owners.names[0]))
        parameters = tuple(named.values())
        guess = self._reference(observation, parameters[0], None if narrow else _FEW)
        total = [torch.zeros_like(p) for p in parameters]
        for part in torch.split(guess, _AT_ONCE):
            with torch.enable_grad():
                labels = torch.zeros(len(part), dtype=torch.long, device=part.device)
                loss = cross_entropy(model(part), labels) * len(part) / len(guess)
            total = [before + more for before, more in zip(total, torch.autograd.grad(loss, parameters), strict=True)]
        gradient = {name: own[None] for name, own in zip(named, total, strict=True)}
        rows, entries = dense.class_rows(gradient, model, owners)
        row = rows[0, 1:].mean(0)  # of all classes but the one that was named
        if narrow:
            whole = row.new_zeros(torch.Size(copies.plan.features).numel())
            row = whole.index_copy(0, copies.used_features().to(row.device), row)
        return row, entries[0, 1:].mean()

    def _reference(self, observation: Observation, like: Tensor, most: int | None) -> Tensor:
        """Pictures that the batch may resemble, (N, *sample): public ones, or a grey one."""
        public = _public(observation)
        if self.mixture != "grey" and public is not None:
            return public[:most].to(like)
        return torch.full((1, *observation.fact(Fact.INPUT_SPEC).shape), BLANK, dtype=like.dtype, device=like.device)

    def _pictures(
        self,
        features: Tensor,
        labels: Tensor,
        found: Tensor,
        copies: Copies,
        data: DataSpec,
        unseen: Tensor | float | None,
    ) -> Tensor:
        """One trial: (C, d) and the labels (N,) of its records -> (N, *sample); grey for what was not found (C,)."""
        classes, place = torch.unique(labels, return_inverse=True)
        seen = pictures(features[classes].reshape(-1, *copies.plan.features), copies, self.blur, unseen)
        if seen.shape[1:] != torch.Size(data.shape):
            seen = F.adaptive_avg_pool2d(seen, (data.shape[1], data.shape[2]))  # the network had enlarged it
        return torch.where(found[classes].view(-1, *[1] * len(data.shape)), seen, BLANK)[place]


def _public(observation: Observation) -> Tensor | None:
    """Public pictures (N, *sample), if there are any."""
    return observation.fact(Fact.PUBLIC_DATA).inputs[0] if observation.knows(Fact.PUBLIC_DATA) else None


def _dense(model: nn.Module, names: Sequence[str]) -> list[nn.Linear]:
    layers = [model.get_submodule(name) for name in names]
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def _note(counts: Tensor, samples: int) -> str:
    single = int((counts == 1).sum())
    return (
        f"{int((counts > 0).sum())} classes read, {single} of them with one record "
        f"(a random batch has {expected_alone(samples, len(counts)):.1f})"
    )

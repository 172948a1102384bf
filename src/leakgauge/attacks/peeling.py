"""Peeling: whole batches out of a first Linear + ReLU layer, sample after sample, each with its proof.

Where a unit is active for one sample of the batch only, its row of the weight gradient over its bias gradient is that
sample (`linear`). Candidates are checked, those that hold are subtracted from all rows, and rows that held two samples
now hold one. No optimisation, and no knowledge of the truth: what is claimed is certified.

The certificate has two parts. The known network says for each label what the candidate alone would leave in the unit's
bias gradient, and one label must give what was observed. And what the candidate leaves in all units must lie in the
space that the update's columns span (`CoefficientSpace`). The first alone is not enough: among thousands of mixtures
some fit by chance. Where the batch is larger than the layer or the sample, there is no such space, and two units have
to name the same sample instead.

Where no row with one sample is left, units that are on for the whole batch give rows over the samples that leave a unit
off (`off_rows`), and it goes on with those.

An attacker who knows that something behind the layer was changed does without the network there: what a sample left in
the units is the one vector of that space with zeros where the sample leaves units off. It holds whatever is drawn,
hidden, clipped or mixed behind the layer.

An update of 16-bit numbers (float16, bfloat16) may be too coarse to prove much. What rows agree on is then claimed and
not certified (`claimed_by_clusters`).

Where we depart. The published attacks search the space for sparse vectors, which costs more than exponentially many
tries in the batch size; rows of one sample are there by themselves where inputs are not centred, as pictures in [0, 1].
Samples are polished at the end by least squares over all rows. A sample that is in the batch twice is not found.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.client.fedavg import local_steps
from leakgauge.client.gradient_behind import gradient_scale
from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import COMPUTED, LOSSES, SOLVED, PeeledLayer, first_layer_of
from leakgauge.matching.shared_precision import Precision, shared_precision
from leakgauge.matching.updates import observed_gradient, without_search
from leakgauge.types import BLANK, CROSS_ENTROPY, NO_LABEL, Attack, Fact, Observation, Progress, Reconstruction

_TINY = 1e-300
_ROUNDING = 4.0  # units of the precision by which an entry is off, beside the sum of what was added up in it
_UNEXPLAINED = 8.0  # noise this many times the precision of a usual entry did not come from it
_CLEAR = 30.0  # a row's bias entry must be this many times its rounding, or its ratio is not looked at
_SLACK = 8.0  # in roundings: how far a value in range may be out of it, and a slope off what was observed
_SAME_SLOPE = 1e-5  # relative, beside that: the candidate's own error bends what the network says
_SAME_ALONE = 1e-6  # the same where no space backs the slope up
_EXPLAINED = 1e-3  # a row is explained by the proven samples if no more than this share of it is left
_FURTHEST = 0.05  # a polished sample that moves more than this was not the same sample
_KINK = 1e-5  # a unit this near to its kink, beside its usual size, may be on or off
_ZERO = 1e-4  # a coefficient this small beside the largest counts as none
_MOST_PASSES = 200
_GREYS = 5  # plain samples on which units are tried, for how likely they are on for all samples
# Of the network behind the layer.
_PASS = 128  # samples at once
_PROBES = 8  # random inputs on which the layer is tried for a ReLU behind it
# Of the coefficients' space.
_SPARE = 16  # directions beyond the samples: what they hold is rounding, or noise
_GAP = 1e-2  # the spare directions must be this small beside the last of the samples' own
_INSIDE = 2e-2  # share of a vector that may lie outside; mixtures have most of theirs there
_VANISHES = 4e-4  # share of a vector that may be left where it should vanish
_ZEROS_PER_SAMPLE = 1.5  # with fewer zeros asked for, some vector comes near to them by chance
_LONE = 1e-2  # a second vector with the same zeros must miss by this much, or the first is not determined
_MOST_KINKS = 64  # units so near to their kink that they may count as on or off; more of them prove nothing
# Of units that are always on.
_TRIES = 400  # random choices of rows, each as many as M has, until others agree with them
_WITNESSES = 4  # rows that must agree with a choice
_AMONG = 4  # rows are drawn from this many times what a choice takes: those that are most likely on
_SKETCH = 4  # random combinations of a row's entries, in which rows are compared first
_AGREES = 1e-4  # relative: rounding is far below it, a sample that is missing far above
# Of rows that agree.
_FEWEST = 2  # rows that agree
_PER_ENTRY = 0.29  # the standard deviation of a number that was rounded, beside the step it was rounded to
_SAME = 1.5  # rows agree up to this many times the angle that rounding explains
_WIDEST = 0.06  # an angle beyond which a row says nothing
_ON_SLOPE = 0.05  # relative: how far what a sample leaves in a row may be off what is there
_MOST_OF = 0.6  # of a cluster's rows, which the network must confirm
_BEYOND = 0.02  # how far a value may be out of its range
_MOST_LOOKS = 8
_MOST_ROWS = 2000  # compared with one another at once


@dataclass(frozen=True)
class Peeling(Attack):
    """Exact, certified recovery of batches. The own objective is the share of the batch without a certificate.

    Certified samples come first, then what is only claimed; the rest of the batch is neither.

    Example: `leakgauge attack peeling --data photos32 --model mlp:activation=relu,hidden=400 --batch-size 16`
    """

    name: ClassVar[str] = "peeling"
    summary: ClassVar[str] = "take a batch apart, row by row, behind a first Linear + ReLU layer (exact, certified)"
    paper: ClassVar[str] = "after Dimitrov et al. 2024, SPEAR, NeurIPS; rows of one sample: Aono et al. 2018"
    kind: ClassVar[type] = PeeledLayer
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.3
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = LOSSES

    def check(self, observation: Observation) -> None:
        first_layer_rows(observation)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> PeeledLayer:  # noqa: ARG002
        return PeeledLayer(observation)

    def solve(self, problem: PeeledLayer, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began, samples = time.perf_counter(), problem.observation.fact(Fact.NUM_SAMPLES)
        behind, every = first_layer_rows(problem.observation)
        inputs, labels, counts, claimed, notes = [], [], [], [], []
        for trial, rows in enumerate(every):  # each takes passes of its own number and size
            peeled = peel(rows, behind, problem.coefficients == SOLVED)
            parts: list[Peeled | Claims] = [peeled] if peeled.claims is None else [peeled, peeled.claims]
            inputs.append(_padded(torch.cat([part.inputs for part in parts]), samples, BLANK))
            labels.append(_padded(torch.cat([part.labels for part in parts]), samples, NO_LABEL))
            counts.append(len(peeled.inputs))
            claimed.append(sum(len(part.inputs) for part in parts))
            notes.append(_note(peeled, samples))
            progress((trial + 1) / len(seeds))
        like = problem.observation.update.tensors[f"{behind.layer}.weight"]
        found = torch.tensor(counts)
        return without_search(
            began,
            torch.stack(inputs).to(like).reshape(len(seeds), samples, *behind.shape),
            torch.stack(labels) if problem.coefficients == COMPUTED else None,
            1 - found.to(like) / samples,
            notes=tuple(notes),
            certified=found,
            claimed=torch.arange(samples) < torch.tensor(claimed)[:, None],
        )


def first_layer_rows(observation: Observation) -> tuple[BehindFirstLayer, list[Rows]]:
    """The network behind the first layer and that layer's gradient, one entry per trial; refused where it is none."""
    samples, shape = observation.fact(Fact.NUM_SAMPLES), observation.fact(Fact.INPUT_SPEC).shape
    local = observation.fact(Fact.LOCAL_TRAINING)
    layer, affine = first_layer_of(observation, "peeling")
    if local.kind == "fedavg" and local_steps(samples, local) != 1:
        raise NotApplicable("peeling proves samples by one step's gradient, and the client takes several; use linear")
    net = working_model(observation.model, local.batchnorm).double().requires_grad_(False)
    if uses_batch_statistics(net):
        raise NotApplicable("peeling needs samples that do not change one another, and BatchNorm is in train mode")
    behind = BehindFirstLayer(net, layer, shape, samples, local.kind_of_loss, linear_behind_relu(net, layer, shape))
    if not behind.rectified():
        raise NotApplicable(f"peeling needs a ReLU right behind {layer!r}: its zeros separate samples; use linear")
    gradient = observed_gradient(observation)
    weight, bias = gradient[f"{layer}.weight"], gradient.get(f"{layer}.bias")  # (T, H, D), (T, H)
    if bias is None:
        raise NotApplicable(f"peeling needs the bias gradient of {layer!r}, which has none or keeps it; use dlg")
    scale, shift = (part.double() for part in affine)
    grid = shared_precision(observation.update.tensors[f"{layer}.{part}"] for part in ("weight", "bias"))
    coarse = 0.0
    if local.kind == "fedavg":
        rate = -gradient_scale(local, samples)
        grid = dataclasses.replace(grid, spacing=grid.spacing / rate)
        before = observation.model.get_submodule(layer).get_parameter("bias").detach()
        coarse = shared_precision([before]).relative * float(before.abs().max()) / rate
    precision, known = grid.relative, None
    if grid.is_coarse:  # one rounding is half a step at most; `rounding` multiplies by what adding up in float32 does
        precision, coarse, known = grid.relative / (2 * _ROUNDING), coarse + grid.spacing / 2, grid
    pairs = zip(weight.double(), bias.double(), strict=True)
    return behind, [Rows(w, b, scale, shift, precision, coarse, grid=known) for w, b in pairs]


def _padded(found: Tensor, samples: int, value: float) -> Tensor:
    """(N, ...) with `value` behind what was found."""
    return torch.cat((found, found.new_full((samples - len(found), *found.shape[1:]), value)))


def _note(peeled: Peeled, samples: int) -> str:
    known = f"{len(peeled.inputs)} of {samples} samples certified"
    if peeled.by_space:
        known += f", by the space of the coefficients; {peeled.passes} passes"
    elif peeled.claims is None:
        known += f", by two units each: the update does not show as many directions as samples; {peeled.passes} passes"
    if peeled.claims is None:
        return known
    return f"{known}; its numbers have 16 bits: {len(peeled.claims.inputs)} more are claimed, on which rows agree"


@dataclass(frozen=True)
class Rows:
    """The gradient of the layer, and how its input follows from a sample: z = scale * x + shift."""

    weight: Tensor  # (H, D), float64; (2 H, D) with the rows of units that are off
    bias: Tensor  # (H,) or (2 H,)
    scale: Tensor  # (D,)
    shift: Tensor  # (D,)
    precision: float  # of the numbers that were shared, relative
    coarse: float  # what an entry of the bias is off by besides, absolute: weights that were rounded, say
    size: Tensor | None = None  # (2 H,) what was added up in each row, if that is not its bias
    grid: Precision | None = None  # that all numbers lie on, if it is coarse: they went through 16 bits

    def sample(self, entered: Tensor) -> Tensor:
        return (entered - self.shift) / self.scale

    def entered(self, samples: Tensor) -> Tensor:
        return samples * self.scale + self.shift


@dataclass(frozen=True)
class Peeled:
    """What was proven, in the order it was found."""

    inputs: Tensor  # (K, D)
    labels: Tensor  # (K,), -1 where they were not asked for
    passes: int
    by_space: bool  # proven by the space of the coefficients; else by two units that name the same sample
    claims: Claims | None = None  # what else rows agree on, without proof


@dataclass(frozen=True)
class _Found:
    """Samples with what they leave in every unit."""

    inputs: Tensor  # (K, D) samples
    labels: Tensor  # (K,)
    coefficients: Tensor  # (K, H)
    error: Tensor  # (K,) of an entry, estimated

    def join(self, new: _Found) -> _Found:
        return _Found(*(torch.cat((getattr(self, name), getattr(new, name))) for name in vars(self)))

    def take(self, rows: Tensor) -> _Found:
        return _Found(*(tensor[rows] for tensor in vars(self).values()))


def peel(rows: Rows, behind: BehindFirstLayer, solve: bool) -> Peeled:
    """All samples that can be proven. With `solve` coefficients come from the update and not from the network."""
    space = coefficient_space(rows.weight, rows.bias, behind.samples)
    found, passes = _nothing(rows), 0
    if space is not None or (not solve and rows.grid is None):  # two coarse rows that agree prove nothing
        if space is not None and space.noise > _UNEXPLAINED * rows.precision * float(rows.bias.abs().mean()):
            rows = dataclasses.replace(rows, coarse=max(rows.coarse, _ROUNDING * space.noise))  # rounded on their way
        narrow = _Peeling(rows, dataclasses.replace(behind, second=None), space, solve)
        found, passes = narrow.peeled(found)
        if not solve and len(found.inputs) < behind.samples and (wide := narrow.wide(behind, found)) is not None:
            found, more = wide.peeled(wide.again(found))
            passes += more
    claims = None
    if rows.grid is not None and not solve and len(found.inputs) < behind.samples:
        claims = claimed_by_clusters(rows, rows.grid, behind, (found.inputs, found.labels))
    return Peeled(found.inputs, found.labels, passes, space is not None, claims)


Rest = tuple[Tensor, Tensor]  # rows (H, D) and biases (H,) without the proven samples


@dataclass(frozen=True)
class _Peeling:
    """One update and the means to read it."""

    rows: Rows
    behind: BehindFirstLayer
    space: CoefficientSpace | None
    solve: bool

    def wide(self, behind: BehindFirstLayer, found: _Found) -> _Peeling | None:
        """The same with the rows of units that are off, or None where they cannot be had."""
        rows, off = self.rows, None
        if behind.outgoing is None:
            return None
        greys = torch.linspace(0.1, 0.9, _GREYS, dtype=torch.float64)[:, None].expand(-1, rows.weight.shape[1])
        for probes in (found.inputs, greys.to(rows.weight)):  # real samples tell best which units are on
            if len(probes) and off is None:
                off = off_rows(rows.weight, rows.bias, behind.outgoing, behind.outputs(probes).amin(0))
        if off is None:
            return None
        own = rows.weight, rows.bias, rows.bias.abs()
        weight, bias, size = (torch.cat(pair) for pair in zip(own, off, strict=True))
        both = dataclasses.replace(rows, weight=weight, bias=bias, size=size)
        return dataclasses.replace(self, rows=both, behind=behind)

    def peeled(self, found: _Found) -> tuple[_Found, int]:
        """Pass after pass until nothing new comes, then all that was found, polished; and how many passes."""
        rest = self.without(found)
        tried = torch.zeros_like(self.rows.bias, dtype=torch.bool)
        passes, polished = 0, False
        while passes < _MOST_PASSES and len(found.inputs) < self.behind.samples:
            passes += 1
            new, looked_at = self.look(found, rest, tried)
            if len(new.inputs):
                found, polished = found.join(new), False
                rest = self.less(rest, new)
                tried = (tried | looked_at) & ~(new.coefficients != 0).any(0)
            elif polished or not len(found.inputs):
                break
            else:
                found, polished, tried = self.polish(found, rest), True, torch.zeros_like(tried)
                rest = self.without(found)
        if len(found.inputs):
            found = self.polish(found, rest)
            found = self.polish(found, self.without(found))
            found = found.take(self.still_proven(found))
        return found, passes

    def look(self, found: _Found, rest: Rest, tried: Tensor) -> tuple[_Found, Tensor]:
        """New samples that some row proves, and the rows that were looked at (H,)."""
        weight, bias = rest
        error = self.rounding(found) / bias.abs().clamp_min(_TINY)
        looked_at = error * _CLEAR < 1
        units = torch.nonzero(looked_at & ~tried)[:, 0]
        units = units[error[units].argsort()]  # the most precise first
        inputs = self.rows.sample(weight[units] / bias[units, None])
        beyond = (_SLACK * error[units]).clamp(max=_FURTHEST)
        in_range = (inputs.amin(1) >= -beyond) & (inputs.amax(1) <= 1 + beyond) if len(units) else units > 0
        if not in_range.any():
            return _nothing(self.rows), looked_at
        units, inputs = units[in_range], inputs[in_range]
        read = self._solved if self.solve else self._computed
        candidates, proven = read(inputs, units, bias[units], error[units])
        candidates = candidates.take(proven)
        alone = self.space is not None and not self.solve  # one row is enough
        chosen = _distinct(candidates, found, alone)
        return candidates.take(chosen[: self.behind.samples - len(found.inputs)]), looked_at

    def again(self, found: _Found) -> _Found:
        """The same samples with what they leave in this peeling's rows."""
        if not len(found.inputs):
            return _nothing(self.rows)
        return dataclasses.replace(found, coefficients=self.behind.coefficients(found.inputs, found.labels)[0])

    def without(self, found: _Found) -> Rest:
        return self.less((self.rows.weight, self.rows.bias), found)

    def less(self, rest: Rest, found: _Found) -> Rest:
        held = self.rows.entered(found.inputs)
        return rest[0] - found.coefficients.T @ held, rest[1] - found.coefficients.sum(0)

    def rounding(self, found: _Found) -> Tensor:
        """(H,) what an entry of each row without the proven samples is off by."""
        added_up = self.rows.bias.abs() if self.rows.size is None else self.rows.size
        summed = added_up + found.coefficients.abs().sum(0)
        rounding = _ROUNDING * self.rows.precision * summed + self.rows.coarse
        return (rounding**2 + found.error**2 @ found.coefficients**2).sqrt()

    def polish(self, found: _Found, without: Rest) -> _Found:
        """Least squares over all rows that the proven samples explain: each of them was read off one row alone."""
        (rest, rest_bias), rounding = without, self.rounding(found)
        summed = found.coefficients.abs().sum(0)
        explained = (rest_bias.abs() <= _EXPLAINED * summed) & (rest.abs().amax(1) <= _EXPLAINED * summed)
        weighing = torch.where(explained & (summed > 0), 1 / rounding.clamp_min(_TINY), 0)
        a = (found.coefficients * weighing).T  # (H, K)
        values, vectors = torch.linalg.eigh(a.T @ a)
        inverse = torch.where(values > 1e-10 * values[-1].clamp_min(_TINY), 1 / values.clamp_min(_TINY), 0)
        step = vectors @ (inverse[:, None] * (vectors.T @ (a.T @ (rest * weighing[:, None])))) / self.rows.scale
        near = (step.abs() <= _FURTHEST).all(1)
        spread = (vectors**2 @ inverse).sqrt()  # of each sample, by least squares; zero where no row says anything
        error = torch.where(near & (spread > 0), torch.minimum(spread, found.error), found.error)
        moved = dataclasses.replace(found, inputs=found.inputs + torch.where(near[:, None], step, 0), error=error)
        return moved if self.solve else self.again(moved)

    def still_proven(self, found: _Found) -> Tensor:
        """(K,) bool: does the proof hold for the polished samples too?"""
        inside = ((found.inputs >= -_FURTHEST) & (found.inputs <= 1 + _FURTHEST)).all(1)
        if self.space is None or self.solve:
            return inside
        return inside & self._in_space(found.coefficients, self.behind.outputs(found.inputs), found.error)

    def _computed(self, inputs: Tensor, units: Tensor, seen: Tensor, error: Tensor) -> tuple[_Found, Tensor]:
        """Labels and coefficients, by what the network says that a sample must have left, and who fits (M,)."""
        miss, labels = (self.behind.slopes(inputs, units) - seen[:, None]).abs().min(1)
        alike = _SAME_ALONE if self.space is None else _SAME_SLOPE
        fits = miss <= (alike + _SLACK * error) * seen.abs()
        coefficients = self.rows.weight.new_zeros(len(inputs), len(self.rows.bias))
        if fits.any():
            coefficients[fits], out = self.behind.coefficients(inputs[fits], labels[fits])
            if self.space is not None:
                fits = fits.masked_scatter(fits, self._in_space(coefficients[fits], out, error[fits]))
        return _Found(inputs, labels, coefficients, error), fits

    def _solved(self, inputs: Tensor, units: Tensor, seen: Tensor, error: Tensor) -> tuple[_Found, Tensor]:
        """The same without the network: the one vector of the space that is zero wherever the sample leaves units off.

        A mixture may leave off the same units as a sample in it, and that sample's vector then fits. So a second row
        has to name the same sample: no two rows mix alike.
        """
        assert self.space is not None
        out = self.behind.outputs(inputs)
        silent = (out < 0) & ~_near_kink(out, error)
        vectors, lone = self.space.with_zeros(silent)
        vectors = torch.where(silent, 0, vectors)
        own = vectors.gather(1, units[:, None])
        coefficients = vectors * (seen[:, None] / torch.where(own == 0, _TINY, own))
        fits = lone & (own[:, 0].abs() > _ZERO) & ~silent.gather(1, units[:, None])[:, 0]
        return _Found(inputs, torch.full_like(units, -1), coefficients, error), fits

    def _in_space(self, coefficients: Tensor, out: Tensor, error: Tensor) -> Tensor:
        """(K,) bool: do the coefficients in the rows that the update itself has lie in the space?"""
        assert self.space is not None
        return self.space.holds(coefficients[:, : out.shape[1]], _near_kink(out, error))


def _near_kink(out: Tensor, error: Tensor) -> Tensor:
    """(M, H): units that rounding, here or at the client, may have switched."""
    return out.abs() <= (_KINK + error[:, None]) * out.abs().mean(1, keepdim=True)


def _nothing(rows: Rows) -> _Found:
    units, entries = rows.weight.shape
    none = rows.weight.new_zeros(0)
    return _Found(none.view(0, entries), none.long(), none.view(0, units), none)


def _distinct(candidates: _Found, found: _Found, alone: bool) -> Tensor:
    """Indices of candidates that are new and not the same as an earlier one; unless `alone`, if a second agrees."""
    copies: dict[int, int] = {}  # candidate -> how many are the same
    for k in range(len(candidates.inputs)):
        kept = list(copies)
        known = torch.cat((found.inputs, candidates.inputs[kept]))
        errors = torch.cat((found.error, candidates.error[kept])) + candidates.error[k]
        apart = (known - candidates.inputs[k]).abs().amax(1)
        same = torch.nonzero(apart <= 1e-5 + 4 * _SLACK * errors)[:, 0]
        if not len(same):
            copies[k] = 1
        elif (nearest := int(same[apart[same].argmin()]) - len(found.inputs)) >= 0:
            copies[kept[nearest]] += 1
    chosen = [k for k, times in copies.items() if times > 1 or alone]
    return torch.tensor(chosen, dtype=torch.long, device=candidates.inputs.device)


@dataclass(frozen=True)
class BehindFirstLayer:
    """The known network behind its first linear layer: what it would have sent back for a given sample and label.

    `net` is a working copy in float64. What a layer puts out is watched, and varied sample by sample. Where the ReLU is
    followed by a linear layer, `second`, there are two rows for each of the H units: over the samples that have it on,
    as in the gradient, and over those that have it off (`off_rows`). Inputs may be flat.
    """

    net: nn.Module
    layer: str
    shape: tuple[int, ...]  # of a sample
    samples: int  # N: losses are averaged over so many
    loss: str
    second: str | None = None

    @property
    def outgoing(self) -> Tensor | None:
        """(m, H), the weights of the second layer."""
        return None if self.second is None else self.net.get_submodule(self.second).get_parameter("weight").detach()

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the layer puts out (M, H) for inputs (M, *shape)."""
        with torch.no_grad():
            return _in_parts(lambda x: self._run(x, self.layer), inputs)[1]

    def slopes(self, inputs: Tensor, rows: Tensor) -> Tensor:
        """(M, C): the bias gradient that each input alone leaves in its row (M,), for every label it may have."""
        return _in_parts(self._slopes_at_once, inputs, rows)[0]

    def coefficients(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Bias gradients that inputs with their labels leave in all rows (M, R), and what the layer puts out (M, H)."""
        return _in_parts(self._coefficients_at_once, inputs, labels)

    def _coefficients_at_once(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            logits, out, added = self._run(x, self.second or self.layer)
            wrong = -nn.functional.one_hot(y, logits.shape[1]).to(logits)
            if self.loss == CROSS_ENTROPY:
                wrong = wrong + torch.softmax(logits.detach(), 1)
            (back,) = torch.autograd.grad(logits, added, wrong / self.samples)
        if self.outgoing is not None:
            back = back @ self.outgoing
            back = torch.cat((torch.where(out > 0, back, 0), torch.where(out > 0, 0, back)), 1)
        return back, out.detach()

    def rectified(self) -> bool:
        """Is a unit silent exactly where its output is negative: does a ReLU, and nothing else, follow the layer?"""
        with torch.enable_grad():
            logits, out, added = self._run(_probes(self.net, self.shape), self.layer)
            pull = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)).to(logits)
            (back,) = torch.autograd.grad(logits, added, pull, materialize_grads=True)
        off = out.detach() < 0
        return bool((back[off] == 0).all()) and bool((back[~off] != 0).any()) and bool(off.any())

    def _slopes_at_once(self, x: Tensor, row: Tensor) -> tuple[Tensor]:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative
            logits, out, added = self._run(x, self.second or self.layer)
            # What the logits send back is linear in what is sent, so its derivative is what each logit gains.
            sent = torch.zeros_like(logits, requires_grad=True)
            (back,) = torch.autograd.grad(logits, added, sent, create_graph=True)
            units = out.shape[1]
            unit = row % units
            along = nn.functional.one_hot(unit, units).to(out) if self.outgoing is None else self.outgoing.T[unit]
            (gained,) = torch.autograd.grad(back, sent, along)
        wrong = -gained
        if self.loss == CROSS_ENTROPY:
            wrong = wrong + (torch.softmax(logits.detach(), 1) * gained).sum(1, keepdim=True)
        if self.outgoing is not None:  # in its row only if the unit is on, or off
            on = out.detach().gather(1, unit[:, None]) > 0
            wrong = torch.where(on == (row < units)[:, None], wrong, 0)
        return (wrong / self.samples,)

    def _run(self, x: Tensor, varied: str) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, what the first layer put out, and the zeros that were added to what the varied one did."""
        seen: dict[str, Tensor] = {}

        def watch(_: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> None:
            seen["out"] = out

        def vary(_: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> Tensor:
            seen["added"] = torch.zeros_like(out, requires_grad=True)
            return out + seen["added"]

        first, second = self.net.get_submodule(self.layer), self.net.get_submodule(varied)
        with first.register_forward_hook(watch), second.register_forward_hook(vary):
            logits: Tensor = self.net(x.reshape(len(x), *self.shape))
        return logits, seen["out"], seen["added"]


def linear_behind_relu(net: nn.Module, layer: str, shape: tuple[int, ...]) -> str | None:
    """The nn.Linear that reads the layer's outputs behind their ReLU, as they are; None if there is none."""
    entered: dict[str, list[Tensor]] = {}
    out: list[Tensor] = []
    with torch.no_grad(), ExitStack() as hooks:
        hooks.enter_context(net.get_submodule(layer).register_forward_hook(lambda _, __, z: out.append(z)))
        for name, module in net.named_modules():
            if isinstance(module, nn.Linear) and name != layer:
                kept = entered.setdefault(name, [])
                note = module.register_forward_pre_hook(lambda _, args, kept=kept: kept.append(args[0]))
                hooks.enter_context(note)
        net(_probes(net, shape))
    wanted = out[0].clamp_min(0)
    for name, seen in entered.items():
        if len(seen) == 1 and seen[0].shape == wanted.shape and torch.equal(seen[0], wanted):
            return name
    return None


def _in_parts(function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """What `function` gives for so many rows as fit at once, one part after another."""
    found = [function(*part) for part in zip(*(torch.split(tensor, _PASS) for tensor in tensors), strict=True)]
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _probes(net: nn.Module, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(_PROBES, *shape, generator=torch.Generator().manual_seed(0)).to(next(net.parameters()))


@dataclass(frozen=True)
class CoefficientSpace:
    """The space that the coefficients of a batch span, and two proofs by it that a candidate is in the batch.

    The gradient of a first linear layer is G = C^T X: row j is the sum over the samples k of c_kj x_k, where c_kj is
    the loss's derivative in what unit j puts out. The columns of G therefore span the vectors c_k, one for each sample,
    as long as there are fewer samples than units and than entries of a sample. Behind a ReLU a sample that leaves a
    unit off has a zero there. A mixture of samples switches on other units than either of them does, and its vector is
    not in the space.
    """

    basis: Tensor  # (H, N), float64, orthonormal
    noise: float  # what an entry of the update is off by, by the spare directions

    def holds(self, coefficients: Tensor, kinks: Tensor) -> Tensor:
        """(K,) bool: does each vector (K, H) lie in the space, whatever it has at the units of `kinks` (K, H)?"""
        size = coefficients.norm(dim=1).clamp_min(_TINY)
        off = coefficients - (coefficients @ self.basis) @ self.basis.T
        inside: Tensor = off.norm(dim=1) <= _INSIDE * size
        for k in torch.nonzero(~inside & kinks.any(1))[:, 0].tolist():
            free = torch.nonzero(kinks[k])[:, 0]
            if len(free) <= _MOST_KINKS:  # what is left outside if the entries of these units are chosen best
                outward = -self.basis[free] @ self.basis.T  # (F, H)
                outward[torch.arange(len(free)), free] += 1
                inner = outward[:, free] + 1e-12 * torch.eye(len(free)).to(off)
                best = torch.linalg.solve(inner, off[k, free])
                inside[k] = (off[k] - outward.T @ best).norm() <= _INSIDE * size[k]
        return inside

    def with_zeros(self, silent: Tensor) -> tuple[Tensor, Tensor]:
        """The vector of the space that vanishes at the units of `silent` (K, H): (K, H), and (K,) is there just one?

        This asks nothing of the network behind the layer, nor of labels, loss or scale.
        """
        found, lone = [], []
        for row in silent:
            rows = self.basis[row]
            values, vectors = torch.linalg.eigh(rows.T @ rows)  # rising
            least, second = values[0].clamp_min(0).sqrt(), values[min(1, len(values) - 1)].clamp_min(0).sqrt()
            alone = second > torch.clamp(10 * least, min=_LONE) if len(values) > 1 else values[0] < 0.5
            found.append(self.basis @ vectors[:, 0])
            lone.append(alone & (least <= _VANISHES) & (row.sum() >= _ZEROS_PER_SAMPLE * len(values)))
        return torch.stack(found), torch.stack(lone)


def coefficient_space(weight: Tensor, bias: Tensor, samples: int) -> CoefficientSpace | None:
    """From the gradients (H, D) and (H,) in float64; None where they have not exactly as many directions as samples.

    That is so for more samples than units or entries, for a sample that is there twice, and under noise.
    """
    units, entries = weight.shape
    if samples + _SPARE > min(units, entries + 1):
        return None
    g = torch.Generator().manual_seed(0)
    directions = torch.randn(entries + 1, samples + _SPARE, generator=g, dtype=torch.float64).to(weight)
    sketch = weight @ directions[:-1] + bias[:, None] * directions[-1]
    vectors, sizes, _ = torch.linalg.svd(sketch, full_matrices=False)
    if sizes[samples] > _GAP * sizes[samples - 1].clamp_min(_TINY):
        return None
    noise = float(sizes[samples]) / ((entries + 1) ** 0.5 * units**0.5)  # of an entry, from that of a whole direction
    return CoefficientSpace(vectors[:, :samples], noise)


def off_rows(weight: Tensor, bias: Tensor, behind: Tensor, likely: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Rows (H, D) and (H,) over the samples that leave a unit off, and (H,) what was added up in each bias entry.

    From the gradients (H, D) and (H,) and V (m, H); `likely` (H,) is larger the likelier a unit is on for all samples.

    V are the weights of the linear layer behind the ReLU. What a sample sends back to unit j is V_j . d, with one
    vector d (m) for all units, if the unit is on, and nothing if it is off. So the rows of units that are on for
    all samples are V_j . M with one matrix M (m, D). M says what every row would be if its unit were on for all, and
    the difference to what it is holds the samples that leave it off: a unit that is off for one sample gives it away
    just as one that is on for one sample does.

    None where no set of rows agrees on M: too few units are on for all samples, or the update was changed.
    """
    outgoing = behind.T  # (H, m)
    least = outgoing.shape[1] + _WITNESSES
    order = likely.argsort(descending=True)[: _AMONG * least]
    if len(order) < least:
        return None
    entries = torch.cat((weight, bias[:, None]), 1)
    directions = torch.randn(entries.shape[1], _SKETCH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chosen = _agreeing(entries @ directions.to(entries), outgoing, order)
    if chosen is None:
        return None
    matrix = torch.linalg.lstsq(outgoing[chosen], entries[chosen]).solution  # (m, D + 1)
    missing = outgoing @ matrix - entries
    return missing[:, :-1], missing[:, -1], outgoing.abs() @ matrix[:, -1].abs() + bias.abs()


def _agreeing(sketch: Tensor, outgoing: Tensor, order: Tensor) -> Tensor | None:
    """The units (A,) whose rows are those of one M, found by a few of them and then all that agree."""
    width = outgoing.shape[1]
    g = torch.Generator().manual_seed(2)
    scale = sketch[order].norm(dim=1).median()
    for number in range(_TRIES):
        # The likeliest alone come first; then more and more are drawn from.
        pool = min(len(order), width + _WITNESSES + number // 8)
        drawn = order[torch.randperm(pool, generator=g)[: width + _WITNESSES].to(order.device)]
        few, witnesses = drawn[:width], drawn[width:]
        matrix = torch.linalg.lstsq(outgoing[few], sketch[few]).solution
        if float((outgoing[witnesses] @ matrix - sketch[witnesses]).norm()) > _AGREES * float(scale):
            continue
        for _ in range(3):  # all that agree fit M more closely, and so more of them are found to agree
            miss = (outgoing @ matrix - sketch).norm(dim=1)
            chosen = torch.nonzero(miss <= _AGREES * sketch.norm(dim=1).clamp_min(_TINY))[:, 0]
            if len(chosen) < width + _WITNESSES:
                break
            matrix = torch.linalg.lstsq(outgoing[chosen], sketch[chosen]).solution
        else:
            return chosen
    return None


@dataclass(frozen=True)
class Claims:
    """What rows agree on, those of most rows first."""

    inputs: Tensor  # (K, D) samples
    labels: Tensor  # (K,)
    rows: Tensor  # (K,) how many rows agree


def claimed_by_clusters(rows: Rows, grid: Precision, behind: BehindFirstLayer, proven: tuple[Tensor, Tensor]) -> Claims:
    """Samples from rows that agree, for updates whose numbers are too coarse to prove anything.

    Rows that hold one and the same sample are parallel, up to what rounding to the `grid` does to their entries. Two
    rows that mix several samples seldom mix them alike. Where they do, because the samples have one label, the known
    network gives them away: one sample alone would leave half of what is there or less. So a sample is claimed, not
    proven, if several rows agree on it and the network says of most of them that it leaves just that. Claimed samples
    are taken out of all rows, and rows that held two now hold one. `proven` (K, D) and (K,) is not claimed again.
    """
    behind, first = dataclasses.replace(behind, second=None), len(proven[0])
    claims = Claims(*proven, proven[1].new_zeros(first))
    for _ in range(_MOST_LOOKS):
        new = _claimed_at_once(rows, grid, behind, claims)
        if not len(new.inputs):
            break
        claims = Claims(*(torch.cat((getattr(claims, name), getattr(new, name))) for name in vars(claims)))
    most = claims.rows[first:].argsort(descending=True)[: behind.samples - first] + first
    return Claims(claims.inputs[most], claims.labels[most], claims.rows[most])


def _claimed_at_once(rows: Rows, grid: Precision, behind: BehindFirstLayer, claims: Claims) -> Claims:
    """Clusters among the rows that are clear of rounding, without the claimed samples, confirmed by the network."""
    weight, all_biases, known = rows.weight, rows.bias, claims.inputs
    off = _PER_ENTRY * (grid.relative * weight.square().mean(1).sqrt()).clamp_min(grid.spacing)  # (H,) an entry's error
    if len(known):
        coefficients, _ = behind.coefficients(known, claims.labels)  # (K, H)
        held = rows.entered(known)
        weight, all_biases = weight - coefficients.T @ held, all_biases - coefficients.sum(0)
        error = grid.relative * (coefficients.abs().T @ held.square().mean(1).sqrt())
        off = (off.square() + error.square()).sqrt()
    lengths = weight.norm(dim=1)
    angle = off * math.sqrt(weight.shape[1]) / lengths.clamp_min(_TINY)
    clear = torch.nonzero((angle * 2 * _SAME < _WIDEST) & (all_biases != 0))[:, 0]
    clear = clear[angle[clear].argsort()][:_MOST_ROWS]
    found: list[tuple[Tensor, int, int]] = []
    for members in _clusters(weight[clear] / lengths[clear, None], angle[clear]):
        of = clear[members]
        bias = all_biases[of]
        x = rows.sample((weight[of] * bias[:, None]).sum(0) / bias.square().sum().clamp_min(_TINY))
        near = (known - x).square().mean(1).sqrt() <= _WIDEST * x.square().mean().sqrt()  # the same sample
        if bool(((x < -_BEYOND) | (x > 1 + _BEYOND)).any()) or bool(near.any()):
            continue
        fits = (behind.slopes(x.expand(len(of), -1), of) - bias[:, None]).abs() <= _ON_SLOPE * bias.abs()[:, None]
        share, label = fits.double().mean(0).max(0)  # of the cluster's rows, for the best label
        if float(share) >= _MOST_OF:
            found.append((x, int(label), len(of)))
            known = torch.cat((known, x[None]))
    labels, counts = (torch.tensor([one[i] for one in found], dtype=torch.long, device=clear.device) for i in (1, 2))
    return Claims(known[len(claims.inputs) :], labels, counts)


def _clusters(unit: Tensor, angle: Tensor) -> list[Tensor]:
    """Groups of rows (R, D) that agree, the largest first; each row is in one group at most."""
    if not len(unit):
        return []
    apart = (2 - 2 * (unit @ unit.T).abs()).clamp_min(0)
    agree = apart <= (_SAME**2) * (angle[:, None].square() + angle.square())
    agree.fill_diagonal_(True)
    groups: list[Tensor] = []
    while True:
        neighbours = agree.sum(1)
        centre = int(neighbours.argmax())
        if int(neighbours[centre]) < _FEWEST:
            return groups
        members = torch.nonzero(agree[centre])[:, 0]
        groups.append(members)
        agree[members] = False
        agree[:, members] = False

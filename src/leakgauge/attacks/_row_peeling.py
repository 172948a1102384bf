"""Sample after sample out of the rows of a first layer's gradient, for one update, in float64.

A row that holds one sample only gives it away: weight gradient over bias gradient. Whoever is proven is subtracted from
all rows, and rows that held two samples now hold one. What cannot be told from rounding is left alone. Where it can be
had, each unit has a second row, over the samples that leave it off (`always_on_units.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks._always_on_units import off_rows
from leakgauge.attacks._behind_first_layer import BehindFirstLayer
from leakgauge.attacks._coefficient_space import CoefficientSpace, coefficient_space
from leakgauge.attacks._row_clusters import Claims, claimed_by_clusters
from leakgauge.matching.shared_precision import Precision

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
_GREYS = 5  # plain samples on which units are tried, for how likely they are on for everybody
_TINY = 1e-300


@dataclass(frozen=True)
class Rows:
    """The gradient of the layer, and how its input follows from a sample: z = scale * x + shift."""

    weight: Tensor  # (H, D), float64; (2 H, D) with the rows of units that are off
    bias: Tensor  # (H,) or (2 H,)
    scale: Tensor  # (D,)
    shift: Tensor  # (D,)
    precision: float  # of the numbers that were shared, relative
    coarse: float  # what an entry of the bias is off by besides, absolute: weights that were rounded, say
    size: Tensor | None = None  # (2 H,) what was added up in each row, where that is not its bias
    grid: Precision | None = None  # that all numbers lie on, if it is coarse: they went through 16 bits

    @property
    def added_up(self) -> Tensor:
        return self.bias.abs() if self.size is None else self.size


def rows_of_layer(weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, grid: Precision, coarse: float) -> Rows:
    """Rows with what is known of how their numbers were rounded."""
    if not grid.is_coarse:
        return Rows(weight, bias, scale, shift, grid.relative, coarse)
    # One rounding is half a step at most; `rounding` multiplies by what adding up in float32 does.
    return Rows(weight, bias, scale, shift, grid.relative / (2 * _ROUNDING), coarse + grid.spacing / 2, grid=grid)


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


def peel(rows: Rows, behind: BehindFirstLayer, shape: tuple[int, ...], solve: bool) -> Peeled:
    """All samples that can be proven. With `solve` coefficients come from the update and not from the network."""
    space = coefficient_space(rows.weight, rows.bias, behind.samples)
    if solve and space is None:
        none = _nothing(rows)
        return Peeled(none.inputs, none.labels, 0, False)
    if space is not None:
        rows = dataclasses.replace(rows, coarse=max(rows.coarse, _coarser(rows, space)))
    if space is None and rows.grid is not None:  # two units that agree within so much prove nothing
        none = _nothing(rows)
        return Peeled(none.inputs, none.labels, 0, False, _claims(rows, behind, shape, none))
    narrow = _Peeling(rows, dataclasses.replace(behind, second=None), shape, space, solve)
    found, passes = _peeled(narrow, _nothing(rows))
    if not solve and len(found.inputs) < behind.samples and (wide := _wide(narrow, behind, found)) is not None:
        found, more = _peeled(wide, wide.again(found))
        passes += more
    claims = None
    if rows.grid is not None and not solve and len(found.inputs) < behind.samples:
        claims = _claims(rows, behind, shape, found)
    return Peeled(found.inputs, found.labels, passes, space is not None, claims)


def _claims(rows: Rows, behind: BehindFirstLayer, shape: tuple[int, ...], found: _Found) -> Claims:
    assert rows.grid is not None
    return claimed_by_clusters(
        rows.weight, rows.bias, rows.scale, rows.shift, rows.grid, behind, shape, (found.inputs, found.labels)
    )


def _coarser(rows: Rows, space: CoefficientSpace) -> float:
    """What an entry is off by, where that is more than its precision explains: numbers were rounded on their way."""
    explained = rows.precision * float(rows.bias.abs().mean())
    return _ROUNDING * space.noise if space.noise > _UNEXPLAINED * explained else 0.0


def _wide(narrow: _Peeling, behind: BehindFirstLayer, found: _Found) -> _Peeling | None:
    """With the rows of units that are off, or None where they cannot be had."""
    rows = narrow.rows
    if behind.outgoing is None:
        return None
    greys = torch.linspace(0.1, 0.9, _GREYS, dtype=torch.float64)[:, None].expand(-1, rows.weight.shape[1])
    off = None
    for probes in (found.inputs, greys.to(rows.weight)):  # real samples tell best which units are on
        if len(probes) and off is None:
            out = behind.outputs(probes.reshape(len(probes), *narrow.shape))
            off = off_rows(rows.weight, rows.bias, behind.outgoing, out.amin(0))
    if off is None:
        return None
    both = dataclasses.replace(
        rows,
        weight=torch.cat((rows.weight, off.weight)),
        bias=torch.cat((rows.bias, off.bias)),
        size=torch.cat((rows.bias.abs(), off.size)),
    )
    return dataclasses.replace(narrow, rows=both, behind=behind)


def _peeled(peeling: _Peeling, found: _Found) -> tuple[_Found, int]:
    """Pass after pass until nothing new comes, then all that was found, polished; and how many passes."""
    rows, samples = peeling.rows, peeling.behind.samples
    rest = peeling.without(found)
    tried = torch.zeros_like(rows.bias, dtype=torch.bool)
    passes, polished = 0, False
    while passes < _MOST_PASSES and len(found.inputs) < samples:
        passes += 1
        new, looked_at = peeling.look(found, rest, tried)
        if len(new.inputs):
            found, polished = _joined(found, new), False
            rest = peeling.less(rest, new)
            tried = (tried | looked_at) & ~(new.coefficients != 0).any(0)
        elif polished or not len(found.inputs):
            break
        else:
            found, polished, tried = peeling.polish(found, rest), True, torch.zeros_like(tried)
            rest = peeling.without(found)
    if len(found.inputs):
        found = peeling.polish(found, rest)
        found = peeling.polish(found, peeling.without(found))
        found = _taken(found, peeling.still_proven(found))
    return found, passes


Rest = tuple[Tensor, Tensor]  # rows (H, D) and biases (H,) without the proven samples


@dataclass(frozen=True)
class _Peeling:
    """One update and the means to read it."""

    rows: Rows
    behind: BehindFirstLayer
    shape: tuple[int, ...]
    space: CoefficientSpace | None
    solve: bool

    def look(self, found: _Found, rest: Rest, tried: Tensor) -> tuple[_Found, Tensor]:
        """New samples that some row proves, and the rows that were looked at (H,)."""
        weight, bias = rest
        error = self.rounding(found) / bias.abs().clamp_min(_TINY)
        looked_at = error * _CLEAR < 1
        units = torch.nonzero(looked_at & ~tried)[:, 0]
        units = units[error[units].argsort()]  # the most precise first
        inputs = (weight[units] / bias[units, None] - self.rows.shift) / self.rows.scale
        beyond = (_SLACK * error[units]).clamp(max=_FURTHEST)
        in_range = (inputs.amin(1) >= -beyond) & (inputs.amax(1) <= 1 + beyond) if len(units) else units > 0
        if not in_range.any():
            return _nothing(self.rows), looked_at
        units, inputs = units[in_range], inputs[in_range]
        error, seen = error[units], bias[units]
        labels, coefficients, proven, sure = (self._solved if self.solve else self._computed)(
            inputs, units, seen, error
        )
        candidates = _taken(_Found(inputs, labels, coefficients, error), proven)
        chosen = _distinct(candidates, found, sure[proven])
        room = self.behind.samples - len(found.inputs)
        return _taken(candidates, chosen[:room]), looked_at

    def again(self, found: _Found) -> _Found:
        """The same samples with what they leave in this peeling's rows."""
        if not len(found.inputs):
            return _nothing(self.rows)
        coefficients, _ = self.behind.coefficients(self._shaped(found.inputs), found.labels)
        return dataclasses.replace(found, coefficients=coefficients)

    def without(self, found: _Found) -> Rest:
        return self.less((self.rows.weight, self.rows.bias), found)

    def less(self, rest: Rest, found: _Found) -> Rest:
        held = found.inputs * self.rows.scale + self.rows.shift
        return rest[0] - found.coefficients.T @ held, rest[1] - found.coefficients.sum(0)

    def rounding(self, found: _Found) -> Tensor:
        """(H,) what an entry of each row without the proven samples is off by."""
        summed = self.rows.added_up + found.coefficients.abs().sum(0)
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
        inputs = found.inputs + torch.where(near[:, None], step, 0)
        spread = (vectors**2 @ inverse).sqrt()  # of each sample, by least squares; zero where no row says anything
        error = torch.where(near & (spread > 0), torch.minimum(spread, found.error), found.error)
        if self.solve:
            return _Found(inputs, found.labels, found.coefficients, error)
        coefficients, _ = self.behind.coefficients(self._shaped(inputs), found.labels)
        return _Found(inputs, found.labels, coefficients, error)

    def still_proven(self, found: _Found) -> Tensor:
        """(K,) bool: does the proof hold for the polished samples too?"""
        inside = ((found.inputs >= -_FURTHEST) & (found.inputs <= 1 + _FURTHEST)).all(1)
        if self.space is None or self.solve:
            return inside
        out = self.behind.outputs(self._shaped(found.inputs))
        return inside & self.space.holds(self._on(found.coefficients), self._near_kink(out, found.error))

    def _computed(
        self, inputs: Tensor, units: Tensor, seen: Tensor, error: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Labels, coefficients, who fits, and who of them needs no second row to say so.

        Here the network behind says what a sample must have left.
        """
        slopes = self.behind.slopes(self._shaped(inputs), units)  # (M, C)
        miss, labels = (slopes - seen[:, None]).abs().min(1)
        alike = _SAME_ALONE if self.space is None else _SAME_SLOPE
        fits = miss <= (alike + _SLACK * error) * seen.abs()
        coefficients = self.rows.weight.new_zeros(len(inputs), len(self.rows.bias))
        if fits.any():
            coefficients[fits], out = self.behind.coefficients(self._shaped(inputs[fits]), labels[fits])
            if self.space is not None:
                inside = self.space.holds(self._on(coefficients[fits]), self._near_kink(out, error[fits]))
                fits = fits.masked_scatter(fits, inside)
        return labels, coefficients, fits, torch.full_like(fits, self.space is not None)

    def _solved(
        self, inputs: Tensor, units: Tensor, seen: Tensor, error: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same where it does not: the one vector of the space that is zero wherever the sample leaves units off.

        A mixture may leave off the same units as a sample in it, and that sample's vector then fits. So a second row
        has to name the same sample: no two rows mix alike.
        """
        assert self.space is not None
        out = self.behind.outputs(self._shaped(inputs))
        silent = (out < 0) & ~self._near_kink(out, error)
        vectors, lone = self.space.with_zeros(silent)
        vectors = torch.where(silent, 0, vectors)
        own = vectors.gather(1, units[:, None])
        coefficients = vectors * (seen[:, None] / torch.where(own == 0, _TINY, own))
        fits = lone & (own[:, 0].abs() > _ZERO) & ~silent.gather(1, units[:, None])[:, 0]
        return torch.full_like(units, -1), coefficients, fits, torch.zeros_like(fits)

    def _on(self, coefficients: Tensor) -> Tensor:
        """Those of the rows that the update has (K, H)."""
        return coefficients if self.rows.size is None else coefficients[:, : coefficients.shape[1] // 2]

    def _near_kink(self, out: Tensor, error: Tensor) -> Tensor:
        """(M, H): units that rounding, here or at the client, may have switched."""
        return out.abs() <= (_KINK + error[:, None]) * out.abs().mean(1, keepdim=True)

    def _shaped(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(len(inputs), *self.shape)


def _nothing(rows: Rows) -> _Found:
    units, entries = rows.weight.shape
    none = rows.weight.new_zeros(0)
    return _Found(none.view(0, entries), none.long(), none.view(0, units), none)


def _joined(found: _Found, new: _Found) -> _Found:
    return _Found(*(torch.cat((getattr(found, name), getattr(new, name))) for name in vars(found)))


def _taken(found: _Found, rows: Tensor) -> _Found:
    return _Found(*(getattr(found, name)[rows] for name in vars(found)))


def _distinct(candidates: _Found, found: _Found, sure: Tensor) -> Tensor:
    """Indices of candidates that are new and not the same as an earlier one; the unsure only if a second agrees."""
    kept: list[int] = []
    copies: list[int] = []
    for k in range(len(candidates.inputs)):
        known = torch.cat((found.inputs, candidates.inputs[kept]))
        errors = torch.cat((found.error, candidates.error[kept])) + candidates.error[k]
        apart = (known - candidates.inputs[k]).abs().amax(1)
        same = torch.nonzero(apart <= 1e-5 + 4 * _SLACK * errors)[:, 0]
        if not len(same):
            kept.append(k)
            copies.append(1)
        elif (nearest := int(same[apart[same].argmin()]) - len(found.inputs)) >= 0:
            copies[nearest] += 1
    alone = sure.tolist()
    chosen = [k for k, times in zip(kept, copies, strict=True) if times > 1 or alone[k]]
    return torch.tensor(chosen, dtype=torch.long, device=candidates.inputs.device)

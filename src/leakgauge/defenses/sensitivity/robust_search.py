"""Matching an update of which some slices carry noise, when only their bounds, number and noise are known.

Large noise. A first search compares slices by sum_b n_b log(1 + E_b / (n_b t^2)), E_b the squared residual of slice b
and n_b its size: a slice that does not fit loses weight, and the others are fitted the more closely. Then the slices
with the worst fit are named as noised and left out, and the attack's own search goes on from there.

Small noise, below three times t. Squared distance serves for the first search, and named slices are not left out but
weighted by t^2 / (std^2 + t^2).

t is how exactly a clean slice is expected to fit: half a percent of the update's own size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from leakgauge.defenses.sensitivity.compensation import compensated, mean_variance
from leakgauge.defenses.sensitivity.slicing import Slicing, flattened, unflattened
from leakgauge.engine.gradients import parameters_of
from leakgauge.errors import NotApplicable
from leakgauge.matching.attempts import part_of
from leakgauge.matching.distance import rows_of
from leakgauge.matching.noise import UPDATE, noise_in_gradient
from leakgauge.matching.problem import Distance, Matching, Search, Start, Strategy
from leakgauge.types import DataSpec, Fact, Observation, Progress, Reconstruction

if TYPE_CHECKING:
    from leakgauge.defenses.sensitivity import Sensitivity

_EXACTNESS = 0.005  # t, in units of the root mean square of a clean slice
_SMALL = 3.0  # noise below this many t is weighted down, above it is left out
_TINY = 1e-30
_WORK = ("steps", "evaluations", "seconds")


def search_in_slices(known: Sensitivity, *, compensate: bool) -> Strategy:
    """The search of an attacker who knows the defense, around the attack's own."""

    def strategy(
        problem: Matching, search: Search, start: Start, seeds: Sequence[int], progress: Progress
    ) -> Reconstruction:
        observation = problem.observation
        if problem.compression is not None:
            raise NotApplicable("noised slices can be found only in an update that is not compressed")
        as_shared = problem.unrolled is not None and not problem.mean_of_steps
        std = known.noise_std if as_shared else known.noise_std * noise_in_gradient(UPDATE, observation)
        if compensate:
            rows = flattened(problem.observed)
            clean = compensated(rows, mean_variance(std, known.noised / known.slices, [1.0]), known.q, known.keep)
            return search(problem.replace(observed=unflattened(clean, problem.observed)), start, progress)
        if problem.painter is not None or problem.hidden:
            raise NotApplicable("noised slices can be found only by a search of the inputs alone")
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        cut = _of(known.cut(observation.model, data.shape), problem, observation)
        fit = _SliceFit(problem, cut, known, std)
        if not known.secret:
            found = search(fit.weighted(known.chosen(seeds).to(problem.like.device)), start, progress)
            return dataclasses.replace(found, notes=_notes(known.chosen(seeds)))
        return _twice(fit, search, start, seeds, progress)

    return strategy


def _twice(fit: _SliceFit, search: Search, start: Start, seeds: Sequence[int], progress: Progress) -> Reconstruction:
    """A search that tells the noised slices apart, and one that goes on from there without them.

    The result is the second one's with the work of both; its objective is traced from where the first one began.
    """
    first = search(fit.first, start, part_of(progress, 0, 2))
    targets_unknown = fit.problem.labels is None and first.labels is None  # searched targets that are no labels
    if first.finished is not None or first.inputs is None or targets_unknown:  # or interrupted
        return first
    worst = fit.worst(first)
    rest = fit.weighted(worst)
    again = search(rest, _from(fit.problem, first.inputs, seeds, start), part_of(progress, 1, 2))
    begun, _ = rest.evaluator(torch.arange(len(seeds), device=worst.device))(start(seeds, 0))
    trace = None if again.trace is None else torch.cat((begun[:, None], again.trace), 1)
    work: dict[str, Any] = {
        name: getattr(first, name) + getattr(again, name) for name in ("steps", "evaluations", "seconds")
    }
    return dataclasses.replace(again, trace=trace, notes=_notes(worst), **work)


@dataclasses.dataclass(frozen=True)
class _SliceFit:
    """A problem and the slices of what it observes."""

    problem: Matching
    cut: Slicing
    known: Sensitivity
    std: float

    @property
    def first(self) -> Matching:
        """The problem of the first search."""
        return self.problem if self._is_small else self.problem.replace(distance=self._robust)

    def worst(self, found: Reconstruction) -> Tensor:
        """(T, d): the slices that fit worst at what was found, by the mean square of their residual."""
        problem = self.problem
        labels = found.labels if problem.labels is None else problem.labels
        assert found.inputs is not None
        assert labels is not None
        mine = problem.simulated(found.inputs, labels)
        misfit = flattened({n: mine[n] - g for n, g in problem.observed.items()})
        return self._mean_squares(misfit).topk(self.known.noised, 1).indices

    def weighted(self, noised: Tensor) -> Matching:
        """The problem with these slices (T, d) left out, or of less weight."""
        factor = self._exactness(flattened(self.problem.observed))  # (T,)
        weight = factor / (self.std**2 + factor**2).sqrt() if self._is_small else 0.0 * factor
        rows = torch.where(self.cut.touched(noised), weight[:, None], 1.0)
        return self.problem.replace(weights=unflattened(rows, self.problem.observed))

    @property
    def _is_small(self) -> bool:
        return self.std < _SMALL * float(self._exactness(flattened(self.problem.observed)).median())

    def _exactness(self, observed: Tensor) -> Tensor:
        """t of each row (A,): by the median over as many slices, smallest first, as are clean."""
        squares = self._mean_squares(observed).sort(1).values
        clean = squares[:, : max(1, self.cut.slices - self.known.noised)]
        return (_EXACTNESS * clean.median(1).values.sqrt()).clamp_min(_TINY)

    def _mean_squares(self, rows: Tensor) -> Tensor:
        """(A, P) -> (A, s)."""
        return _energies([rows], [self.cut.of_entry], self.cut.slices) / self.cut.sizes.clamp_min(1)

    @property
    def _robust(self) -> Distance:
        named = unflattened(self.cut.of_entry[None], self.problem.observed)
        ids = [row[0] for row in rows_of(named, list(named))]
        slices, sizes = self.cut.slices, self.cut.sizes.to(self.problem.like)
        squared = self.problem.distance == "l2"

        def to(observed: list[Tensor], known: list[Tensor] | None) -> Callable[[list[Tensor]], Tensor]:
            own = _energies(observed, ids, slices)
            t = self._exactness(torch.cat(observed, 1))[:, None]
            unit = t[:, 0] ** 2 if squared else 1 / (sizes * torch.log1p(own / (sizes * t**2))).sum(1).clamp_min(_TINY)

            def distance(mine: list[Tensor]) -> Tensor:
                residuals = [a - b for a, b in zip(mine, observed, strict=True)]
                if known is not None:
                    residuals = [r * k for r, k in zip(residuals, known, strict=True)]
                return unit * (sizes * torch.log1p(_energies(residuals, ids, slices) / (sizes * t**2))).sum(1)

            return distance

        return to


def _energies(rows: Sequence[Tensor], ids: Sequence[Tensor], slices: int) -> Tensor:
    """Sum of squares by slice: (A, s)."""
    total = rows[0].new_zeros(len(rows[0]), slices)
    for row, own in zip(rows, ids, strict=True):
        total = total.index_add(1, own, row * row)
    return total


def _of(cut: Slicing, problem: Matching, observation: Observation) -> Slicing:
    """The slices of the tensors that the problem compares."""
    shapes = {name: p[None] for name, p in parameters_of(observation.model).items()}  # also of what is not shared
    whole = unflattened(cut.of_entry[None], shapes)
    kept = flattened({name: whole[name] for name in problem.observed})[0]
    return dataclasses.replace(cut, of_entry=kept.to(problem.like.device))


def _from(problem: Matching, inputs: Tensor, seeds: Sequence[int], own: Start) -> Start:
    """Begin the first attempt at these inputs (T, N, *sample); everything else as the attack would."""
    unit = 1.0 if problem.unit is None else problem.unit
    centre = 0.0 if problem.centre is None else problem.centre
    rows = ((inputs.detach() - centre) / unit).flatten(1)
    at = {seed: row for row, seed in enumerate(seeds)}

    def start(some: Sequence[int], attempt: int) -> Tensor:
        begun = own(some, attempt)
        return torch.cat((rows[[at[s] for s in some]], begun[:, problem.pixels :]), 1) if attempt == 0 else begun

    return start


def _notes(noised: Tensor) -> tuple[str, ...]:
    return tuple(f"slices taken as noised: {' '.join(map(str, sorted(row)))}" for row in noised.tolist())

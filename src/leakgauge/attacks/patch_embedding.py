"""Patch embedding: a whole picture out of a vision transformer's first step, by one linear least-squares solve.

Patches x_p become tokens W x_p + b + position_p. So the gradient of the position embedding is what each token got back,
dL/dposition_p = d_p, and that of the weights is the sum over the places of d_p x_p^T: linear equations for the patches,
with all but them known. Lu et al., "APRIL: Finding the Achilles' Heel on Privacy for Vision Transformers", CVPR 2022,
start from the position embedding's gradient too, and solve for the attention's input; here the patches themselves are
the unknowns, which is one equation less to invert.

One sample: a batch's position embedding holds the sum over its samples, and then it says nothing. As many places as the
embedding is wide can be told apart; what more there are leaves open is about mid-grey. The pair of tensors is found by
what their gradients on made-up samples are, not by the layer's type (`_patch_rows.py`).

A sample is certified where the known client gives the update back from it but for rounding, or where there are more
equations than unknowns and they hold, and where the expected error is small.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.attacks._own_replay import own_replay, precision_of, tolerance
from leakgauge.attacks._patch_rows import PatchRows, Solved, patch_rows, possible_pairs, solve_patches
from leakgauge.errors import NotApplicable
from leakgauge.matching.probing import probing_of
from leakgauge.matching.updates import observed_gradient
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction

_SURE = 0.02  # expected error of a number up to which a sample counts as proven
_NOISE = 0.5  # share of the gradient that is not explained from which nothing is claimed
_MENTIONED = 1e-3  # and from which a note says so


@dataclass(frozen=True)
class PatchEmbedding(Attack):
    """The own objective is how far the known client's update of the claimed sample is off.

    Example: `leakgauge attack patch-embedding --data photos32 --model my.py:vit --trials 4`
    """

    name: ClassVar[str] = "patch-embedding"
    summary: ClassVar[str] = "solve for the patches: the position embedding's gradient against the patch weights'"
    paper: ClassVar[str] = "after Lu et al. 2022, APRIL, CVPR"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.2
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = ()

    def check(self, observation: Observation) -> None:
        found_rows(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        solved = solved_rows(observation, found_rows(observation))
        samples = solved.samples.reshape(-1, *data.shape)
        replay, limit = own_replay(observation), tolerance(observation)
        labels, misfit = replay.labelled(samples)
        if bool((misfit > limit).any()):  # clipped, perhaps: the direction of the update is left
            other, loose = replay.labelled(samples, scaled=True)
            better = (misfit > limit) & (loose <= limit)
            labels, misfit = torch.where(better, other, labels), torch.where(better, loose, misfit)
        holds = (misfit <= limit) | ((solved.residual <= limit) & solved.checked)
        proven = holds & (solved.error <= _SURE)
        claimed = solved.residual < _NOISE
        ones = torch.ones(len(seeds), dtype=torch.long)
        like = next(iter(observation.update.tensors.values()))
        return Reconstruction(
            samples[:, None].to(like),
            labels[:, None],
            misfit.to(like),
            0 * ones,
            ones,
            time.perf_counter() - began,
            notes=tuple(_note(solved, trial, bool(proven[trial])) for trial in range(len(seeds))),
            certified=proven.long().cpu(),
            claimed=claimed[:, None].cpu(),
        )


def found_rows(observation: Observation) -> PatchRows:
    """Which tensors hold the patches; refused where none do."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    shapes = {name: tuple(t.shape[1:]) for name, t in observation.update.tensors.items()}
    if not possible_pairs(shapes, math.prod(data.shape)):
        raise NotApplicable(
            "patch-embedding needs a trained position embedding and the weights of the patches in the update, and no "
            "two tensors have such shapes"
        )
    if (samples := observation.fact(Fact.NUM_SAMPLES)) != 1:
        raise NotApplicable(
            f"patch-embedding needs one sample: the position embedding's gradient is a sum over all {samples:,}, which "
            "does not tell them apart"
        )
    rows = patch_rows(probing_of(observation))
    if rows is None:
        raise NotApplicable(
            "patch-embedding needs two tensors of which one's gradient holds what the patches behind the other got "
            "back, and no two do"
        )
    return rows


def solved_rows(observation: Observation, rows: PatchRows) -> Solved:
    """The least-squares solution, at the precision of what was shared."""
    precision = max(precision_of(observation, rows.weight), precision_of(observation, rows.positions))
    return solve_patches(rows, observed_gradient(observation), precision)


def _note(solved: Solved, trial: int, proven: bool) -> str:
    error, residual, left = (float(x[trial]) for x in (solved.error, solved.residual, solved.open))
    note = f"patches solved for, expected error {error:.2g}"
    if left > _MENTIONED:
        note += f"; {left:.0%} of the picture is left open by the equations"
    if solved.checked and residual > _MENTIONED:
        note += f"; {residual:.2g} of the gradient is not explained: noise, compression or another batch size"
    return note + ("; certified" if proven else "; not certified")

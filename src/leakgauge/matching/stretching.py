"""Brightness and contrast that an update hides: train-mode BatchNorm takes both out of a single sample.

Every stretched copy explains the update equally well, so an attacker takes the one that uses the whole range.
"""

from __future__ import annotations

from torch import Tensor

from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.matching.problem import Puzzle
from leakgauge.settings import setting


def stretch_setting() -> bool:
    """The field by which an attack is told."""
    field: bool = setting(
        False, "where BatchNorm hides one sample's scale, stretch the picture from its least and largest value to 0..1"
    )
    return field


def stretched(inputs: Tensor, puzzle: Puzzle) -> Tensor:
    """(T, N, *sample), each sample from 0 to 1; as it is where the scale is not hidden."""
    if puzzle.shape[0] != 1 or not uses_batch_statistics(puzzle.model):
        return inputs
    over = tuple(range(2, inputs.dim()))
    low, high = inputs.amin(over, keepdim=True), inputs.amax(over, keepdim=True)
    return ((inputs - low) / (high - low).clamp_min(1e-12)).where(high > low, inputs)

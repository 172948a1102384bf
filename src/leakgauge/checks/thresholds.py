"""From which score each check reports, all in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.settings import Settings, setting


@dataclass(frozen=True)
class Thresholds(Settings):
    """One field per check, named as the check with underscores.

    Each was put between the largest score of clean models (fresh, trained, pruned, quantised, small) and the smallest
    score of tampered ones, nearer to the tampered ones where the gap is wide: a false alarm costs a client a round.
    `docs/results/inspect.md` shows both ends of each gap.
    """

    name: ClassVar[str] = "thresholds"
    summary: ClassVar[str] = "scores from which an inspection reports"

    identical_rows: float = setting(3.5, "digits to which two rows of a linear layer are multiples of each other")
    parallel_rows: float = setting(0.9, "how far row pairs stick out as parallel from the rest of their layer, 0 to 1")
    equal_outgoing: float = setting(3.5, "digits to which the outgoing weights of two units are multiples")
    stacked_biases: float = setting(3.0, "rows that look at the same thing with different biases")
    copy_kernels: float = setting(0.5, "how far the filters of every convolution are single taps, 0 to 1")
    silent_classes: float = setting(0.95, "one minus the median over the largest row norm of the last layer")
    empty_layer: float = setting(1.0, "1 for a last layer of zeros")
    emptied_layer: float = setting(1.0, "1 for a layer of zeros that had weights in the reference")
    huge_bias: float = setting(50.0, "bias over the most that inputs in [0, 1] can add to it")
    trap_rows: float = setting(0.3, "share of rows that balance negative against shrunk positive weights")
    huge_links: float = setting(60.0, "fourth largest weight of a linear layer over its median")
    selective_units: float = setting(0.6, "share of active units of the first layer that fire for one class only")
    dominant_sample: float = setting(4.0, "powers of ten between the loudest and the median sample's gradient")
    mostly_zeros: float = setting(0.5, "share of a layer's weights that are zero")
    oversized_dense: float = setting(0.9, "units of a hidden linear layer for each value of a sample")
    dominated_gradients: float = setting(0.5, "share of the sum of gradient norms that the loudest eighth has")
    drift: float = setting(4.0, "distance from the reference, in sizes of the layer")
    wild_drift: float = setting(20.0, "distance from the reference that no honest round explains")
    other_architecture: float = setting(1.0, "tensors that differ from the reference in name or shape")
    linear_first: float = setting(0.0, "units of a first linear layer for each of its inputs")

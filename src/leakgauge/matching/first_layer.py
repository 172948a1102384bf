"""What the gradient of a first linear layer says by itself, without any search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import example_input
from leakgauge.models.structure import first_linear, input_affine
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, Observation

LARGEST, LEAST_SQUARES, PARALLEL = COMBINED = ("largest", "least-squares", "parallel")
LOSSES = (CROSS_ENTROPY, NLL_ON_LOGITS)  # whose gradient in the logits is known for each label
COMPUTED, SOLVED = SOURCES = ("computed", "solved")


@dataclass(frozen=True)
class FirstLayer:
    """Weight and bias gradient of the first layer, whose ratio is the input of a single sample."""

    rule: ClassVar[str] = "informs_first_layer"

    observation: Observation
    layer: str
    affine: tuple[Tensor, Tensor]  # what happens to inputs before it: (scale, shift)
    gradient: Mapping[str, Tensor]  # of all layers
    weight: Tensor  # (T, out, in)
    bias: Tensor  # (T, out)
    combine: str = LARGEST  # rows used: the largest bias entry, all by least squares, or those parallel to one another
    match_nonzero: bool = False  # are zeros missing entries?
    fit_scale: bool = False  # have weight and bias scales of their own, so that the length is found by the model?
    undo: Callable[[Tensor], Tensor] | None = None  # (T, N, *sample) as read -> as they were before a known change

    def replace(self, **changes: Any) -> Self:
        """The same problem with these fields changed."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class PeeledLayer:
    """The first layer of a batch, which is taken apart row by row."""

    rule: ClassVar[str] = "informs_peeled"

    observation: Observation
    coefficients: str = COMPUTED  # what a sample left in each unit: by the known network, or solved for

    def replace(self, **changes: Any) -> Self:
        """The same problem with these fields changed."""
        return dataclasses.replace(self, **changes)


def first_layer_of(observation: Observation, attack: str) -> tuple[str, tuple[Tensor, Tensor]]:
    """The first layer's name, and (scale, shift) of its inputs; refused if it is not linear."""
    example = example_input(observation)
    layer, affine = first_linear(observation.model, example), input_affine(observation.model, example)
    if layer is None or affine is None:
        needs = "a model whose first layer with weights is nn.Linear on the flattened input"
        raise NotApplicable(f"{attack} needs {needs}; use dlg")
    return layer, affine

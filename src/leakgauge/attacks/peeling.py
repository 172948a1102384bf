"""Peeling: whole batches out of a first Linear + ReLU layer, sample after sample, each with its proof.

Where a unit is active for one sample of the batch only, its row of the weight gradient over its bias gradient is that
sample (`linear`). Candidates are checked, those that hold are subtracted from all rows, and rows that held two samples
now hold one; see `_row_peeling.py`. No optimisation, and no knowledge of the truth: what is claimed is certified.

The certificate has two parts. The known network says for each label what the candidate alone would leave in the unit's
bias gradient, and one label must give what was observed. And what the candidate leaves in all units must lie in the
space that the update's columns span (`_coefficient_space.py`). The first alone is not enough: among thousands of
mixtures some fit by chance. Where the batch is larger than the layer or the sample, there is no such space, and two
units have to name the same sample instead.

Where no row with one sample is left, units that are on for the whole batch give rows over the samples that leave a unit
off (`_always_on_units.py`), and it goes on with those.

Who knows that something behind the layer was changed does without the network there: what a sample left in the units
is the one vector of that space with zeros where the sample leaves units off. It holds whatever is drawn, hidden,
clipped or mixed behind the layer.

An update of 16-bit numbers (float16, bfloat16) may be too coarse to prove much. What rows agree on is then claimed and
not certified (`_row_clusters.py`).

Where we depart. The published attacks search the space for sparse vectors, which costs more than exponentially many
tries in the batch size; rows of one sample are there by themselves where inputs are not centred, as pictures in [0, 1].
Samples are polished at the end by least squares over all rows. A sample that is in the batch twice is not found.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks._behind_first_layer import BehindFirstLayer, linear_behind_relu
from leakgauge.attacks._row_peeling import Peeled, Rows, peel, rows_of_layer
from leakgauge.client.fedavg import local_steps
from leakgauge.engine.batchnorm import uses_batch_statistics
from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.first_layer import COMPUTED, SOLVED, PeeledLayer
from leakgauge.matching.shared_precision import shared_precision
from leakgauge.matching.updates import example_input, observed_gradient
from leakgauge.models.structure import first_linear, input_affine
from leakgauge.types import (
    BLANK,
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    NO_LABEL,
    Attack,
    DataSpec,
    Fact,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
)


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
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)

    def check(self, observation: Observation) -> None:
        first_layer_rows(observation)

    def problem(self, observation: Observation, seeds: tuple[int, ...]) -> PeeledLayer:  # noqa: ARG002
        return PeeledLayer(observation)

    def solve(self, problem: PeeledLayer, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began, observation = time.perf_counter(), problem.observation
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        behind, every = first_layer_rows(observation)
        claims, labels, counts, claimed, notes = [], [], [], [], []
        for trial, rows in enumerate(every):  # each takes passes of its own number and size
            peeled = peel(rows, behind, data.shape, problem.coefficients == SOLVED)
            more = peeled.claims
            inputs = peeled.inputs if more is None else torch.cat((peeled.inputs, more.inputs))
            named = peeled.labels if more is None else torch.cat((peeled.labels, more.labels))
            claims.append(_padded(inputs, samples, BLANK))
            labels.append(_padded(named, samples, NO_LABEL))
            counts.append(len(peeled.inputs))
            claimed.append(len(inputs))
            notes.append(_note(peeled, samples))
            progress((trial + 1) / len(seeds))
        like = observation.update.tensors[f"{behind.layer}.weight"]
        found = torch.tensor(counts)
        ones = torch.ones(len(seeds), dtype=torch.long)
        return Reconstruction(
            torch.stack(claims).to(like).reshape(len(seeds), samples, *data.shape),
            torch.stack(labels) if problem.coefficients == COMPUTED else None,
            1 - found.to(like) / samples,
            ones,
            0 * ones,
            time.perf_counter() - began,
            notes=tuple(notes),
            certified=found,
            claimed=torch.arange(samples) < torch.tensor(claimed)[:, None],
        )


def first_layer_rows(observation: Observation) -> tuple[BehindFirstLayer, list[Rows]]:
    """The network behind the first layer and that layer's gradient, one entry per trial; refused where it is none."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    example = example_input(observation)
    layer, affine = first_linear(observation.model, example), input_affine(observation.model, example)
    if layer is None or affine is None:
        raise NotApplicable(
            "peeling needs a model whose first layer with weights is nn.Linear on the flattened input; use dlg"
        )
    if local.kind == "fedavg" and local_steps(samples, local) != 1:
        raise NotApplicable("peeling proves samples by one step's gradient, and the client takes several; use linear")
    net = working_model(observation.model, local.batchnorm).double().requires_grad_(False)
    if uses_batch_statistics(net):
        raise NotApplicable("peeling needs samples that do not change one another, and BatchNorm is in train mode")
    behind = BehindFirstLayer(net, layer, samples, local.loss, linear_behind_relu(net, layer, data.shape))
    if not behind.rectified(data.shape):
        raise NotApplicable(f"peeling needs a ReLU right behind {layer!r}: its zeros tell samples apart; use linear")
    gradient = observed_gradient(observation)
    weight, bias = gradient[f"{layer}.weight"], gradient.get(f"{layer}.bias")  # (T, H, D), (T, H)
    if bias is None:
        raise NotApplicable(f"peeling needs the bias gradient of {layer!r}, which has none or keeps it; use dlg")
    scale, shift = (part.double() for part in affine)
    shared = [observation.update.tensors[f"{layer}.{part}"] for part in ("weight", "bias")]
    grid = shared_precision(shared)
    coarse = 0.0
    if local.kind == "fedavg":
        grid = dataclasses.replace(grid, spacing=grid.spacing / local.lr)
        before = observation.model.get_submodule(layer).get_parameter("bias").detach()
        coarse = shared_precision([before]).relative * float(before.abs().max()) / local.lr
    return behind, [
        rows_of_layer(w, b, scale, shift, grid, coarse) for w, b in zip(weight.double(), bias.double(), strict=True)
    ]


def _padded(found: Tensor, samples: int, value: float) -> Tensor:
    """(N, ...) with `value` behind what was found."""
    rest = found.new_full((samples - len(found), *found.shape[1:]), value)
    return torch.cat((found, rest))


def _note(peeled: Peeled, samples: int) -> str:
    known = f"{len(peeled.inputs)} of {samples} samples certified"
    if peeled.by_space:
        known += f", by the space of the coefficients; {peeled.passes} passes"
    elif peeled.claims is None:
        known += f", by two units each: the update does not show as many directions as samples; {peeled.passes} passes"
    if peeled.claims is None:
        return known
    return f"{known}; its numbers have 16 bits: {len(peeled.claims.inputs)} more are claimed, on which rows agree"

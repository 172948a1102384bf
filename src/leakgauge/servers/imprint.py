"""Robbing the Fed: two layers in front of the network sort the batch by one number, one bin for every few samples.

Fowl et al., "Robbing the Fed: Directly Obtaining Private Data in Federated Learning with Modified Models", ICLR 2022.
Every unit of the first layer measures the same s = q.x and switches on above its own threshold; thresholds are
quantiles of s, so all bins are equally likely. Units share their outgoing weights, so a sample adds the same to the
gradient of every unit it switches on. The difference of two neighbouring rows holds the samples between their
thresholds only, and a weight gradient divided by its bias gradient is the sample, if there is one.

Three variants. `linear` is the above. `sparse` units switch off again above their bin: nothing is subtracted, and a
sample touches no row but its own. `one-shot` has two units around one bin: a small module for one sample out of many.

Where we depart. The released reading takes every row minus its neighbour, which loses the samples above the last
threshold and leaves, in the first row, the sum over everybody; here the last row is read as it is, so that all k bins
count (`as_released=True` is theirs). The network behind sees values from 0 to 1, where theirs grow with the number of
bins and saturate a sigmoid. Quantiles come from public samples. `sparse` is the default: it is exact in float32 where
differences lose three digits, and with a gain of 1e-5 also after several local steps on mini-batches, because weights
that small lose nothing when they are subtracted. A candidate is certified if some label explains its bias gradient.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import local_steps
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import inferred_labels
from leakgauge.matching.updates import observed_gradient
from leakgauge.servers._parts.certificate import alone_in_bin
from leakgauge.servers._parts.imprint_module import ONE_SHOT, VARIANTS, ImprintModule, Plan, find_imprinted, imprinted
from leakgauge.servers._parts.imprint_reading import in_range, read_bins
from leakgauge.servers._parts.thresholds import (
    QUERIES,
    analytic_quantiles,
    expected_alone,
    public_quantiles,
    query_vector,
)
from leakgauge.settings import setting
from leakgauge.types import (
    BLANK,
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Batch,
    DataSpec,
    Fact,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
    TamperingServer,
)

_RELEASED_FLOOR = -10.0  # the released first threshold, in standard deviations


@dataclass(frozen=True)
class Imprint(TamperingServer):
    """An imprint module in front of the network.

    Example: `leakgauge attack imprint --data digits --batch-size 8 --threat-model malicious-architecture`
    """

    name: ClassVar[str] = "imprint"
    summary: ClassVar[str] = (
        "put two layers in front that sort the batch into bins; a bin with one sample gives it away"
    )
    paper: ClassVar[str] = "Fowl et al. 2022, Robbing the Fed, ICLR"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 20.0
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})
    losses: ClassVar[tuple[str, ...]] = (CROSS_ENTROPY, NLL_ON_LOGITS)
    changes: ClassVar[str] = "architecture"

    bins: int = setting(500, "equally likely bins; a share (1 - 1/bins)^(n - 1) of n samples sits alone", low=2)
    variant: str = setting(
        "sparse", "rows over all samples above, rows over their own bin only, or a single bin", choices=VARIANTS
    )
    query: str = setting("randn", "direction that samples are sorted along", choices=QUERIES)
    mode: int = setting(0, "frequency of the fourier query", low=0)
    quantiles: str = setting(
        "public",
        "thresholds from public samples, where there are any, or from the query's published distribution",
        choices=("public", "analytic"),
    )
    position: float = setting(0.5, "quantile that the one-shot bin lies around", above=0, high=1)
    gain: float = setting(
        1e-5, "scale of the first layer, which the second undoes; small is large gradients of small weights", above=0
    )
    keep: str = setting(
        "weight",
        "which bins to keep if more are hit than there are samples: the largest mean weight or bias gradient",
        choices=("weight", "bias"),
    )
    secret: int = setting(0, "the server's own seed, behind the randn query")
    as_released: bool = setting(False, "the released thresholds, scale and reading, which lose the top bin")

    def prepare(self, model: nn.Module, data: DataSpec, public: Batch | None = None) -> nn.Module:
        like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        return imprinted(model, ImprintModule(self._plan(data, public), like.detach(), self.as_released))

    def _plan(self, data: DataSpec, public: Batch | None) -> Plan:
        query, offset = query_vector(self.query, data, self.mode, self.secret)
        levels = torch.arange(1, self.bins, dtype=torch.float64) / self.bins
        if self.variant == ONE_SHOT:
            start = min(max(self.position - 0.5 / self.bins, 0.5 / self.bins), 1 - 1.5 / self.bins)
            levels = torch.tensor([start, start + 1 / self.bins], dtype=torch.float64)
        levels = torch.cat((levels, levels.new_tensor([0.5 / self.bins, 1 - 0.5 / self.bins])))
        if self.quantiles == "public" and public is not None:
            statistic = public.inputs[0].flatten(1).double().cpu() @ query
            found = public_quantiles(statistic, levels)
        else:
            found = analytic_quantiles(self.query, levels, offset)
        inner, (low, high) = found[:-2], found[-2:].tolist()
        least, most = query.clamp_max(0).sum(), query.clamp_min(0).sum()  # of samples in [0, 1]
        margin = 1e-3 * (most - least)
        floor = torch.minimum(least, inner[0]) - margin
        ceiling = torch.maximum(most, inner[-1]) + margin
        if self.as_released:
            floor = torch.minimum(_RELEASED_FLOOR + offset[0], inner[0] - margin)
            ceiling = 2 * inner[-1] - (inner[-2] if len(inner) > 1 else floor)  # the last width once more
        ends = (inner, ceiling[None]) if self.variant == ONE_SHOT else (floor[None], inner, ceiling[None])
        return Plan(query, torch.cat(ends), (low, high), self.variant, self.gain)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        data: DataSpec = observation.fact(Fact.INPUT_SPEC)
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
        steps = local_steps(samples, local) if local.kind == "fedavg" else 1
        prefix, sent = find_imprinted(observation.model)
        gradient, layer = observed_gradient(observation), f"{prefix}imprint.sort"
        if f"{layer}.weight" not in gradient or f"{layer}.bias" not in gradient:
            raise NotApplicable(f"imprint reads the gradient of {layer!r}, which is frozen or not shared")
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]  # (T, K, d), (T, K)
        bins = read_bins(sent.imprint, weight, bias, _coarseness(sent.imprint, local, steps), self.as_released)
        chosen = bins.most(samples, self.keep)  # (T, M), M <= N
        inputs = bins.inputs(weight, chosen)  # (T, M, d)
        hit, size = bins.hit.gather(1, chosen), bins.bias.gather(1, chosen)
        plausible = hit & bins.plausible.gather(1, chosen) & in_range(inputs)
        alone = None
        if steps == 1:
            shaped = inputs.reshape(*chosen.shape, *data.shape)
            alone = alone_in_bin(sent, shaped, size, bins.rounding, samples, local)
        certified = torch.zeros_like(hit) if alone is None else plausible & alone
        sure = certified.long() + plausible + hit + 0.5 * size.abs() / size.abs().amax(1, keepdim=True).clamp_min(1e-30)
        inputs, claimed = _surest_first(inputs, hit, sure, samples)
        claims = inputs.reshape(len(inputs), samples, *data.shape)
        given = (plausible if alone is None else certified).sum(1)
        ones = torch.ones(len(inputs), dtype=torch.long)
        return Reconstruction(
            claims,
            _labels(observation, local),
            1 - given.to(claims) / samples,
            ones,
            0 * ones,
            time.perf_counter() - began,
            notes=self._notes(bins.hit.sum(1), None if alone is None else given, samples, steps),
            certified=None if alone is None else given,
            claimed=claimed,
        )

    def _notes(self, hits: Tensor, certified: Tensor | None, samples: int, steps: int) -> tuple[str, ...]:
        """What each trial has to say: bins hit, samples proven alone, and how many to expect."""
        bins, expected = self.bins, expected_alone(samples, self.bins)
        if self.variant == ONE_SHOT:
            bins, expected = 1, expected / self.bins
        elif self.as_released:
            expected *= 1 - 1 / self.bins  # the top bin is lost
        proven = ["not checked"] * len(hits) if certified is None else [f"{c} certified" for c in certified.tolist()]
        tail = "" if steps == 1 else f"; {steps} local steps read as one"
        return tuple(
            f"{hit} of {bins} bins hit, samples alone in theirs: {sure}, {expected:.1f} expected{tail}"
            for hit, sure in zip(hits.tolist(), proven, strict=True)
        )


def _coarseness(module: ImprintModule, local: LocalTraining, steps: int) -> float:
    """How far off an entry of the bias gradient may be because weights were rounded before they were subtracted."""
    if local.kind == "fedsgd":
        return 0.0
    bias = module.sort.bias.detach()
    return float(bias.abs().max()) * torch.finfo(bias.dtype).eps / (local.lr * steps)


def _surest_first(inputs: Tensor, hit: Tensor, sure: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """The inputs (T, N, d) of bins that were hit, in falling order of `sure` (T, M), and which are claimed (T, N)."""
    trials = torch.arange(len(inputs), device=inputs.device)[:, None]
    order = torch.where(hit, sure, -1).argsort(dim=1, descending=True, stable=True)
    ordered = torch.where(hit[trials, order][..., None], inputs[trials, order], BLANK)
    rest = samples - ordered.shape[1]
    padded = nn.functional.pad(ordered, (0, 0, 0, rest), value=BLANK)
    return padded, nn.functional.pad(hit[trials, order], (0, rest), value=False)


def _labels(observation: Observation, local: LocalTraining) -> Tensor | None:
    """The labels (T, N) by the rules of cross-entropy, where the last layer can be read; in no particular order."""
    if local.loss != CROSS_ENTROPY:
        return None
    try:
        return inferred_labels(observation)
    except NotApplicable:
        return None

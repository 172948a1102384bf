"""Robbing the Fed: two layers in front of the network sort the batch by one number, one bin for every few samples.

Fowl et al., "Robbing the Fed: Directly Obtaining Private Data in Federated Learning with Modified Models", ICLR 2022.
Every unit of the first layer measures the same s = q.x and switches on above its own threshold; thresholds are
quantiles of s, so all bins are equally likely. The papers know the distribution of s: Laplace for a cosine over natural
images, normal for a random direction. Public samples say it better, because pixels are correlated. Units share their
outgoing weights, so a sample adds the same to the gradient of every unit it switches on. The difference of two
neighbouring rows holds the samples between their thresholds only, and a weight gradient divided by its bias gradient is
the sample, if there is one.

Three variants. `linear` is the above. `sparse` units switch off again above their bin: nothing is subtracted, and a
sample touches no row but its own. `one-shot` has two units around one bin: a small module for one sample out of many.

Where we depart. The released reading takes every row minus its neighbour, which loses the samples above the last
threshold and leaves, in the first row, the sum over the whole batch; here the last row is read as it is, so that all k
bins count (`as_released=True` is theirs). The network behind sees values from 0 to 1, where theirs grow with the number
of bins and saturate a sigmoid. `sparse` is the default: it is exact in float32 where differences lose three digits, and
with a gain of 1e-5 also after several local steps on mini-batches, because weights that small lose nothing when they
are subtracted. A candidate is certified if some label explains its bias gradient.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.client.fedavg import local_steps
from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one, working_model
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.updates import observed_gradient
from leakgauge.servers._first_layer import (
    PASS,
    Candidates,
    FirstLayerServer,
    claim,
    coarseness,
    expected_alone,
    explained,
    in_range,
)
from leakgauge.settings import setting
from leakgauge.types import Batch, Client, DataSpec, Fact, Observation, Progress, Reconstruction

LINEAR, SPARSE, ONE_SHOT = VARIANTS = ("linear", "sparse", "one-shot")
QUERIES = ("randn", "fourier", "brightness")
_FOURIER_LOW = 0.33  # stands in for the frequency 0 in the cosine's scale
_FOURIER_SCALE = 4.0
_BANDWIDTH = 0.5  # of Silverman's rule: with 512 public samples nearly as many single bins as with the true quantiles
_GRID = 8192  # points at which the smoothed distribution is tabulated
_RELEASED_FLOOR = -10.0  # the released first threshold, in standard deviations
_KINKED = 4  # in roots of the precision: rounding may move the input of a deep network across a kink
_ROUNDING = 8  # in units of the precision: by how much two rows over the same samples may differ


@dataclass(frozen=True)
class Imprint(FirstLayerServer):
    """An imprint module in front of the network.

    Example: `leakgauge attack imprint --data digits --batch-size 8 --threat-model malicious-architecture`
    """

    name: ClassVar[str] = "imprint"
    summary: ClassVar[str] = (
        "put two layers in front that sort the batch into bins; a bin with one sample gives it away"
    )
    paper: ClassVar[str] = "Fowl et al. 2022, Robbing the Fed, ICLR"
    cost: ClassVar[float] = 20.0
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
        return imprinted(model, ImprintModule(self, like.detach(), *self._edges(data, public)))

    def _edges(self, data: DataSpec, public: Batch | None) -> tuple[Tensor, Tensor, tuple[float, float]]:
        """In float64: q (d,), rising thresholds and the last bin's end (K + 1,), what the network sees as 0 and 1."""
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
        return query, torch.cat(ends), (low, high)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:  # noqa: ARG002
        began = time.perf_counter()
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        local: Client = observation.fact(Fact.LOCAL_TRAINING)
        steps = local_steps(samples, local) if local.kind == "fedavg" else 1
        prefix, sent = find_imprinted(observation.model)
        gradient, layer = observed_gradient(observation), f"{prefix}imprint.sort"
        if f"{layer}.weight" not in gradient or f"{layer}.bias" not in gradient:
            raise NotApplicable(f"imprint reads the gradient of {layer!r}, which is frozen or not shared")
        weight, bias = gradient[f"{layer}.weight"], gradient[f"{layer}.bias"]  # (T, K, d), (T, K)
        coarse = coarseness(sent.imprint.sort.bias.detach().abs().max(), local, samples)
        bins = read_bins(sent.imprint, weight, bias, coarse, self.as_released)
        chosen = bins.most(samples, self.keep)  # (T, M), M <= N
        inputs = bins.inputs(weight, chosen)  # (T, M, d)
        hit, size = bins.hit.gather(1, chosen), bins.bias.gather(1, chosen)
        plausible = hit & bins.plausible.gather(1, chosen) & in_range(inputs)
        alone = _alone_in_bin(sent, inputs, size, bins.rounding, observation) if steps == 1 else None
        certified = torch.zeros_like(hit) if alone is None else plausible & alone
        sure = certified.long() + plausible + hit + 0.5 * size.abs() / size.abs().amax(1, keepdim=True).clamp_min(1e-30)
        proven = (plausible if alone is None else certified).sum(1)
        found = Candidates(inputs, hit, sure, proven, alone is not None)
        return claim(found, observation, self._notes(bins.hit.sum(1), found, samples, steps), began)

    def _notes(self, hits: Tensor, found: Candidates, samples: int, steps: int) -> list[str]:
        """One for each trial: bins hit, samples proven alone, and how many to expect."""
        bins, expected = self.bins, expected_alone(samples, self.bins)
        if self.variant == ONE_SHOT:
            bins, expected = 1, expected / self.bins
        elif self.as_released:
            expected *= 1 - 1 / self.bins  # the top bin is lost
        proven = [f"{c} certified" if found.checked else "not checked" for c in found.proven.tolist()]
        tail = "" if steps == 1 else f"; {steps} local steps read as one"
        return [
            f"{hit} of {bins} bins hit, samples alone in theirs: {sure}, {expected:.1f} expected{tail}"
            for hit, sure in zip(hits.tolist(), proven, strict=True)
        ]


def _alone_in_bin(
    sent: Imprinted, candidates: Tensor, observed: Tensor, rounding: Tensor, observation: Observation
) -> Tensor | None:
    """Which of the candidates (T, M, d) explain the bias gradients (T, M) of their bins by themselves.

    The network behind the module sees nothing but the statistic, and all units have the same outgoing weights.
    """
    module, local = sent.imprint, observation.fact(Fact.LOCAL_TRAINING)
    flat = candidates.reshape(-1, *observation.fact(Fact.INPUT_SPEC).shape).to(module.query)
    seen = (module.passed_on(part).requires_grad_() for part in torch.split(flat, PASS))
    passes = ((part, part, module.outgoing.reshape(part.shape[1:]).expand_as(part)) for part in seen)
    tolerance = _KINKED * torch.finfo(observed.dtype).eps ** 0.5
    return explained(working_model(sent.net, local.batchnorm), passes, observed, tolerance, rounding, observation)


@dataclass(frozen=True)
class Bins:
    """What every bin holds: sums over its samples."""

    first: Tensor  # (B,) the row that holds the bin's samples, and those above it where something is taken off
    taken_off: Tensor  # (B,) bool: the following row is taken off
    bias: Tensor  # (T, B)
    mean_weight: Tensor  # (T, B) over the inputs
    rounding: Tensor  # (T, 1) how far from zero an empty bin's bias may be
    plausible: Tensor  # (T, B) bool: the mean of its samples, weighted by what they left, falls where the bin lies

    @property
    def hit(self) -> Tensor:
        """(T, B) bool: at least one sample is in it."""
        return self.bias.abs() > self.rounding

    def most(self, samples: int, keep: str) -> Tensor:
        """(T, M) the bins to read: those hit, no more than there are samples, the largest by one of two measures."""
        size = self.bias.abs() if keep == "bias" else self.mean_weight.abs()
        return torch.where(self.hit, size, -1.0).topk(min(samples, size.shape[1]), dim=1).indices

    def inputs(self, weight: Tensor, chosen: Tensor) -> Tensor:
        """(T, M, d) what the chosen bins (T, M) hold; zeros in empty bins."""
        trials = torch.arange(len(chosen), device=chosen.device)[:, None]
        first = self.first[chosen]
        rows = weight[trials, first]  # a copy of these rows only: the whole gradient may be large
        for trial, (where, row) in enumerate(zip(self.taken_off[chosen], first, strict=True)):
            rows[trial, where] -= weight[trial, row[where] + 1]
        bias = torch.where(self.hit, self.bias, torch.inf).gather(1, chosen)
        return rows.div_(bias[..., None])


def read_bins(module: ImprintModule, weight: Tensor, bias: Tensor, coarse: float, as_released: bool) -> Bins:
    """Sort the gradients (T, K, d) and (T, K) of the first layer into bins.

    `coarse` is what each entry may be off by besides its own precision, as a difference of weights is.
    """
    units = bias.shape[1]
    first = torch.arange(1 if module.variant == ONE_SHOT else units, device=bias.device)
    taken_off = torch.full_like(first, module.variant != SPARSE, dtype=torch.bool)
    whole_batch = torch.zeros_like(taken_off)
    if module.variant not in (SPARSE, ONE_SHOT):
        taken_off[-1] = False  # nothing lies above the last row: it is a bin as it stands
        if as_released:
            first[-1], whole_batch[-1] = 0, True  # the first row stands as it is instead: the sum over the whole batch

    def differences(rows: Tensor) -> Tensor:
        return rows[:, first] - torch.where(taken_off, rows[:, (first + 1).clamp_max(units - 1)], 0.0)

    own = differences(bias)
    precision = _ROUNDING * torch.finfo(bias.dtype).eps if module.variant != SPARSE else 0.0
    rounding = precision * own.abs().sum(1, keepdim=True) + coarse
    query = module.query.to(weight)
    statistic = differences(weight @ query) / torch.where(own == 0, torch.inf, own)
    low, high = module.edges[first].to(weight), module.edges[first + 1].to(weight)
    slack = (high - low) / 2
    plausible = (statistic > low - slack) & (statistic < high + slack) & ~whole_batch
    return Bins(first, taken_off, own, differences(weight.mean(2)), rounding, plausible)


class ImprintModule(nn.Module):
    """Flatten, Linear(d -> K), ReLU or Hardtanh, Linear(K -> d), and the input's shape again."""

    edges: Tensor  # (K + 1,)
    query: Tensor  # (d,)
    slope: Tensor  # (K,) of the units in the statistic

    def __init__(self, server: Imprint, like: Tensor, query: Tensor, edges: Tensor, shown: tuple[float, float]) -> None:
        super().__init__()
        size, units, gain = len(query), len(edges) - 1, server.gain
        edges, query = edges.to(like), query.to(like)
        width = edges[1:] - edges[:-1]
        if not bool((width > 0).all()):
            allowed = f"few enough for thresholds that differ in {like.dtype}"
            raise BadInput("imprint: bins", allowed=allowed, got=units, do="use fewer bins, or --precision float64")
        self.variant = server.variant
        slope = gain / width if server.variant == SPARSE else torch.full_like(width, gain)  # (K,)
        self.activation = nn.Hardtanh(0.0, gain) if server.variant == SPARSE else nn.ReLU()
        # On the meta device nothing is drawn: with many bins and large pictures each of the two holds half a gigabyte.
        self.sort = nn.Linear(size, units, device="meta")
        self.sort.weight = nn.Parameter(slope[:, None] * query)
        self.sort.bias = nn.Parameter(-slope * edges[:-1])
        low, high = (self._summed(like.new_tensor([s]), slope, edges).item() for s in shown)
        outgoing, shift = 1 / (high - low), -low / (high - low)
        if server.as_released:
            outgoing, shift = 1 / gain, -float(edges[:-1].mean())
        self.spread = nn.Linear(units, size, device="meta")
        self.spread.weight = nn.Parameter(like.new_full((size, units), outgoing))
        self.spread.bias = nn.Parameter(like.new_full((size,), shift))
        for name, buffer in (("edges", edges), ("query", query), ("slope", slope)):
            self.register_buffer(name, buffer, persistent=False)

    def _summed(self, statistic: Tensor, slope: Tensor, edges: Tensor) -> Tensor:
        """What the units add up to (S,) at each value of the statistic (S,)."""
        summed: Tensor = self.activation(slope * (statistic[:, None] - edges[:-1])).sum(1)
        return summed

    @property
    def outgoing(self) -> Tensor:
        """(d,) the weights that every unit has towards the network behind."""
        return self.spread.weight[:, 0].detach()

    def passed_on(self, inputs: Tensor) -> Tensor:
        """What the network behind sees of `inputs` (S, *shape): `forward` without its large products."""
        statistic = inputs.flatten(1).double() @ self.query.double()  # a bin is narrow beside the statistic's own size
        summed = self._summed(statistic, self.slope.double(), self.edges.double()).to(inputs)
        return (summed[:, None] * self.outgoing + self.spread.bias.detach()).reshape(inputs.shape)

    def forward(self, x: Tensor) -> Tensor:
        spread: Tensor = self.spread(self.activation(self.sort(x.flatten(1))))
        return spread.reshape(x.shape)


class Imprinted(nn.Module):
    """A network behind an imprint module."""

    def __init__(self, imprint: ImprintModule, net: nn.Module) -> None:
        super().__init__()
        self.imprint, self.net = imprint, net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(self.imprint(x))
        return logits


def imprinted(net: nn.Module, imprint: ImprintModule) -> Imprinted:
    """The module in front of a copy of the network, run as that network is run."""
    sent = Imprinted(imprint, copy.deepcopy(net)).train(net.training)
    if runs_one_by_one(net):
        run_one_by_one(sent)
    return sent


def find_imprinted(model: nn.Module) -> tuple[str, Imprinted]:
    """The imprinted network inside `model` and the prefix of its parameters' names."""
    for path, module in model.named_modules():
        if isinstance(module, Imprinted):
            return f"{path}." if path else "", module
    raise NotApplicable(
        f"imprint reads the module that it puts in front of the network, and {type(model).__name__} has none; "
        "attack a simulated client with --threat-model malicious-architecture"
    )


def query_vector(kind: str, data: DataSpec, mode: int, secret: int) -> tuple[Tensor, Tensor]:
    """(q (d,), offset (1,)) in float64: q.x - offset is the statistic of the standardised sample x in [0, 1]."""
    size = math.prod(data.shape)
    if kind == "randn":
        drawn = torch.randn(size, generator=generator(secret, "imprint/query"), dtype=torch.float64)
        standard = (drawn - drawn.mean()) / drawn.std() if size > 1 else drawn / drawn.abs()
        standard = standard / math.sqrt(size)
    elif kind == "fourier":
        place = torch.arange(size, dtype=torch.float64) + 0.5
        standard = torch.cos(math.pi / size * place * mode) * _FOURIER_SCALE * max(mode, _FOURIER_LOW) / size
    else:
        standard = torch.full((size,), 1 / size, dtype=torch.float64)
    channel = (-1, *[1] * (len(data.shape) - 1))
    centre, unit = (
        torch.tensor(given or (usual,), dtype=torch.float64).view(channel).expand(data.shape).flatten()
        for given, usual in ((data.mean, 0.5), (data.std, 0.25))
    )
    query = standard / unit
    return query, (query @ centre)[None]


def analytic_quantiles(kind: str, levels: Tensor, offset: Tensor) -> Tensor:
    """Where the statistic's published distribution reaches these levels (K,)."""
    if kind == "randn":
        normal: Tensor = torch.special.ndtri(levels)
        return normal + offset
    deviation = 1.0 if kind == "fourier" else 1 / (_FOURIER_SCALE * _FOURIER_LOW)  # brightness is a cosine of mode 0
    laplace = torch.distributions.Laplace(levels.new_zeros(()), levels.new_tensor(deviation / math.sqrt(2)))
    quantiles: Tensor = laplace.icdf(levels)  # type: ignore[no-untyped-call]
    return quantiles + offset


def public_quantiles(statistic: Tensor, levels: Tensor) -> Tensor:
    """The same from values (S,) of public samples, each blurred by a normal kernel: no steps, and a smooth tail."""
    quarters = torch.quantile(statistic, statistic.new_tensor([0.25, 0.75]))
    middle = (quarters[1] - quarters[0]) / 1.349  # a normal distribution's standard deviation
    usual = len(statistic) > 1 and middle > 0
    spread = torch.minimum(statistic.std(), middle) if usual else statistic.std(correction=0)
    least = 1e-6 * (1 + statistic.abs().max())  # where all samples agree
    width = (_BANDWIDTH * 1.06 * spread * len(statistic) ** -0.2).clamp_min(least)
    low, high = float(statistic.min() - 6 * width), float(statistic.max() + 6 * width)
    grid = torch.linspace(low, high, _GRID, dtype=statistic.dtype, device=statistic.device)
    parts = torch.split(grid, 512)
    reached = torch.cat([torch.special.ndtr((part[:, None] - statistic) / width).mean(1) for part in parts])
    right = torch.searchsorted(reached, levels).clamp(1, _GRID - 1)
    below, above = reached[right - 1], reached[right]
    share = ((levels - below) / (above - below).clamp_min(1e-30)).clamp(0, 1)
    return grid[right - 1] + share * (grid[right] - grid[right - 1])

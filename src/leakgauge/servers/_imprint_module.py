"""What the imprint server puts in front of a network: two layers, and the thresholds at which their units switch on.

Unit i of the first layer switches on above threshold t_i. All units have the same outgoing weights, so a sample leaves
the same gradient in every unit that it switches on. What is compared with the thresholds is s = q.x for a fixed
direction q. Fowl et al. 2022 know its distribution from the literature: Laplace for a cosine over natural images,
normal for a random direction. Public samples say it better, because pixels are correlated.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.engine.randomness import generator
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.types import DataSpec

LINEAR, SPARSE, ONE_SHOT = VARIANTS = ("linear", "sparse", "one-shot")
QUERIES = ("randn", "fourier", "brightness")
_FOURIER_LOW = 0.33  # stands in for the frequency 0 in the cosine's scale
_FOURIER_SCALE = 4.0
_BANDWIDTH = 0.5  # of Silverman's rule: with 512 public samples nearly as many single bins as with the true quantiles
_GRID = 8192  # points at which the smoothed distribution is tabulated


@dataclass(frozen=True)
class Plan:
    """The numbers behind a module, in float64."""

    query: Tensor  # (d,)
    edges: Tensor  # (K + 1,) rising: the thresholds, and above them the end of the last bin
    shown: tuple[float, float]  # the statistic between which the network behind sees 0 to 1
    variant: str
    gain: float


class ImprintModule(nn.Module):
    """Flatten, Linear(d -> K), ReLU or Hardtanh, Linear(K -> d), and the input's shape again."""

    edges: Tensor  # (K + 1,)
    query: Tensor  # (d,)
    slope: Tensor  # (K,) of the units in the statistic

    def __init__(self, plan: Plan, like: Tensor, as_released: bool) -> None:
        super().__init__()
        size, units = len(plan.query), len(plan.edges) - 1
        edges, query = plan.edges.to(like), plan.query.to(like)
        width = edges[1:] - edges[:-1]
        if not bool((width > 0).all()):
            allowed = f"few enough for thresholds that differ in {like.dtype}"
            raise BadInput("imprint: bins", allowed=allowed, got=units, do="use fewer bins, or --precision float64")
        self.variant = plan.variant
        slope = plan.gain / width if plan.variant == SPARSE else torch.full_like(width, plan.gain)  # (K,)
        self.activation = nn.Hardtanh(0.0, plan.gain) if plan.variant == SPARSE else nn.ReLU()
        # On the meta device nothing is drawn: with many bins and large pictures each of the two holds half a gigabyte.
        self.sort = nn.Linear(size, units, device="meta")
        self.sort.weight = nn.Parameter(slope[:, None] * query)
        self.sort.bias = nn.Parameter(-slope * edges[:-1])
        low, high = (self._summed(like.new_tensor([s]), slope, edges).item() for s in plan.shown)
        outgoing, shift = 1 / (high - low), -low / (high - low)
        if as_released:
            outgoing, shift = 1 / plan.gain, -float(edges[:-1].mean())
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

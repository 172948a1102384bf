"""The two layers that sort a batch by one number, in front of any network.

Unit i of the first layer switches on above threshold t_i. All units have the same outgoing weights, so a sample leaves
the same gradient in every unit that it switches on.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.engine.gradients import run_one_by_one, runs_one_by_one
from leakgauge.errors import BadInput, NotApplicable

LINEAR, SPARSE, ONE_SHOT = VARIANTS = ("linear", "sparse", "one-shot")


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
            raise BadInput(
                "imprint: bins",
                allowed=f"few enough for thresholds that differ in {like.dtype}",
                got=units,
                do="use fewer bins, or --precision float64",
            )
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
        self.spread.weight = nn.Parameter(torch.full((size, units), outgoing, device=like.device, dtype=like.dtype))
        self.spread.bias = nn.Parameter(torch.full((size,), shift, device=like.device, dtype=like.dtype))
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("query", query, persistent=False)
        self.register_buffer("slope", slope, persistent=False)

    def _summed(self, statistic: Tensor, slope: Tensor, edges: Tensor) -> Tensor:
        """What the units add up to (S,) at each value of the statistic (S,)."""
        summed: Tensor = self.activation(slope * (statistic[:, None] - edges[:-1])).sum(1)
        return summed

    @property
    def outgoing(self) -> Tensor:
        """(d,) the weights that every unit has towards the network behind."""
        return self.spread.weight[:, 0].detach()

    def shown(self, inputs: Tensor) -> Tensor:
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
        self.imprint = imprint
        self.net = net

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

"""The update cut into slices of equal risk, and the random choice of some of them (Wang et al., INFOCOM 2022).

The risk of a tensor is how strongly it answers to the sample behind it: the mean over root samples of ||d g_l / dX||_F.
All tensors are cut into blocks of one size, the greatest common divisor of their own, and a tensor's risk is spread
evenly over its blocks. Blocks are then packed into slices of equal total risk. The paper's baseline ignores the risk
and makes slices of equal size from the first block to the last (`packing="size"`).

Root samples are public (`leakgauge.defenses.sensitivity.root_samples`). So whoever has the model and these settings
gets the very same slices, client, server and attacker alike, and no private sample is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses.sensitivity.compensation import KEEPS
from leakgauge.defenses.sensitivity.root_samples import ROOTS, check_roots, root_samples
from leakgauge.engine.gradients import parameters_of
from leakgauge.engine.jacobian_norms import JacobianNorms, all_ones_norms, jacobian_norms
from leakgauge.engine.randomness import uniform
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.settings import Settings, setting

PACKINGS = ("balanced", "sweep", "size")
USES = ("slices", "compensate")
_PUBLIC_SEED = 0


@dataclass(frozen=True)
class Slicing:
    """Which slice each entry of the update is in, entries in the model's own order."""

    of_entry: Tensor  # (P,) int64
    slices: int
    overlap: bool = False  # a slice also touches the entry behind its end, as in the released code

    @property
    def sizes(self) -> Tensor:
        """(s,) entries per slice."""
        return torch.bincount(self.of_entry, minlength=self.slices)

    def touched(self, chosen: Tensor) -> Tensor:
        """Which entries the chosen slices hold: (T, d) numbers of slices -> (T, P), True there."""
        picked = torch.zeros(len(chosen), self.slices, dtype=torch.bool, device=chosen.device).scatter(1, chosen, True)
        inside = picked[:, self.of_entry.to(chosen.device)]
        if self.overlap:
            inside[:, 1:] |= inside[:, :-1].clone()
        return inside


@dataclass(frozen=True)
class SliceRule(Settings):
    """How slices are cut: public, since every client must cut alike."""

    name: ClassVar[str] = "slices"
    summary: ClassVar[str] = "slices of equal risk"

    slices: int = setting(10, "number of slices", low=2)
    root: int = setting(50, "root samples by which the risk is measured", low=1)
    probes: int = setting(4, "random probes per root sample; 0 takes every input entry in turn, which is exact", low=0)
    roots: str = setting("made-up", "where the root samples come from", choices=ROOTS)
    root_data: str = setting("", "the data set of real or distilled root samples")
    bias: float = setting(0.0, "share of root samples with label 0; 0 is even", low=0, high=1)
    packing: str = setting("balanced", "balanced by risk, left to right, or by size alone", choices=PACKINGS)
    as_released: bool = setting(False, "risk by the all-ones product, a sweep, and bounds that overlap by one")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_roots(self.roots, self.root_data)

    def cut(self, model: nn.Module, shape: Sequence[int]) -> Slicing:
        """The slices for a model of samples of this shape."""
        sizes = {name: p.numel() for name, p in parameters_of(model).items()}
        if not sizes:
            raise NotApplicable("sensitivity needs a model with trainable parameters; this one has none")
        block = math.gcd(*sizes.values())
        blocks = [size // block for size in sizes.values()]
        if sum(blocks) < self.slices:
            raise BadInput(
                "sensitivity: slices",
                allowed=f"at most {sum(blocks)}, the blocks of {block} entries in this model",
                got=self.slices,
                do="choose fewer",
            )
        if self.packing == "size" and not self.as_released:
            return Slicing(alike(sum(blocks), self.slices).repeat_interleave(block), self.slices)
        risk = self._risk(model, shape).mean
        share = torch.tensor([_rounded(risk[n]) / b for n, b in zip(sizes, blocks, strict=True)], dtype=torch.float64)
        if self.as_released or self.packing == "sweep":
            per_block = swept(share, blocks, self.slices)
        else:
            per_block = packed(share, blocks, self.slices)
        return Slicing(per_block.repeat_interleave(block), self.slices, overlap=self.as_released)

    def _risk(self, model: nn.Module, shape: Sequence[int]) -> JacobianNorms:
        inputs, labels = root_samples(model, shape, self.root, self.roots, self.root_data, self.bias)
        if self.as_released:
            return all_ones_norms(model, inputs, labels)
        return jacobian_norms(model, inputs, labels, self.probes, _PUBLIC_SEED)


@dataclass(frozen=True)
class NoisedSlices(SliceRule):
    """All that is public about slices of which some are noised: what an attacker knows."""

    noised: int = setting(3, "number of slices that carry noise", low=1)
    std: float = setting(0.1, "standard deviation of their noise", low=0)
    secret: bool = setting(True, "each client chooses its slices by itself; false: by a seed that is known")
    use: str = setting("slices", "tell noised slices from clean ones, or take noise out first", choices=USES)
    q: float = setting(6.0, "aspect of the matrix that noise is taken out of (use=compensate)", low=1)
    keep: str = setting("outside", "eigenvalues that are no noise (use=compensate)", choices=KEEPS)

    def chosen(self, seeds: Sequence[int]) -> Tensor:
        """(T, d) the slices each client's seed chooses; the same ones for all where the choice is no secret."""
        return reservoir(seeds if self.secret else [_PUBLIC_SEED] * len(seeds), self.slices, self.noised)


def reservoir(seeds: Sequence[int], slices: int, chosen: int) -> Tensor:
    """(T, d) of s slices by reservoir sampling: each is in with probability d / s."""
    kept = torch.arange(chosen).repeat(len(seeds), 1)
    draws = uniform(seeds, "sensitivity/reservoir", (slices,)).double()
    for i in range(chosen, slices):
        place = (draws[:, i] * (i + 1)).long().clamp_max(i)
        rows = torch.nonzero(place < chosen)[:, 0]
        kept[rows, place[rows]] = i
    return kept


def packed(share: Tensor, blocks: Sequence[int], slices: int) -> Tensor:
    """Slice of every block, riskiest blocks first, each into the slice that has the least: (blocks,).

    A tensor's blocks all have the same risk, so how many each slice gets is computed at once. They go there as one run.
    """
    load = torch.zeros(slices, dtype=torch.float64)
    size = torch.zeros(slices, dtype=torch.float64)
    runs: dict[int, Tensor] = {}
    for tensor in torch.argsort(share, descending=True, stable=True).tolist():
        weight = float(share[tensor])
        counts = _poured(load, weight, blocks[tensor]) if weight > 0 else _poured(size, 1.0, blocks[tensor])
        load, size = load + weight * counts, size + counts
        runs[tensor] = torch.arange(slices).repeat_interleave(counts.long())
    return torch.cat([runs[tensor] for tensor in range(len(blocks))])


def swept(share: Tensor, blocks: Sequence[int], slices: int) -> Tensor:
    """Slice of every block, left to right: a slice ends before its risk would reach the mean, the last has the rest."""
    risk = share.repeat_interleave(torch.tensor(blocks))
    until = risk.cumsum(0)
    wanted = float(until[-1]) / slices
    found = torch.full((len(risk),), slices - 1)
    begin = 0
    for number in range(slices - 1):
        before = float(until[begin - 1]) if begin else 0.0
        end = int(torch.searchsorted(until, before + wanted))
        end = min(max(end, begin + 1), len(risk) - (slices - 1 - number))  # nobody goes without
        found[begin:end] = number
        begin = end
    return found


def alike(blocks: int, slices: int) -> Tensor:
    """Slice of every block, left to right, all of one size but for one block: (blocks,)."""
    return torch.arange(blocks) * slices // blocks


def flattened(tensors: Mapping[str, Tensor]) -> Tensor:
    """(T, P): every trial's entries in one row."""
    return torch.cat([t.flatten(1) for t in tensors.values()], 1)


def unflattened(rows: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """(T, P) back into tensors of the shapes of `like`."""
    parts = torch.split(rows, [t[0].numel() for t in like.values()], 1)
    return {name: p.reshape(len(rows), *t.shape[1:]) for (name, t), p in zip(like.items(), parts, strict=True)}


def _poured(load: Tensor, weight: float, count: int) -> Tensor:
    """How many of `count` equal weights each slice gets if each goes to the least loaded one: (s,)."""
    order = load.sort(stable=True)
    steps = torch.arange(1, len(load) + 1, dtype=torch.float64)
    levels = (count * weight + order.values.cumsum(0)) / steps  # if only the first k slices take part
    reached = int(torch.nonzero(levels >= order.values)[-1])
    given = ((levels[reached] - load) / weight).floor().clamp_min(0)
    given = torch.minimum(given, torch.tensor(float(count)))
    for _ in range(count - int(given.sum())):  # fewer than there are slices
        given[int(torch.argmin(load + weight * given))] += 1
    return given


def _rounded(risk: float) -> float:
    """To four digits: sums in another order must not move a bound."""
    return float(f"{risk:.4g}")

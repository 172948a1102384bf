"""The update cut into slices of equal risk, and the random choice of some of them (Wang et al., INFOCOM 2022).

The risk of a tensor is how strongly it answers to the sample behind it: the mean over root samples of ||d g_l / dX||_F.
All tensors are cut into blocks of one size, the greatest common divisor of their own, and a tensor's risk is spread
evenly over its blocks. Blocks are then packed into slices of equal total risk. The paper's baseline ignores the risk
and makes slices of equal size from the first block to the last (`packing="size"`).

Root samples are public and the same for everybody. So whoever has the model and the settings gets the very same slices,
client, server and attacker alike, and no private sample is needed. There are three kinds. *Made up*: smooth random
pictures from a public seed, each label in turn; nobody's, and no file is needed. *Real*: samples of a named data set's
public split. *Distilled* from those (Wang et al. 2018, "Dataset distillation"): samples on which one step of gradient
descent, from the model at hand, lowers the loss on real samples. They are searched for from made-up ones; the labels
stay. `bias` is the share of the samples that have label 0, the others are spread evenly over the other labels; 0 gives
each label its turn. An even set of ten labels has bias 0.1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.data import load
from leakgauge.engine.gradients import parameters_of, working_model
from leakgauge.engine.randomness import generator, normal, uniform
from leakgauge.errors import BadInput

PACKINGS = ("balanced", "sweep", "size")
ROOTS = ("made-up", "real", "distilled")
_COARSE = 4  # made-up pictures vary over this many cells per side
_PUBLIC_SEED = 0
_REAL = 256  # samples on which the step from distilled ones is tried
_STEPS, _RATE = 40, 0.05  # of the search for distilled samples, by Adam
_LEARNING_RATE = 0.1  # of the step on them, to begin with; it is searched for too


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


def sliced(
    sizes: Mapping[str, int], slices: int, risk: Mapping[str, float] | None = None, sweep: bool = False
) -> Tensor:
    """Slice of every entry, (P,), for parameters of these sizes: of equal `risk`, or without it of equal size."""
    block = math.gcd(*sizes.values())
    blocks = [size // block for size in sizes.values()]
    total = sum(blocks)
    if total < slices:
        allowed = f"at most {total}, the blocks of {block} entries in this model"
        raise BadInput("sensitivity: slices", allowed=allowed, got=slices, do="choose fewer")
    if risk is None:
        of_block = torch.arange(total) * slices // total  # left to right, all of one size but for one block
    else:
        rounded = {name: float(f"{risk[name]:.4g}") for name in sizes}  # sums in another order must not move a bound
        share = torch.tensor([r / b for r, b in zip(rounded.values(), blocks, strict=True)], dtype=torch.float64)
        of_block = (swept if sweep else packed)(share, blocks, slices)
    return of_block.repeat_interleave(block)


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
    load, size = torch.zeros(2, slices, dtype=torch.float64)
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
        end = min(max(end, begin + 1), len(risk) - (slices - 1 - number))  # no slice stays empty
        found[begin:end] = number
        begin = end
    return found


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


def root_samples(
    model: nn.Module, shape: Sequence[int], count: int, roots: str = "made-up", root_data: str = "", bias: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(K, *shape) in [0, 1] and (K,) labels, on the model's device."""
    like = next(iter(parameters_of(model).values()))
    worker = working_model(model, "eval")
    with torch.no_grad():
        classes = worker(torch.zeros(1, *shape).to(like)).shape[-1]
    labels = labels_of(count, classes, bias).to(like.device)
    if roots == "real":
        inputs, labels = _real(root_data, count, bias, tuple(shape))
        return inputs.to(like), labels.to(like.device)
    inputs = _made_up(shape, count).to(like)
    if roots == "distilled":
        real, real_labels = _real(root_data, _REAL, 0.0, tuple(shape))
        inputs = distilled(worker, inputs, labels, real.to(like), real_labels.to(like.device))
    return inputs, labels


def labels_of(count: int, classes: int, bias: float) -> Tensor:
    """(K,) of them round(bias x K) zeros and the others each other label in turn; without a bias each label in turn."""
    if not bias or classes < 2:
        return torch.arange(count) % classes
    first = round(bias * count)
    return torch.cat((torch.zeros(first, dtype=torch.int64), 1 + torch.arange(count - first) % (classes - 1)))


def distilled(model: nn.Module, inputs: Tensor, labels: Tensor, real: Tensor, real_labels: Tensor) -> Tensor:
    """`inputs` (K, *shape) moved so that one step on them lowers the loss on real samples; they stay in [0, 1]."""
    found = inputs.clone().requires_grad_()
    rate = torch.full((), _LEARNING_RATE, dtype=inputs.dtype, device=inputs.device).log().requires_grad_()
    search = torch.optim.Adam([found, rate], lr=_RATE)
    for _ in range(_STEPS):
        loss = loss_after_step(model, found, labels, rate.exp(), real, real_labels)
        found.grad, rate.grad = torch.autograd.grad(loss, [found, rate])
        search.step()
        with torch.no_grad():
            found.clamp_(0, 1)
    return found.detach()


def loss_after_step(
    model: nn.Module, inputs: Tensor, labels: Tensor, rate: Tensor, real: Tensor, real_labels: Tensor
) -> Tensor:
    """() the loss on real samples of the model after one step of this rate on `inputs`; differentiable in both."""
    before = {n: p.detach().requires_grad_() for n, p in parameters_of(model).items()}
    loss = nn.functional.cross_entropy(torch.func.functional_call(model, before, (inputs,)), labels)
    slopes = torch.autograd.grad(loss, list(before.values()), create_graph=True)
    after = {n: p - rate * g for (n, p), g in zip(before.items(), slopes, strict=True)}
    return nn.functional.cross_entropy(torch.func.functional_call(model, after, (real,)), real_labels)


def _made_up(shape: Sequence[int], count: int) -> Tensor:
    """(K, *shape), the first ones the same however many there are."""
    seeds = range(count)
    inputs = 0.5 + 0.1 * normal(seeds, "sensitivity/root", shape)
    if len(shape) == 3:
        coarse = uniform(seeds, "sensitivity/coarse", (shape[0], _COARSE, _COARSE))
        inputs = inputs - 0.5 + nn.functional.interpolate(coarse, tuple(shape[1:]), mode="bilinear")
    return inputs.clamp(0, 1)


@functools.lru_cache(maxsize=8)
def _real(data: str, count: int, bias: float, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """So many samples of the public split, drawn once by a public seed."""
    samples = load(data, "train")
    if samples.spec.shape != shape:
        allowed, do = f"a data set of samples of shape {shape}", "choose root samples that look like the clients' own"
        raise BadInput("sensitivity: root_data", allowed=allowed, got=f"{data}, {samples.spec.shape}", do=do)
    order = torch.randperm(len(samples), generator=generator(_PUBLIC_SEED, "sensitivity/real"))
    wanted = labels_of(count, samples.spec.classes, bias)
    if bias:
        places = {label: iter(order[samples.labels[order] == label].tolist()) for label in set(wanted.tolist())}
        found = [next(places[label], None) for label in wanted.tolist()]
        chosen = [place for place in found if place is not None]
    else:
        chosen = order[:count].tolist()
    if len(chosen) < count:
        allowed, do = f"at most {len(chosen)} samples of {data} with bias {bias:g}", "choose fewer, or a smaller bias"
        raise BadInput("sensitivity: root", allowed=allowed, got=count, do=do)
    return samples.take(torch.tensor(chosen))

"""R-GAP: solve for what entered each layer, from the last to the first. No optimisation; exact for one sample.

Zhu and Blaschko, "R-GAP: Recursive Gradient Attack on Privacy", ICLR 2021. The last layer gives its features away. From
there inwards: undo the activation, carry the loss's gradient one layer back, and solve the linear equations of the
weight's gradient and of the forward pass for what entered the layer. Where those equations have too small a rank the
input is not determined and the solution of least norm is returned: `rank_report` says so before any attack is run.

Where we depart. The paper has one logit and the logistic loss (`logistic_outputs`); here are C classes with
cross-entropy, with a bias as in the breaching library, or without one: the missing scale then solves a scalar equation,
by bracketing instead of 30,000 steps of Adam. All rows of a dense layer are weighted by what they say, where the
published code averages their ratios. Where the gradient's equations of a convolution suffice they are used alone.
Layers without an inverse (ReLU, pooling, BatchNorm, sums) are refused by name, and so is more than one sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

from leakgauge.attacks._rgap_chain import Link, chain_of, inverse_of
from leakgauge.attacks._rgap_equations import Rank, forward_rows, rank_of_convolution, solve_convolution
from leakgauge.attacks._rgap_output import Output, softmax_outputs
from leakgauge.engine.gradients import working_model
from leakgauge.engine.losses import cross_entropy
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import example_input, observed_gradient
from leakgauge.models._layers import Normalize
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction

_TINY = 1e-300
_AS_GOOD = 10.0  # readings whose equations miss by up to this times the least miss (or _ROUNDING) are told by range
_ROUNDING = 1e-5

Forward = Mapping[str, sparse.csr_array]  # name of a convolution -> its forward pass as a matrix


@dataclass(frozen=True)
class RGAP(Attack):
    """Recursive closed-form inversion, layer by layer.

    Example: `leakgauge attack rgap --data photos32 --model cnn6 --trials 2`
    """

    name: ClassVar[str] = "rgap"
    summary: ClassVar[str] = "solve each layer's linear equations from the last to the first (exact for one sample)"
    paper: ClassVar[str] = "Zhu and Blaschko 2021, R-GAP: Recursive Gradient Attack on Privacy, ICLR"
    tier: ClassVar[str] = "quick"
    cost: ClassVar[float] = 1.4
    undefended_only: ClassVar[bool] = True  # and it takes long to find that out
    needs: ClassVar[frozenset[Fact]] = frozenset({Fact.INPUT_SPEC, Fact.NUM_SAMPLES, Fact.LOCAL_TRAINING})

    def check(self, observation: Observation) -> None:
        self._chain(observation)

    def solve(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        began = time.perf_counter()
        chain = self._chain(observation)
        gradients = {n: g.detach().double().cpu() for n, g in observed_gradient(observation).items()}
        like = next(iter(observation.update.tensors.values()))
        forward = forward_passes(chain)
        found = []
        for trial in range(len(seeds)):
            found.append(best_reading(chain, {n: g[trial] for n, g in gradients.items()}, forward))
            progress((trial + 1) / len(seeds))
        inputs = torch.stack([x for x, _, _ in found])[:, None].to(like)
        labels = torch.tensor([[label] for _, label, _ in found], device=like.device)
        misses = torch.tensor([miss for _, _, miss in found], device=like.device, dtype=like.dtype)
        ones = torch.ones_like(labels[:, 0])
        return Reconstruction(inputs, labels, misses, ones, 0 * ones, time.perf_counter() - began)

    def concerns(self, observation: Observation) -> tuple[str, ...]:
        """Ids of what a reader should know before the attack runs: "rank-deficient" where a layer hides its input."""
        self._chain(observation)
        deficient = any(rank.deficient for rank in rank_report(observation.model, observation.fact(Fact.INPUT_SPEC)))
        return ("rank-deficient",) if deficient else ()

    def _chain(self, observation: Observation) -> list[Link]:
        """The layers, after checking that this attack applies to them and to the update."""
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        if samples != 1:
            raise NotApplicable(
                f"rgap solves for one sample, the update holds {samples}: its equations hold for no blend of them; "
                "use inverting-gradients"
            )
        chain = chain_of(_exact(observation.model), example_input(observation).double().cpu())
        for link in chain:
            has_weight = isinstance(link.module, (nn.Linear, nn.Conv2d))
            if has_weight and f"{link.name}.weight" not in observation.update.tensors:
                raise NotApplicable(f"rgap needs the gradient of {link.name!r}, which is frozen or not shared; use dlg")
        return chain


def rank_report(model: nn.Module, data: DataSpec) -> list[Rank]:
    """For every layer, first to last, how many of the numbers that enter it the update determines.

    A property of the network, not of a victim: the gradient of one random sample stands in for any other.
    """
    g = torch.Generator().manual_seed(0)
    sample = torch.rand(1, *data.shape, generator=g, dtype=torch.float64)
    chain = chain_of(_exact(model), sample)
    outputs: dict[str, Tensor] = {}
    x = sample.requires_grad_()
    for link in chain:
        x = link.module(x.reshape(1, *link.before))
        outputs[link.name] = x
    loss = cross_entropy(x, torch.zeros(1, dtype=torch.long))
    slopes = dict(zip(outputs, torch.autograd.grad(loss, list(outputs.values())), strict=True))
    forward = forward_passes(chain)
    report = []
    for link in chain:
        if isinstance(link.module, nn.Linear):
            unknowns = link.module.in_features
            determined = unknowns if bool((slopes[link.name] != 0).any()) else 0
            report.append(Rank(link.name, unknowns, unknowns * link.module.out_features, determined))
        elif isinstance(link.module, nn.Conv2d):
            size = (link.before[1], link.before[2])
            report.append(rank_of_convolution(link.name, link.module, forward[link.name], slopes[link.name][0], size))
    return report


def _exact(model: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU: a recursion through many layers has no digits to lose."""
    return working_model(model, "eval").double().cpu()


def forward_passes(chain: Sequence[Link]) -> Forward:
    return {
        link.name: forward_rows(link.module, (link.before[1], link.before[2]))
        for link in chain
        if isinstance(link.module, nn.Conv2d)
    }


def best_reading(chain: Sequence[Link], gradient: Mapping[str, Tensor], forward: Forward) -> tuple[Tensor, int, float]:
    """The input (*shape), the label and the miss of one trial, by the reading of the last layer that fits best."""
    last = chain[-1]
    assert isinstance(last.module, nn.Linear)
    weight, bias = last.module.weight.detach(), None if last.module.bias is None else last.module.bias.detach()
    outputs = softmax_outputs(gradient[f"{last.name}.weight"], gradient.get(f"{last.name}.bias"), weight, bias)
    return choose_reading([(*walk_back(chain, gradient, forward, out), out.label) for out in outputs])


def choose_reading(found: Sequence[tuple[Tensor, float, int]]) -> tuple[Tensor, int, float]:
    """Least miss first; twins, scaled copies that explain the update equally, are told by who stays within [0, 1]."""
    least = min(miss for _, miss, _ in found)
    near = [one for one in found if one[1] <= max(_AS_GOOD * least, _ROUNDING)] or list(found)
    x, miss, label = min(near, key=lambda one: float((one[0] - one[0].clamp(0, 1)).abs().sum()))
    return x, label, miss


def walk_back(
    chain: Sequence[Link], gradient: Mapping[str, Tensor], forward: Forward, output: Output
) -> tuple[Tensor, float]:
    """From the features of the last layer to the input (*shape); and the largest relative miss of any equation."""
    last = chain[-1]
    miss = _relative(output.logit_gradient[:, None] * output.features, gradient[f"{last.name}.weight"])
    x = output.features  # what came out of the layer at hand, and the loss's gradient there
    slope = _carried(last, output.logit_gradient)
    for link in reversed(chain[:-1]):
        x, slope = x.reshape(link.behind), slope.reshape(link.behind)
        inverse = inverse_of(link.module)
        if inverse is not None:
            x, steepness = inverse(x)
            slope = slope * steepness
        elif isinstance(link.module, Normalize):
            x, slope = x * link.module.std + link.module.mean, slope / link.module.std
        elif isinstance(link.module, (nn.Linear, nn.Conv2d)):
            z, mine = x, gradient[f"{link.name}.weight"]
            x = _entered(link, z, slope, mine, forward)
            miss = max(miss, _relative(_weight_gradient(link.module, x, slope), mine))
            miss = max(miss, _relative(_out(link.module, x), z))
            slope = _carried(link, slope)
    return torch.nan_to_num(x.reshape(chain[0].before)), miss


def _entered(link: Link, z: Tensor, slope: Tensor, gradient: Tensor, forward: Forward) -> Tensor:
    """What entered a layer with weights, from what came out of it, the loss's gradient there and the weight's."""
    if isinstance(link.module, nn.Conv2d):
        size = (link.before[1], link.before[2])
        return solve_convolution(link.module, forward[link.name], z, slope, gradient, size)
    return (gradient * slope[:, None]).sum(0) / (slope @ slope).clamp_min(_TINY)


def _carried(link: Link, slope: Tensor) -> Tensor:
    """The loss's gradient in what entered a layer with weights."""
    if isinstance(link.module, nn.Conv2d):
        conv = link.module
        assert not isinstance(conv.padding, str)
        back: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            (1, *link.before), conv.weight.detach(), slope[None], conv.stride, conv.padding, conv.dilation
        )
        return back[0]
    assert isinstance(link.module, nn.Linear)
    return link.module.weight.detach().T @ slope


def _out(layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = layer(x[None])[0]
    return out


def _weight_gradient(layer: nn.Linear | nn.Conv2d, x: Tensor, slope: Tensor) -> Tensor:
    """The gradient that the layer's weight would have."""
    if isinstance(layer, nn.Linear):
        return slope[:, None] * x
    assert not isinstance(layer.padding, str)
    found: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        x[None], layer.weight.shape, slope[None], layer.stride, layer.padding, layer.dilation
    )
    return found


def _relative(mine: Tensor, wanted: Tensor) -> float:
    return float((mine - wanted).norm() / wanted.norm().clamp_min(_TINY))

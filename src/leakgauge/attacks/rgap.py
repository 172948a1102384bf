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

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from scipy.linalg.lapack import dpstrf
from scipy.optimize import brentq
from scipy.sparse.linalg import lsmr
from torch import Tensor, fx, nn
from torch.func import functional_call

from leakgauge.engine.gradients import working_model
from leakgauge.engine.losses import cross_entropy
from leakgauge.errors import NotApplicable
from leakgauge.matching.updates import example_input, observed_gradient, without_search
from leakgauge.models.adapting import OUTPUT_NAMES, as_written, takes_apart
from leakgauge.models.layers import Normalize
from leakgauge.types import Attack, DataSpec, Fact, Observation, Progress, Reconstruction

_TINY = 1e-300
_AS_GOOD = 10.0  # readings whose equations miss by up to this times the least miss (or _ROUNDING) are compared by range
_ROUNDING = 1e-5
# Of the chain.
_INSIDE = 1e-12  # how far from its asymptotes an activation's value is taken to be at least
_SHAPES = (torch.flatten, torch.reshape, "flatten", "view", "reshape")  # calls that only rearrange
_SHAPING = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout2d)  # dropout is off in a client's step
_ELSE = "use inverting-gradients"
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
# Of the last layer.
_WIDEST = 30.0  # margins (log-odds) are looked for within this
_GRID = 4001
# Of a convolution's equations.
_WORST = 1e6  # condition up to which the gradient's equations alone are trusted
_STOP = 1e-14  # relative, of the iterative solver
_MOST = 20_000  # its iterations
_LARGEST = 8192  # unknowns up to which a rank is counted: the matrix takes half a gigabyte
_SAME = 1e-7  # singular values below this, relative to the largest, count as zero (their squares are rounding)

Forward = Mapping[str, sparse.csr_array]  # name of a convolution -> its forward pass as a matrix
Inverse = Callable[[Tensor], tuple[Tensor, Tensor]]  # an activation's output -> what entered it, and the slope there


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
        return without_search(began, inputs, labels, misses)

    def concerns(self, observation: Observation) -> tuple[str, ...]:
        """Ids of what a reader should know before the attack runs: "rank-deficient" where a layer hides its input."""
        self._chain(observation)
        deficient = any(rank.deficient for rank in rank_report(observation.model, observation.fact(Fact.INPUT_SPEC)))
        return ("rank-deficient",) if deficient else ()

    def _chain(self, observation: Observation) -> list[Link]:
        """The layers, after checking that this attack applies to them and to the update."""
        samples: int = observation.fact(Fact.NUM_SAMPLES)
        if samples != 1:
            why = f"the update holds {samples}: its equations hold for no blend of them"
            raise NotApplicable(f"rgap solves for one sample, {why}; {_ELSE}")
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
            slope = slopes[link.name][0]
            report.append(rank_of_convolution(link.name, link.module, forward[link.name], slope, link.size))
    return report


def _exact(model: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU: a recursion through many layers has no digits to lose."""
    return working_model(model, "eval").double().cpu()


def forward_passes(chain: Sequence[Link]) -> Forward:
    return {link.name: forward_rows(link.module, link.size) for link in chain if isinstance(link.module, nn.Conv2d)}


def best_reading(chain: Sequence[Link], gradient: Mapping[str, Tensor], forward: Forward) -> tuple[Tensor, int, float]:
    """The input (*shape), the label and the miss of one trial, by the reading of the last layer that fits best."""
    last = chain[-1]
    assert isinstance(last.module, nn.Linear)
    weight, bias = last.module.weight.detach(), None if last.module.bias is None else last.module.bias.detach()
    outputs = softmax_outputs(gradient[f"{last.name}.weight"], gradient.get(f"{last.name}.bias"), weight, bias)
    return choose_reading([(*walk_back(chain, gradient, forward, out), out.label) for out in outputs])


def choose_reading(found: Sequence[tuple[Tensor, float, int]]) -> tuple[Tensor, int, float]:
    """Least miss first; of twins, scaled copies that explain the update equally, the one that stays within [0, 1]."""
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
        inverse, layer = inverse_of(link.module), link.module
        if inverse is not None:
            x, steepness = inverse(x)
            slope = slope * steepness
        elif isinstance(layer, Normalize):
            x, slope = x * layer.std + layer.mean, slope / layer.std
        elif isinstance(layer, (nn.Linear, nn.Conv2d)):
            z, mine = x, gradient[f"{link.name}.weight"]
            if isinstance(layer, nn.Conv2d):
                x = solve_convolution(layer, forward[link.name], z, slope, mine, link.size)
            else:
                x = (mine * slope[:, None]).sum(0) / (slope @ slope).clamp_min(_TINY)
            weight = layer.weight.detach().requires_grad_()
            again = functional_call(layer, {"weight": weight}, x[None])
            (back,) = torch.autograd.grad(again, weight, slope[None])
            miss = max(miss, _relative(back, mine), _relative(again[0], z))
            slope = _carried(link, slope)
    return torch.nan_to_num(x.reshape(chain[0].before)), miss


def _carried(link: Link, slope: Tensor) -> Tensor:
    """The loss's gradient in what entered a layer with weights."""
    entered = slope.new_zeros(1, *link.before, requires_grad=True)
    return torch.autograd.grad(link.module(entered), entered, slope[None])[0][0]


def _relative(mine: Tensor, wanted: Tensor) -> float:
    return float((mine.detach() - wanted).norm() / wanted.norm().clamp_min(_TINY))


@dataclass(frozen=True)
class Link:
    """One layer: what it is, and the shape of one sample before and behind it."""

    name: str
    module: nn.Module
    before: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Of a convolution: height and width of what enters it."""
        return self.before[1], self.before[2]


def chain_of(model: nn.Module, example: Tensor) -> list[Link]:
    """The layers in the order in which they run. `example` is (1, *shape).

    `NotApplicable`, naming the layer, where one has no rule here or where the network is no plain chain.
    """
    if takes_apart(model):
        raise NotApplicable(f"rgap starts where a sample enters, and this network's samples are taken apart; {_ELSE}")
    try:
        graph = _Tracer().trace(as_written(model))
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        said = str(error).partition("\n")[0]
        raise NotApplicable(f"rgap cannot follow this network's own forward ({said}); {_ELSE}") from error
    links: list[Link] = []
    x = example.detach()
    last: fx.Node | None = None
    seen: set[str] = set()
    for node in graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            last = node
            continue
        name, module = _layer(model, node)
        if node.op == "call_module":
            refuse_layer(name, module)
            if name in seen and next(module.parameters(), None) is not None:
                raise NotApplicable(f"rgap: layer {name!r} runs twice, its gradient is a sum over both; {_ELSE}")
        if node.all_input_nodes != [last]:
            raise NotApplicable(f"rgap walks a plain chain, but {name!r} does not follow the layer before it; {_ELSE}")
        seen.add(name)
        with torch.no_grad():
            y = module(x) if node.op == "call_module" else x.flatten(1)
        links.append(Link(name, module, tuple(x.shape[1:]), tuple(y.shape[1:])))
        x, last = y, node
    if not links or not isinstance(links[-1].module, nn.Linear):
        what = f"{links[-1].name!r} ({type(links[-1].module).__name__})" if links else "nothing"
        raise NotApplicable(f"rgap starts from a last nn.Linear, but this network ends in {what}; {_ELSE}")
    return links


def refuse_layer(name: str, module: nn.Module) -> None:
    """`NotApplicable` unless the layer can be walked backwards."""
    kind = type(module)
    if kind in (nn.Linear, Normalize, *_SHAPING) or inverse_of(module) is not None:
        return
    why = "has no rule"
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
        if module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str):
            return
        raise NotApplicable(f"rgap: convolution {name!r} has groups, or padding other than a number of zeros; {_ELSE}")
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        why = "is BatchNorm, which ties a sample to statistics that the recursion does not have"
    elif isinstance(module, (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.LeakyReLU)):
        why = "is an activation without an inverse: different inputs give the same output"
    elif "Pool" in kind.__name__:
        why = "pools, so what entered it is not determined"
    raise NotApplicable(f"rgap: layer {name!r} ({kind.__name__}) {why}; {_ELSE}")


def inverse_of(module: nn.Module) -> Inverse | None:
    """How to undo the activation, or None where that is not known or not possible."""
    leaky = isinstance(module, nn.LeakyReLU) and module.negative_slope > 0
    known = leaky or (isinstance(module, nn.ELU) and module.alpha > 0) or isinstance(module, nn.Softplus)
    return partial(_undone, module) if known or type(module) in (nn.Sigmoid, nn.Tanh) else None


def _undone(module: nn.Module, h: Tensor) -> tuple[Tensor, Tensor]:
    """What entered the activation that put out `h`, and its slope there."""
    if isinstance(module, nn.LeakyReLU):
        leak = module.negative_slope
        return torch.where(h > 0, h, h / leak), torch.where(h > 0, torch.ones_like(h), leak)
    if isinstance(module, nn.ELU):
        h, alpha = h.clamp_min(module.alpha * (_INSIDE - 1)), module.alpha
        entered = torch.where(h > 0, h, torch.log1p(h.clamp_max(0) / alpha))
        return entered, torch.where(h > 0, torch.ones_like(h), h + alpha)
    if isinstance(module, nn.Softplus):
        h, beta = h.clamp_min(_INSIDE), float(module.beta)
        share = -torch.expm1(-beta * h)
        return h + torch.log(share) / beta, share
    if isinstance(module, nn.Sigmoid):
        h = h.clamp(_INSIDE, 1 - _INSIDE)
        return torch.logit(h), h * (1 - h)
    h = h.clamp(_INSIDE - 1, 1 - _INSIDE)
    return torch.atanh(h), 1 - h * h


class _Tracer(fx.Tracer):
    """Sees every module without children as one layer."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return next(m.children(), None) is None

    def create_arg(self, a: Any) -> Any:
        """Of an object that a network returns its logits are the output."""
        named = {} if isinstance(a, fx.Proxy | fx.Node | Tensor | dict) else getattr(a, "__dict__", {})
        logits = (named[name] for name in OUTPUT_NAMES if isinstance(named.get(name), fx.Proxy))
        return super().create_arg(next(logits, a))


def _layer(model: nn.Module, node: fx.Node) -> tuple[str, nn.Module]:
    """The module that a node runs, or a Flatten in the place of a call that only rearranges."""
    if node.op == "call_module":
        return str(node.target), model.get_submodule(str(node.target))
    if node.op in ("call_function", "call_method") and node.target in _SHAPES:
        return node.name, nn.Flatten()
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    where = next(reversed(stack), "") or type(model).__name__
    if node.target in _SUMS:
        raise NotApplicable(f"rgap: {where!r} adds two paths (a residual), whose parts are not known; {_ELSE}")
    raise NotApplicable(f"rgap has no rule for {node.name!r} in {where!r}; {_ELSE}")


@dataclass(frozen=True)
class Output:
    """One way to read the last layer of one sample.

    Row i of the last weight's gradient is d_i h: d is the loss's gradient in the logits, h the features. A bias gives d
    away. Without one only the product is known, and one number is missing, the margin; it solves a scalar equation
    m = f(m) because the weights turn h into the very logits that made d. There may be two such m.
    """

    logit_gradient: Tensor  # (C,)
    features: Tensor  # (d,)
    label: int


def margin_roots(fitting: Callable[[Tensor], Tensor]) -> list[float]:
    """All m with fitting(m) = m in the usual range, to full precision; if there is none, the m that comes closest."""

    def miss(m: float) -> float:
        return float(fitting(torch.tensor(m, dtype=torch.float64))) - m

    grid = torch.linspace(-_WIDEST, _WIDEST, _GRID, dtype=torch.float64)
    values = fitting(grid) - grid
    crossing = torch.nonzero(torch.signbit(values[1:]) != torch.signbit(values[:-1]))[:, 0].tolist()
    roots = [float(brentq(miss, float(grid[i]), float(grid[i + 1]), xtol=1e-14, rtol=1e-15)) for i in crossing]
    return roots or [float(grid[(values / (1 + torch.exp(grid))).abs().argmin()])]  # in units of the logits' scores


def logistic_margins(product: float) -> list[float]:
    """The margins m = y z of a logistic loss with <gradient, weight> = product = -m / (1 + e^m).

    One where the sample is on the wrong side (product > 0). Two, twins, where it is on the right side
    (-0.278 < product < 0). None of that below: then the margin of the least product, about 1.278.
    """
    return margin_roots(lambda m: -product * (1 + torch.exp(m)))


def logistic_outputs(gradient: Tensor, weight: Tensor) -> list[Output]:
    """Every reading of a layer with one logit, no bias and the logistic loss, both (1, d): the paper's own setting.

    The label's sign is not in the gradient; at the wrong one the equations of layers further in contradict.
    """
    found = []
    for margin in logistic_margins(float((gradient * weight).sum())):
        size = torch.sigmoid(gradient.new_tensor(-margin))
        for label in (1, 0):
            slope = (-size if label else size)[None]
            found.append(Output(slope, gradient[0] / slope, label))
    return found


def softmax_outputs(
    weight_gradient: Tensor, bias_gradient: Tensor | None, weight: Tensor, bias: Tensor | None = None
) -> list[Output]:
    """Every reading of a layer with C logits and cross-entropy, from the gradients (C, d) and (C,) of its parameters.

    A layer may have a bias without a gradient, a frozen one. Then d = s u and h = v / s with u and v known, and s
    follows from softmax(weight h + bias) = s u + onehot(label). Only the label's entry of d is negative, and it is as
    large as the others together: with three classes or more that fixes sign and label, and the ratios of the others say
    which of two margins it is.
    """
    if bias_gradient is not None:
        d = bias_gradient
        # All rows, each by how much it says: d_i^2 weighs the ratio of row i, so tiny entries do no harm.
        features = (weight_gradient * d[:, None]).sum(0) / (d @ d).clamp_min(_TINY)
        return [Output(d, features, int(d.argmin()))]
    bias = torch.zeros_like(weight[:, 0]) if bias is None else bias
    left, sizes, right = torch.linalg.svd(weight_gradient, full_matrices=False)
    u, v = left[:, 0], sizes[0] * right[0]
    largest = int(u.abs().argmax())
    if u[largest] > 0:
        u, v = -u, -v
    if len(u) > 2:
        readings = _readings(u, v, weight, bias, largest)
        return [min(readings, key=lambda r: _contradiction(r, weight, bias))]
    return [*_readings(u, v, weight, bias, largest), *_readings(-u, -v, weight, bias, 1 - largest)]


def _readings(u: Tensor, v: Tensor, weight: Tensor, bias: Tensor, label: int) -> list[Output]:
    """One per margin m, the log-odds of the label: s = (1 - p) / |u_label| with p = sigmoid(m)."""
    size = u[label].abs().clamp_min(_TINY)
    scores = (weight @ v) * size  # the logits are scores / (1 - p) + bias = scores (1 + e^m) + bias
    others = torch.arange(len(u)) != label

    def odds(m: Tensor) -> Tensor:
        logits = scores * (1 + torch.exp(m))[..., None] + bias
        return logits[..., label] - torch.logsumexp(logits[..., others], -1)

    found = []
    for margin in margin_roots(odds):
        s = torch.sigmoid(u.new_tensor(-margin)) / size
        found.append(Output(s * u, v / s, label))
    return found


def _contradiction(reading: Output, weight: Tensor, bias: Tensor) -> float:
    """How far the logits are from the logarithms of the probabilities of the other classes, up to a shift."""
    others = torch.arange(len(weight)) != reading.label
    p = reading.logit_gradient[others].clamp_min(_TINY)
    return float((torch.log(p) - (weight @ reading.features + bias)[others]).var(unbiased=False))


@dataclass(frozen=True)
class Rank:
    """What the equations of one layer determine. `rank` is None where the layer is too large to count."""

    layer: str
    unknowns: int
    equations: int
    rank: int | None

    @property
    def deficient(self) -> bool:
        return self.rank is not None and self.rank < self.unknowns

    def __str__(self) -> str:
        known = "too large to count" if self.rank is None else f"{self.rank:,} of {self.unknowns:,} numbers determined"
        verdict = ": rank deficient, its input stays hidden" if self.deficient else ""
        return f"{self.layer}: {known} ({self.equations:,} equations){verdict}"


def gradient_rows(conv: nn.Conv2d, slope: Tensor, size: tuple[int, int]) -> Tensor:
    """K for one input channel, (out x taps, H x W): the weight's gradient g is K x.

    `slope` is the loss's gradient in the output, (out, H', W'). Row (o, tap) of K holds that of channel o at the pixels
    that this tap saw; it is the same for every input channel. Pixels of the padding are zero and left out.
    """
    pixels = size[0] * size[1]
    seen = _pixels_seen(conv, size)  # (taps, positions)
    out, taps = slope.shape[0], len(seen)
    rows = slope.new_zeros(out, taps, pixels + 1)
    rows.scatter_add_(2, seen.expand(out, -1, -1), slope.flatten(1)[:, None].expand(-1, taps, -1).contiguous())
    return rows[..., 1:].reshape(out * taps, pixels)


def forward_rows(conv: nn.Conv2d, size: tuple[int, int]) -> sparse.csr_array:
    """W: (out x positions, in x H x W), sparse. The forward pass is W x = z - b."""
    pixels, seen = size[0] * size[1], _pixels_seen(conv, size)
    weight = conv.weight.detach().flatten(2)  # (out, in, taps)
    out, channels, taps = weight.shape
    positions = seen.shape[1]
    full = (out, channels, taps, positions)
    rows = (torch.arange(out)[:, None] * positions + torch.arange(positions))[:, None, None].expand(full)
    columns = (torch.arange(channels)[:, None, None] * pixels + seen - 1)[None].expand(full)
    values, real = weight[..., None].expand(full), (seen > 0).expand(full)
    entries = (values[real].numpy(), (rows[real].numpy(), columns[real].numpy()))
    return sparse.csr_array(entries, shape=(out * positions, channels * pixels))


def solve_convolution(
    conv: nn.Conv2d, forward: sparse.csr_array, z: Tensor, slope: Tensor, gradient: Tensor, size: tuple[int, int]
) -> Tensor:
    """What entered the convolution, (in, H, W), by least squares; of all solutions the one of least norm.

    z and slope are (out, H', W'), gradient (out, in, kH, kW). The gradient's equations alone are used where they
    suffice: they do not inherit the errors of the layers behind.
    """
    channels = gradient.shape[1]
    own = gradient_rows(conv, slope, size)
    wanted = gradient.flatten(2).transpose(1, 2).reshape(-1, channels)  # (out x taps, in)
    if well_posed(own):
        alone = np.linalg.lstsq(own.numpy(), wanted.numpy(), rcond=None)[0]  # torch's is not the same twice
        return torch.from_numpy(alone).T.reshape(channels, *size)
    scale = balance(own, forward, channels)
    stacked = sparse.vstack([sparse.kron(sparse.eye_array(channels), scale * own.numpy()), forward], format="csr")
    offset = 0 if conv.bias is None else conv.bias.detach()[:, None, None]
    right = np.concatenate([(scale * wanted.T).reshape(-1).numpy(), (z - offset).reshape(-1).numpy()])
    found = lsmr(stacked, right, atol=_STOP, btol=_STOP, conlim=0, maxiter=_MOST)[0]
    return torch.from_numpy(found).reshape(channels, *size)


def rank_of_convolution(
    name: str, conv: nn.Conv2d, forward: sparse.csr_array, slope: Tensor, size: tuple[int, int]
) -> Rank:
    """How many of the unknowns the equations determine, for this output gradient."""
    channels, pixels = conv.in_channels, size[0] * size[1]
    own = gradient_rows(conv, slope, size)
    unknowns, equations = channels * pixels, len(own) * channels + forward.shape[0]
    if well_posed(own):
        return Rank(name, unknowns, equations, unknowns)
    if unknowns > _LARGEST:
        return Rank(name, unknowns, equations, None)
    own = balance(own, forward, channels) * own
    products = (forward.T @ forward).toarray()
    block = (own.T @ own).numpy()
    for c in range(channels):
        products[c * pixels : (c + 1) * pixels, c * pixels : (c + 1) * pixels] += block
    # Cholesky with pivoting reveals the rank of the squares at a tenth of what singular values cost.
    rank = dpstrf(products, tol=_SAME**2 * float(products.diagonal().max()) * unknowns, overwrite_a=True)[2]
    return Rank(name, unknowns, equations, int(rank))


def well_posed(own: Tensor) -> bool:
    """Do the gradient's equations of one channel determine it by themselves, with room for rounding?"""
    if own.shape[0] < own.shape[1]:
        return False
    sizes = torch.linalg.svdvals(own)
    return bool(sizes[-1] * _WORST > sizes[0])


def balance(own: Tensor, forward: sparse.csr_array, channels: int) -> float:
    """The factor that gives both kinds of equations the same weight; gradients shrink from layer to layer."""
    size = float(own.norm()) * channels**0.5
    return float(np.linalg.norm(forward.data)) / size if size > 0 else 0.0


def _pixels_seen(conv: nn.Conv2d, size: tuple[int, int]) -> Tensor:
    """Which pixel (from 1; 0 is padding) each tap sees at each position: (taps, positions)."""
    assert not isinstance(conv.padding, str)
    numbered = torch.arange(1, size[0] * size[1] + 1, dtype=torch.float64).view(1, 1, *size)
    return nn.functional.unfold(numbered, conv.kernel_size, conv.dilation, conv.padding, conv.stride)[0].long()

"""The noise that a client drew inside a variational bottleneck: read off its gradient, or searched for with the inputs.

A linear layer with a bias gives its input away: for one sample, row i of the weight's gradient is (dL/dy_i) x and the
bias entry dL/dy_i. The bottleneck has two. The first shows the features, hence mu and std; the second shows
z = mu + std * noise. So the noise itself stands in the update.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching
from leakgauge.models.layers import VariationalBottleneck
from leakgauge.models.structure import last_listed_linear

READ, SEARCH, ZERO = ("read off the update", "searched for", "taken as zero")
_TINY = 1e-30


def with_noise(problem: Matching, gradient: Mapping[str, Tensor], way: str) -> Matching:
    """The same problem with the client's noise as far as it is known, or as part of what is searched for.

    Of several samples the gradient shows mixtures, from which nothing is read: their noise is searched for instead.
    """
    found = {name: m for name, m in problem.model.named_modules() if isinstance(m, VariationalBottleneck)}
    if not found:
        raise NotApplicable("this defense puts a variational bottleneck into the model, and this one has none")
    if way == ZERO:
        return problem
    if way == READ and problem.shape[0] == 1:
        noise = {_in(name, "noise"): visible_noise(name, layer, gradient) for name, layer in found.items()}
        return problem.replace(masks={**problem.masks, **noise})
    shapes = {_in(name, "noise"): tuple(layer.noise.shape) for name, layer in found.items()}
    return problem.replace(hidden=shapes)


def visible_noise(name: str, layer: VariationalBottleneck, gradient: Mapping[str, Tensor]) -> Tensor:
    """(T, K): what one sample's gradient shows of the noise."""
    features = _entered(_in(name, "statistics"), gradient)
    mu, raw = layer.statistics(features).detach().chunk(2, -1)
    code = _entered(_in(name, "decode"), gradient)
    noise: Tensor = (code - mu) / F.softplus(raw)
    return noise


def _entered(name: str, gradient: Mapping[str, Tensor]) -> Tensor:
    """(T, in): the one input of a linear layer, fitted to all rows of its gradient."""
    if f"{name}.weight" not in gradient or f"{name}.bias" not in gradient:
        raise NotApplicable(f"the noise is read off the gradients of {name!r}, which are frozen or not shared")
    weight, bias = gradient[f"{name}.weight"], gradient[f"{name}.bias"]  # (T, out, in), (T, out)
    return (weight * bias[..., None]).sum(1) / (bias**2).sum(1, keepdim=True).clamp_min(_TINY)


def _in(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def behind_the_bottleneck(model: nn.Module) -> list[str]:
    """Names of the bottleneck's layers and of the linear layer behind it."""
    found = [name for name, module in model.named_modules() if isinstance(module, VariationalBottleneck)]
    last = last_listed_linear(model)
    return found if last is None else [*found, last]

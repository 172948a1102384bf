"""The last layer of R-GAP: the gradient of the logits and the features, from one weight gradient of rank one.

For one sample row i of the last weight's gradient is d_i h: d is the loss's gradient in the logits, h the features. A
bias gives d away. Without one only the product is known, and one number is missing, the margin; it solves a scalar
equation m = f(m) because the weights turn h into the very logits that made d. There may be two such m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

_TINY = 1e-300
_WIDEST = 30.0  # margins (log-odds) are looked for within this
_GRID = 4001


@dataclass(frozen=True)
class Output:
    """One way to read the last layer of one sample."""

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

    The label's sign is not in the gradient; layers further in tell the wrong one by equations that contradict.
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

    A layer may have a bias without a gradient, a frozen one.
    """
    if bias_gradient is not None:
        d = bias_gradient
        # All rows, each by how much it says: d_i^2 weighs the ratio of row i, so tiny entries do no harm.
        features = (weight_gradient * d[:, None]).sum(0) / (d @ d).clamp_min(_TINY)
        return [Output(d, features, int(d.argmin()))]
    return _without_bias(weight_gradient, weight, torch.zeros_like(weight[:, 0]) if bias is None else bias)


def _without_bias(gradient: Tensor, weight: Tensor, bias: Tensor) -> list[Output]:
    """d = s u and h = v / s with u and v known: s follows from softmax(weight h + bias) = s u + onehot(label).

    Only the label's entry of d is negative, and it is as large as the others together: with three classes or more that
    settles sign and label, and the ratios of the others say which of two margins it is.
    """
    left, sizes, right = torch.linalg.svd(gradient, full_matrices=False)
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

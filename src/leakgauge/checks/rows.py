"""Rows of linear layers that training does not produce: multiples of one another, like biases, balanced signs."""

from __future__ import annotations

import torch
from scipy import stats
from torch import Tensor

from leakgauge.checks._received import Layer, Neighbours, Received
from leakgauge.checks.suspicion import Found, check

_FINEST = 1e-8  # float32 has no more digits
_CHANCE = 1e-6  # that one pair of a clean layer is as parallel as the baseline
_SEVERAL = 4  # rows, so two pairs: a single pair of like units may be learnt
_ALIKE = 1e-2  # residual up to which rows count as the same direction
_TRIED = 16  # directions
_FEWEST = 16  # non-zero weights of a row; in smaller ones the signs balance by chance
_ROWS = 8  # of a layer; a share of fewer says nothing
_BLOCK = 256  # rows at a time
_BALANCE = 0.1  # of the spread that the count of positive weights has by chance
_SAME_SIZES = 0.04  # distance of the sorted magnitudes, relative to how much they vary


@check("do not train on it: units that look at the same thing let the server subtract samples from one another")
def identical_rows(received: Received) -> Found:
    """Exact multiples, as in imprint modules and MKOR's first layer: digits to which the two most alike rows agree."""
    for layer in received.hidden():
        if len(layer.rows) > 1:
            evidence = (
                f"{_exact(layer.rows)} of {len(layer.rows)} rows are multiples of another row to three digits or more; "
                f"the closest two differ by {float(layer.rows.residual.min()):.1e} of their length"
            )
            yield layer.name, _digits(layer.rows), evidence


@check("do not train on it: the differences between such units' gradients are single samples")
def equal_outgoing(received: Received) -> Found:
    """Units with equal outgoing weights: each sample pushes them alike. The layer named is the one behind the units.

    The last layer is left out: few classes give similar columns.
    """
    for layer in received.hidden():
        following = received.after(layer)
        if following is not None and following.name != received.last and len(columns := following.columns) > 1:
            evidence = f"{_exact(columns)} of {len(columns)} units of {layer.name!r} have the same outgoing weights"
            yield following.name, _digits(columns), f"{evidence} up to a factor"


def _digits(neighbours: Neighbours) -> float:
    return max(0.0, -float(torch.log10(neighbours.residual.min().clamp(min=_FINEST))))


def _exact(neighbours: Neighbours) -> int:
    return int((neighbours.residual < 1e-3).sum())


@check("do not train on it: of such a pair one unit is active for every sample, which sorts samples by class")
def parallel_rows(received: Received) -> Found:
    """Multiples up to noise, as in MKOR's inconspicuous first layer: how far the fourth largest cosine stands out.

    0 where the layer's own random pairs would reach it, 1 for exact multiples. The baseline is what the most parallel
    of all pairs has in a random layer whose cosines are as large on average. Training gives all rows a common
    direction, which raises the average, and the baseline with it.
    """
    for layer in received.hidden():
        R = len(layer.rows)
        if R < _SEVERAL:
            continue
        cosines = layer.rows.cosine.abs()
        cosine = float(cosines.topk(_SEVERAL).values[-1])
        # The squared cosine of two random directions in d dimensions is Beta(1/2, (d - 1)/2).
        spread = max((1 / max(layer.rows.mean_square, 1e-12) - 1) / 2, 1e-6)
        baseline = float(stats.beta.isf(_CHANCE / (R * (R - 1) / 2), 0.5, spread)) ** 0.5
        score = (cosine - baseline) / (1 - baseline) if baseline < 1 - 1e-6 else 0.0
        evidence = (
            f"{int((cosines > (1 + baseline) / 2).sum())} of {R} rows are nearly parallel to another one; the fourth "
            f"largest |cosine| is {cosine:.4f}, where the layer's other rows suggest {baseline:.3f} at most"
        )
        yield layer.name, max(0.0, min(1.0, score)), evidence


@check("do not train on it: each step between two biases singles out the samples in between")
def stacked_biases(received: Received) -> Found:
    """The bins of an imprint module: how many rows have one direction and different thresholds, bias over length."""
    for layer in received.hidden():
        if layer.bias is None or len(layer.rows) < 2:
            continue
        family = _largest_family(layer)
        if not len(family):
            yield layer.name, 0.0, "no two rows have the same direction"
            continue
        limits = layer.bias[family] / torch.linalg.vector_norm(layer.weight[family], dim=1)
        steps = int((limits.sort().values.diff() > 1e-6 * (1 + limits.abs().max())).sum()) + 1
        ordered = steps > 2 and bool((limits.diff() >= 0).all() | (limits.diff() <= 0).all())
        evidence = f"{len(family)} rows have one direction and {steps} different biases"
        yield layer.name, float(steps > 1) * steps, evidence + ", which rise or fall from row to row" * ordered


def _largest_family(layer: Layer) -> Tensor:
    """The rows that have the most common direction; tried are the directions of the rows with most partners."""
    weight = layer.weight
    same = (layer.rows.residual < _ALIKE) & (layer.rows.cosine > 0)
    index = layer.rows.index[same]
    if not len(index):
        return index
    common = torch.bincount(layer.rows.partner[same], minlength=len(weight))
    some = common.topk(min(_TRIED, len(weight))).indices
    length = torch.linalg.vector_norm(weight, dim=1)
    cosines = weight[index] @ weight[some].T / (length[index, None] * length[some])  # (rows, tried)
    alike = cosines > 1 - _ALIKE**2 / 2  # a residual of that size, as a cosine
    return index[alike[:, alike.sum(0).argmax()]]


@check("do not train on it: such units fire for one sample of a batch, whose values their gradient then is")
def trap_rows(received: Received) -> Found:
    """Trap weights, which fire for few samples: negative weights face shrunk copies of themselves."""
    for layer in received.hidden():
        blocks = torch.split(layer.weight, _BLOCK)
        surplus = torch.cat([block.sign().sum(1) for block in blocks]).long()
        count = torch.cat([block.count_nonzero(dim=1) for block in blocks])
        filled = count >= _FEWEST
        if int(filled.sum()) < _ROWS:
            continue
        trapped = _trapped(layer.weight, (count + surplus) // 2, (count - surplus) // 2)
        share = float(trapped[filled].double().mean())
        unbiased = layer.bias is None or not bool(layer.bias.any())
        evidence = (
            f"in {share:.0%} of {int(filled.sum())} rows the positive weights are as many as the negative ones and, "
            f"sorted, a multiple of them{', without biases' if unbiased else ''}"
        )
        yield layer.name, share, evidence


def _trapped(weight: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Which rows (rows,) have as many weights of either sign, and the same magnitudes up to one factor."""
    balanced = (positive - negative).abs() <= (_BALANCE * (positive + negative).double().sqrt()).clamp(min=1)
    result = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
    for rows in torch.split(balanced.nonzero().flatten(), _BLOCK):  # sorting is slow, and few clean rows balance
        if len(rows) == 0:  # what a split of nothing gives
            break
        length = int(torch.minimum(positive[rows], negative[rows]).max())
        order = weight[rows].sort(dim=1).values
        up, down = order.flip(1)[:, :length].clamp(min=0), (-order[:, :length]).clamp(min=0)
        both = (up > 0) & (down > 0)  # what one side has more of is small and has no partner
        up, down = up * both, down * both
        factor = (up * down).sum(1, keepdim=True) / down.square().sum(1, keepdim=True).clamp(min=1e-30)
        rest = torch.linalg.vector_norm(up - factor * down, dim=1)
        mean = up.sum(1, keepdim=True) / both.sum(1, keepdim=True)
        # Pruning leaves magnitudes that hardly vary, and these are multiples of any others that do not.
        result[rows] = rest < _SAME_SIZES * torch.linalg.vector_norm((up - mean) * both, dim=1)
    return result

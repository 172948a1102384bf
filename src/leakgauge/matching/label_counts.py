"""How often each label occurs in a batch, read off the last layer's gradient: one function per published rule.

With n the counts, N the batch and p the mean prediction over it, the bias gradient g is p - n / N: everything but p is
known. The rules differ in what they put in its place. Each takes `Clues` of T trials and gives counts (T, C), int64,
that sum to N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from leakgauge.matching.last_layer import Clues
from leakgauge.matching.whole_counts import counts_by_impact, nearest_counts

_SURE = 6.0  # an entry this many noise scales below zero is negative
_ROUNDING = 1e-6  # relative to the largest entry: what float32 leaves of a zero
_SPREAD = 0.5  # of a client's label shares about the probe's, relative
_UNSEEN = 0.1  # prior of labels that the probe does not hold, relative to equal shares
_RIDGE = 1e-3  # of the scatter of predictions, relative to its trace


def by_sign(clues: Clues) -> Tensor:
    """Each class with a negative entry is there (Zhao et al. 2020); the others of the batch by the entries' size."""
    present = (clues.bias < 0) & (_rank(clues.bias) < clues.samples)
    present |= _rank(clues.bias) == 0  # at least one class is
    size = clues.bias.neg().clamp_min(0).where(present, 0.0)
    share = size / size.sum(1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    return nearest_counts((share * clues.samples).where(present, -torch.inf), clues.samples, present)


def by_smallest_entry(clues: Clues) -> Tensor:
    """The N classes whose rows hold the most negative entries (Yin et al. 2021): right where labels are distinct.

    With more samples than classes every class is counted again and again in that order.
    """
    classes = clues.bias.shape[1]
    rank = _rank(clues.rows.min(2).values)
    return clues.samples // classes + (rank < clues.samples % classes).long()


def by_row_sums(clues: Clues) -> Tensor:
    """LLG (Wainakh et al. 2022): the impact of a sample is estimated from the negative row sums themselves."""
    sums, classes = clues.rows.sum(2), clues.bias.shape[1]
    impact = (1 + 1 / classes) * sums.clamp_max(0).sum(1) / clues.samples
    return counts_by_impact(sums, impact, clues.samples)


def by_learnt_impact(clues: Clues) -> Tensor:
    """LLG+ and LLG*: impact and offsets from batches of one class each, made of the probe's samples.

    All samples of a class stand for the ten batches drawn in the paper.
    """
    probe, classes = clues.probe, clues.bias.shape[1]
    brightness = probe.features.sum(2)  # (1 or T, S)
    each = probe.shares @ (probe.predictions * brightness[..., None])  # (1 or T, batch of one class, row)
    each = each - torch.diag_embed(brightness @ probe.shares.T)
    own = each.diagonal(dim1=1, dim2=2)
    impact = own.mean(1) * (1 + 1 / classes) / clues.samples
    offset = (each.sum(1) - own) / max(classes - 1, 1)
    return counts_by_impact(clues.rows.sum(2), impact.expand(len(clues.rows)), clues.samples, offset)


def by_bias(clues: Clues) -> Tensor:
    """LLG on the bias, where a sample's impact is the sum of negative entries over N: no features in the way."""
    return counts_by_impact(clues.bias, clues.bias.clamp_max(0).sum(1) / clues.samples, clues.samples)


def by_mean_prediction(clues: Clues) -> Tensor:
    """n = N (p - g) with the mean prediction over the probe's inputs: exact where predictions hardly differ."""
    return nearest_counts(clues.samples * (clues.probe.mean_prediction - clues.bias), clues.samples, _certain(clues))


def by_presence(clues: Clues) -> Tensor:
    """Only classes that show a negative entry, in shares that the predictions for each class explain best.

    With features of at least zero such a class is certainly in the batch, and in ReLU networks hardly any other is. The
    bias is linear in the shares, g = (P - I) share, with P the mean prediction for each label. The shares are the best
    linear estimate from it: predictions scatter as they do in the probe, shares about those of the probe.
    """
    least = _certain(clues)
    seen = _negative_rows(clues) | (least > 0)
    seen |= ~seen.any(1, keepdim=True) | ~_positive(clues)[:, None]
    probe, samples, classes = clues.probe, clues.samples, clues.bias.shape[1]
    by_label = probe.shares @ probe.predictions  # (1 or T, label, C)
    system = by_label.mT - torch.eye(classes).to(clues.bias)
    expected = (probe.label_shares + _UNSEEN / classes) * seen  # (T, C)
    expected = expected / expected.sum(1, keepdim=True)
    spread = (_SPREAD * expected) ** 2 + expected / samples
    # Of all such shares only those that sum to one: their covariance.
    prior = torch.diag_embed(spread) - spread[:, :, None] * spread[:, None] / spread.sum(1)[:, None, None]
    scatter = _scatter(clues, by_label)  # (T, C, C)
    gain = prior @ system.mT @ torch.linalg.inv(system @ prior @ system.mT + scatter)
    miss = clues.bias - (system @ expected[..., None])[..., 0]
    share = expected + (gain @ miss[..., None])[..., 0]
    return nearest_counts((samples * share).where(seen, -torch.inf), samples, least)


def _scatter(clues: Clues, by_label: Tensor) -> Tensor:
    """Covariance (T, C, C) of the bias about what the labels explain: samples, the probe's few samples, noise."""
    probe = clues.probe
    centre = by_label[:, probe.labels] if probe.labels is not None else probe.mean_prediction[:, None]
    about = probe.predictions - centre  # (1 or T, S, C)
    one = about.mT @ about / about.shape[1]
    ridge = _RIDGE * one.diagonal(dim1=1, dim2=2).sum(1) + torch.finfo(one.dtype).eps
    several = (one + torch.diag_embed(ridge[:, None].expand(one.shape[:2]))) * (1 / clues.samples + 1 / about.shape[1])
    return several + torch.diag_embed((clues.noise**2)[:, None].expand(clues.bias.shape))


def by_least_squares(clues: Clues) -> Tensor:
    """The rows over the bias are mean features; their predictions give a linear system for the counts (Ma et al. 2023).

    Our own departures: the system is solved with the counts' sum as one more equation, and counts are kept above what
    is certain. Needs no other inputs.
    """
    bias, probe = clues.bias, clues.probe
    tiny = torch.finfo(bias.dtype).tiny
    features = clues.rows / bias.where(bias.abs() > tiny, torch.full_like(bias, tiny))[..., None]  # (T, C, d)
    logits = (features @ probe.weight.mT + probe.offset[:, None]).nan_to_num()
    predictions = torch.softmax(logits, -1)  # (T, label, class)
    classes = bias.shape[1]
    system = predictions.mT - torch.eye(classes).to(bias)
    system = torch.cat((system, torch.ones_like(system[:, :1])), 1)  # (T, C + 1, C)
    right = torch.cat((bias, torch.ones_like(bias[:, :1])), 1)[..., None]
    share = (torch.linalg.pinv(system) @ right)[..., 0]
    return nearest_counts(clues.samples * share, clues.samples, _certain(clues))


RULES: Mapping[str, Callable[[Clues], Tensor]] = {
    "sign": by_sign,
    "yin": by_smallest_entry,
    "llg": by_row_sums,
    "llg-plus": by_learnt_impact,
    "llg-star": by_learnt_impact,  # with dummy inputs in the probe
    "bias": by_bias,
    "exact": by_mean_prediction,
    "presence": by_presence,
    "least-squares": by_least_squares,
}


def misfit(clues: Clues, counts: Tensor) -> Tensor:
    """(T,): how far the counts are from N (p - g) per class, p being the mean prediction over the probe's inputs."""
    expected = clues.samples * (clues.probe.mean_prediction - clues.bias)
    return (expected - counts).abs().mean(1)


def _certain(clues: Clues) -> Tensor:
    """Least counts (T, C) that the gradient proves: predictions are not negative, so n is at least -N g.

    Where features are not negative, a negative entry in a row proves one sample of its class. What noise could have
    done proves nothing, and where the proofs add up to more than N they are not believed.
    """
    doubt = _SURE * clues.noise[:, None] + _ROUNDING * clues.bias.abs().amax(1, keepdim=True)
    least = (-clues.samples * (clues.bias + doubt)).ceil().clamp_min(0)
    least = least * _has_room(least, clues.samples)
    both = torch.maximum(least, _negative_rows(clues).to(least))
    return torch.where(_has_room(both, clues.samples), both, least)


def _has_room(least: Tensor, samples: int) -> Tensor:
    """(T, 1) bool"""
    return least.sum(1, keepdim=True) <= samples


def _negative_rows(clues: Clues) -> Tensor:
    """(T, C) bool: does the row hold an entry below zero for sure? False where features may be negative."""
    doubt = _SURE * clues.noise + _ROUNDING * clues.rows.abs().flatten(1).amax(1)
    return (clues.rows.min(2).values < -doubt[:, None]) & _positive(clues)[:, None]


def _positive(clues: Clues) -> Tensor:
    """(1 or T,) bool: are the layer's features at least zero, as behind ReLU and sigmoid?"""
    return (clues.probe.features >= 0).flatten(1).all(1)


def _rank(score: Tensor) -> Tensor:
    """(T, C): 0 for the lowest."""
    return score.argsort(dim=1, stable=True).argsort(1)

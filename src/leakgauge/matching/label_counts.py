"""How often each label occurs in a batch, read off the last layer's gradient: one function per published rule.

With n the counts, N the batch and p the mean prediction over it, the bias gradient g is p - n / N: everything but p is
known. The rules differ in what they put in its place. Each takes `Clues` of T trials and gives counts (T, C), int64,
that sum to N.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from leakgauge.engine.randomness import generator, normal
from leakgauge.matching.last_layer import Clues, make_clues
from leakgauge.matching.whole_counts import counts_by_impact, nearest_counts, ranks

_SURE = 6.0  # an entry this many noise scales below zero is negative
_ROUNDING = 1e-6  # relative to the largest entry: what float32 leaves of a zero
_SPREAD = 0.5  # of a client's label shares about the probe's, relative
_UNSEEN = 0.1  # prior of labels that the probe does not hold, relative to equal shares
_RIDGE = 1e-3  # of the scatter of predictions, relative to its trace
CANDIDATES = ("exact", "presence", "least-squares", "llg-plus")  # for the choice; the first of equals is taken
_BATCHES = 24  # made up to choose by
_FEW = 3  # classes in a batch of few
_NOISELESS = 1e-5  # noise below this share of the largest entry is rounding
_LEVELS = 4  # of noise per decade


def by_sign(clues: Clues) -> Tensor:
    """Each class with a negative entry is there (Zhao et al. 2020); the others of the batch by the entries' size."""
    present = (clues.bias < 0) & (ranks(clues.bias) < clues.samples)
    present |= ranks(clues.bias) == 0  # at least one class is
    size = clues.bias.neg().clamp_min(0).where(present, 0.0)
    share = size / size.sum(1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    return nearest_counts((share * clues.samples).where(present, -torch.inf), clues.samples, present)


def by_smallest_entry(clues: Clues) -> Tensor:
    """The N classes whose rows hold the most negative entries (Yin et al. 2021): right where labels are distinct.

    With more samples than classes every class is counted again and again in that order.
    """
    classes = clues.bias.shape[1]
    rank = ranks(clues.rows.min(2).values)
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
    features = clues.rows / bias.where(bias.abs() > tiny, tiny)[..., None]  # (T, C, d)
    logits = (features @ probe.weight.mT + probe.offset[:, None]).nan_to_num()
    system = torch.softmax(logits, -1).mT - torch.eye(bias.shape[1]).to(bias)  # (T, class, label)
    system, right = (torch.cat((t, torch.ones_like(t[:, :1])), 1) for t in (system, bias[..., None]))
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
    done proves nothing, and where the proofs add up to more than N they are dropped.
    """
    doubt = _SURE * clues.noise[:, None] + _ROUNDING * clues.bias.abs().amax(1, keepdim=True)
    least = (-clues.samples * (clues.bias + doubt)).ceil().clamp_min(0)
    least = least * (least.sum(1, keepdim=True) <= clues.samples)
    both = torch.maximum(least, _negative_rows(clues).to(least))
    return torch.where(both.sum(1, keepdim=True) <= clues.samples, both, least)


def _negative_rows(clues: Clues) -> Tensor:
    """(T, C) bool: does the row hold an entry below zero for sure? False where features may be negative."""
    doubt = _SURE * clues.noise + _ROUNDING * clues.rows.abs().flatten(1).amax(1)
    return (clues.rows.min(2).values < -doubt[:, None]) & _positive(clues)[:, None]


def _positive(clues: Clues) -> Tensor:
    """(1 or T,) bool: are the layer's features at least zero, as behind ReLU and sigmoid?"""
    return (clues.probe.features >= 0).flatten(1).all(1)


def chosen_rules(clues: Clues) -> list[str]:
    """The best rule for each trial, by its noise alone: trials of one model with equal noise get the same rule.

    The rules are compared on made-up batches of the client's size, half of them drawn from all classes and half from a
    few, with as much noise as the update shows. Half of the probe's samples make the batches, the other half is what
    the rules know. The client's labels play no part.
    """
    largest = clues.rows.abs().flatten(1).amax(1)
    steps = torch.pow(10.0, (clues.noise.clamp_min(1e-30).log10() * _LEVELS).round() / _LEVELS)
    levels = steps.where(clues.noise > _NOISELESS * largest, 0.0).tolist()  # a few per decade, 0 for rounding
    best = {level: _best(clues, level) for level in set(levels)}
    return [best[level] for level in levels]


def _best(clues: Clues, noise: float) -> str:
    if clues.samples == 1 and not noise:
        return "bias"  # proved: one sample leaves one negative entry
    if clues.probe.predictions.shape[1] < 2:  # no halves
        return "least-squares"
    made, truth = _made_up(clues, noise)
    scores = [int(torch.minimum(RULES[rule](made), truth).sum()) for rule in CANDIDATES]
    return CANDIDATES[scores.index(max(scores))]


def _made_up(clues: Clues, noise: float) -> tuple[Clues, Tensor]:
    """Clues of made-up batches and their true counts (B, C)."""
    probe, samples = clues.probe, clues.samples
    place = torch.arange(probe.predictions.shape[1], device=probe.predictions.device)
    known, tried = probe.take(place[::2]), probe.take(place[1::2])
    predictions, features = tried.predictions[0], tried.features[0]  # (S, C), (S, d)
    labels = tried.labels if tried.labels is not None else torch.arange(len(predictions)) % predictions.shape[1]
    onehot = nn.functional.one_hot(labels.to(predictions.device), predictions.shape[1]).to(predictions)
    weight = _drawn(onehot.cpu(), samples).to(predictions) / samples  # (B, S)
    error = weight[..., None] * (predictions - onehot)  # (B, S, C)
    bias, rows = error.sum(1), error.mT @ features
    if noise:
        bias = bias + noise * normal(range(_BATCHES), "label-noise/bias", bias.shape[1:]).to(bias)
        rows = rows + noise * normal(range(_BATCHES), "label-noise/rows", rows.shape[1:]).to(rows)
    counts = (samples * (weight @ onehot)).round().long()
    return make_clues(rows, bias if clues.has_bias else None, samples, known), counts


def _drawn(onehot: Tensor, samples: int) -> Tensor:
    """How often each sample (of S, with labels (S, C)) is in each batch: (B, S). Every other batch has few classes."""
    there = torch.nonzero(onehot.sum(0))[:, 0]

    def batch(number: int) -> Tensor:
        g = generator(number, "label-batch")
        few = there[torch.randperm(len(there), generator=g)[:_FEW]] if number % 2 else there
        picks = torch.multinomial(onehot[:, few].sum(1), samples, replacement=True, generator=g)
        return torch.bincount(picks, minlength=len(onehot))

    return torch.stack([batch(number) for number in range(_BATCHES)])

"""Which label rule is best here: tried on batches of the probe's own samples, whose labels the attacker knows.

The rules are compared on made-up batches of the client's size, half of them drawn from all classes and half from a few,
with as much noise as the update shows. Half of the probe's samples make the batches, the other half is what the rules
know. The client's labels play no part.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakgauge.engine.randomness import generator, normal
from leakgauge.matching.label_counts import RULES
from leakgauge.matching.last_layer import Clues, make_clues

CANDIDATES = ("exact", "presence", "least-squares", "llg-plus")  # the first of equals is taken
_BATCHES = 24
_FEW = 3  # classes in a batch of few
_NOISELESS = 1e-5  # noise below this share of the largest entry is rounding
_LEVELS = 4  # of noise per decade that are told apart


def chosen_rules(clues: Clues) -> list[str]:
    """The rule for each trial, by its noise alone: trials of one model with equal noise get the same rule."""
    levels = _noise_levels(clues).tolist()
    best = {level: _best(clues, level) for level in set(levels)}
    return [best[level] for level in levels]


def _noise_levels(clues: Clues) -> Tensor:
    """(T,): the noise in a few steps per decade, 0 for rounding."""
    largest = clues.rows.abs().flatten(1).amax(1)
    step = torch.pow(10.0, (clues.noise.clamp_min(1e-30).log10() * _LEVELS).round() / _LEVELS)
    return step.where(clues.noise > _NOISELESS * largest, torch.zeros_like(step))


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

"""Is the update what the scenario says it is? Sign, scale, learning rate and loss, read off the last layer's bias.

For cross-entropy the bias gradient is the mean prediction over the batch minus the share of each label. So its entries
sum to zero; none is larger than a prediction; what is negative adds up to at most 1; and for fewer samples than classes
to no less than what the network predicts for the classes that are not there. The network is known, so its predictions
on public or made-up inputs bound the batch's. An update that was scaled, turned round or taken for another kind breaks
one of these. The bounds are loose on a trained network and for large batches: what fits is then not proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from leakgauge.client.fedavg import local_steps
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.last_layer import Clues, clues_of
from leakgauge.types import CROSS_ENTROPY, Fact, LocalTraining, Observation
from leakgauge.types.triage import CAUTION, INFO, WRONG, Clue

_NOISY = 1e-3  # columns of the last layer may miss zero by this share of their entries; rounding is far below it
_MARGIN, _PLUS = 1.2, 0.02  # a batch may be predicted this much beyond what the probe shows
_LOOSE = 0.5  # and leave this share of the least that the probe implies
_ROUND = 1e-3  # how near to -1 the entries of a loss without its softmax add up


@dataclass(frozen=True)
class _Bounds:
    """What the bias gradient of a batch can be, by the predictions of the known network."""

    highest: Tensor  # (C,) of any entry
    least: float  # of what the negative entries add up to
    most: float = 1 + _PLUS

    def fit(self, bias: Tensor) -> bool:
        """Can this be the bias gradient (C,) of a mean over the batch?"""
        negative = float(-bias.clamp_max(0).sum())
        return bool((bias <= self.highest).all()) and self.least <= negative <= self.most


def sanity(observation: Observation) -> list[Clue]:
    """One clue on the loss, one on sign and scale; no result where the last layer cannot be read."""
    local: LocalTraining = observation.fact(Fact.LOCAL_TRAINING)
    untested = partial(Clue, "claims", "sign and scale", "not tested", severity=INFO)
    try:
        clues = clues_of(observation)
    except NotApplicable as error:
        return [untested(str(error))]
    if not clues.has_bias:
        return [untested("the last layer has no bias to read them off")]
    loss = _loss(clues, local)
    if local.loss != CROSS_ENTROPY or loss.severity == WRONG:
        return [loss]
    return [loss, _claims(observation, clues, local, clean=loss.severity == INFO)]


def refuse_wrong(clues: Sequence[Clue]) -> None:
    """An update that is not what was claimed is bad input: every attack would read it wrongly."""
    for clue in clues:
        if clue.severity == WRONG:
            raise BadInput("update", allowed="what --local and --batch-size claim", got=clue.value, do=clue.meaning)


def noise_share(clues: Clues) -> float:
    """Noise in the last layer's rows, as a share of their entries; the most of all trials."""
    size = clues.rows.flatten(1).pow(2).mean(1).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    return float((clues.noise / size).max())


def _loss(clues: Clues, local: LocalTraining) -> Clue:
    clue = partial(Clue, "loss", "loss")
    noise, total = noise_share(clues), float(clues.bias.sum(1).mean())
    plain = local.loss == CROSS_ENTROPY
    seen = f"entries of the last bias add up to {total:.2g}"
    if abs(total + 1) <= _ROUND:
        meaning = "as they do for a loss that forgets the softmax (nll-on-logits)"
        do = "; if that is meant, say --local loss=nll-on-logits" if plain else ""
        return clue(seen, meaning + do, WRONG if plain else INFO)
    if not plain:
        return clue(seen, f"{local.loss} would give -1: noise, a scale, or another loss", CAUTION)
    if noise > _NOISY:
        why = "there is noise in it, entries were left out, or it is another loss"
        value = f"{seen}; columns of the last layer miss 0 by {noise:.2g} of an entry"
        return clue(value, f"cross-entropy gives 0 in every column: {why}", CAUTION)
    return clue(f"{seen}, every column to 0", "as cross-entropy must: no noise in the last layer", INFO)


def _claims(observation: Observation, clues: Clues, local: LocalTraining, clean: bool) -> Clue:
    bounds = _bounds(clues)
    negative = float((-clues.bias.clamp_max(0)).sum(1).mean())
    seen = f"negative entries of the last bias add up to {negative:.3g}, {bounds.least:.2g} to 1 is possible"
    clue, averaging = partial(Clue, "claims", "sign and scale", seen), local.kind == "fedavg"
    if all(bounds.fit(row) for row in clues.bias):
        meaning = f"fits a learning rate of {local.lr:g}" if averaging else "fits a mean gradient"
        if bounds.least == 0:
            meaning += "; too many samples, or too sure a network, to tell a smaller scale from the right one"
        return clue(meaning, INFO)
    claimed = f"a weight difference at a rate of {local.lr:g}" if averaging else "a mean gradient"
    meaning = f"not {claimed} as claimed"
    if not clean:
        return clue(f"{meaning}, which noise or compression may explain", CAUTION)
    others = [name for name, factor in _mistakes(observation, local) if all(bounds.fit(b * factor) for b in clues.bias)]
    if others:
        return clue(f"{meaning}; it would fit {' or '.join(others)}", WRONG)
    return clue(meaning + _rate(bounds, clues.bias, local), WRONG)


def _bounds(clues: Clues) -> _Bounds:
    predictions = clues.probe.predictions[0]  # (S, C)
    classes = predictions.shape[1]
    absent = predictions.amin(0).sort().values[: max(0, classes - clues.samples)]  # at least so many are not there
    return _Bounds(_MARGIN * predictions.amax(0) + _PLUS, _LOOSE * float(absent.sum()))


def _mistakes(observation: Observation, local: LocalTraining) -> list[tuple[str, float]]:
    """What people do wrong, and the factor that puts it right."""
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    found = [("the opposite sign", -1.0)]
    if samples > 1 and local.kind == "fedsgd":  # of a weight difference the rate is wrong far more often
        found.append((f"a sum over the {samples} samples (divide by {samples})", 1 / samples))
    if local.kind == "fedavg":
        found.append(("a gradient (say --local kind=fedsgd)", -local.lr * local_steps(samples, local)))
    return found


def _rate(bounds: _Bounds, bias: Tensor, local: LocalTraining) -> str:
    """The learning rate, or the factor, under which the update would fit; empty if there is none of either sign."""
    negative, positive = (float((sign * bias).clamp_min(0).sum(1).mean()) for sign in (-1, 1))
    middle = (max(2 * bounds.least, 0.05) + 1) / 2
    for sign, size in ((1, negative), (-1, positive)):
        factor = sign * middle / max(size, 1e-30)
        if not all(bounds.fit(row * factor) for row in bias):
            continue
        if local.kind == "fedavg" and sign > 0:
            return f"; it would fit a learning rate near {local.lr / factor:.1g}, and {local.lr:g} is claimed"
        if sign < 0:
            rate = 1 / abs(factor)
            return f"; it would fit a weight difference at a rate near {rate:.1g} (--local kind=fedavg,lr={rate:.1g})"
        return f"; it would fit if it were {factor:.2g} times as large"
    return ""

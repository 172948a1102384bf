"""What a client minimises: a mean over its samples, of the model's output against targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, Client

Loss = Callable[[Tensor, Tensor], Tensor]  # output and targets of one client's samples -> the mean loss
IGNORED = -100  # a position of a sequence with this or any other label below 0 does not count
BLANK = 0  # the class of CTC that stands for nothing
_NEVER = -1e30  # logarithm of a probability of zero, whose slopes are zeros and not nan


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of (N, ..., C) logits against (N, ...) labels or (N, ..., C) probabilities.

    Logits of sequences and pictures may have their classes on axis 1, as torch wants it: (N, C, ...).
    """
    return _entropy(torch.log_softmax(_classes_last(logits, targets), -1), targets)


def _in_full(output: Tensor) -> Tensor:
    """Losses are computed in float32 at least, as torch does it under autocast."""
    return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output


def _classes_last(logits: Tensor, targets: Tensor) -> Tensor:
    logits = _in_full(logits)
    if logits.dim() < 3 or targets.dim() + 1 != logits.dim() or logits.shape[:-1] == targets.shape:
        return logits
    return logits.movedim(1, -1) if (logits.shape[0], *logits.shape[2:]) == targets.shape else logits


def weighted_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, weights: tuple[float, ...]) -> Tensor:
    """With label smoothing and class weights, as `torch.nn.functional.cross_entropy` has them."""
    log_p, weight = torch.log_softmax(_classes_last(logits, targets), -1), logits.new_tensor(weights or 1.0)
    if targets.dim() == logits.dim():
        classes = targets.shape[-1]
        shares = targets * (1 - smoothing) + smoothing / classes
        return -(weight * shares * log_p[..., :classes]).sum(-1).mean()
    counted = targets >= 0
    held = targets.clamp_min(0)
    own = counted * (weight[held] if weights else torch.ones_like(log_p[..., 0]))
    hard = -(own * log_p.gather(-1, held.unsqueeze(-1))[..., 0]).sum()
    spread = -(counted * (weight * log_p).sum(-1)).sum() / log_p.shape[-1]
    return ((1 - smoothing) * hard + smoothing * spread) / own.sum()


def nll(log_p: Tensor, targets: Tensor) -> Tensor:
    """Of a model that returns log-probabilities."""
    return _entropy(_classes_last(log_p, targets), targets)


def nll_on_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """The negative logit of the true class: cross-entropy without its softmax."""
    logits = _in_full(logits)
    if targets.dim() == logits.dim():
        return -(targets * logits).sum(-1).mean()
    return -logits.gather(-1, targets.unsqueeze(-1)).mean()


def _entropy(log_p: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() == log_p.dim():  # a network of several rounds has one output more, which is no class
        return -(targets * log_p[..., : targets.shape[-1]]).sum(-1).mean()
    if targets.dim() < 2:
        return -log_p.gather(-1, targets.unsqueeze(-1)).mean()
    counted = targets >= 0
    picked = log_p.gather(-1, targets.clamp_min(0).unsqueeze(-1))[..., 0]
    return -(picked * counted).sum() / counted.sum()


def ctc(logits: Tensor, targets: Tensor) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006), as `torch.nn.functional.ctc_loss` averages it.

    Logits or log-probabilities (N, steps, C), class 0 is the blank. Labels (N, L), those below 0 at the end are none;
    or shares of the classes (N, L, C), zeros for none. It can be differentiated as often as one likes. A sequence that
    the steps have no room for costs about 1e30, and not infinity.
    """
    log_p = torch.log_softmax(_in_full(logits), -1)  # changes nothing about log-probabilities
    if targets.dim() == logits.dim():
        some, shares = targets.sum(-1) > 0.5, targets
        emitted = torch.logsumexp(log_p[:, :, None] + _log(shares)[:, None], -1)  # (N, steps, L)
        differ = 1 - (shares[:, 1:] * shares[:, :-1]).sum(-1)
    else:
        some, held = targets >= 0, targets.clamp_min(0)
        emitted = log_p.gather(-1, held[:, None].expand(-1, log_p.shape[1], -1))
        differ = (held[:, 1:] != held[:, :-1]).to(log_p)
    lengths = some.sum(1)
    whole = _all_ways(log_p[..., BLANK], emitted, _log(differ), lengths)
    return (-whole / lengths.clamp_min(1)).mean()


def _log(shares: Tensor) -> Tensor:
    """Their logarithm, and hardly any slope where a share is zero."""
    return torch.where(shares > 0, shares.clamp_min(torch.finfo(shares.dtype).tiny).log(), _NEVER)


def _all_ways(blank: Tensor, emitted: Tensor, leap: Tensor, lengths: Tensor) -> Tensor:
    """(N,) log-probability of the labels over all ways to place them among blanks, by the forward recursion.

    From that of a blank (N, S) and of each label (N, S, L) at each step, and of two neighbours (N, L - 1) that no blank
    need stand between. Place 2k holds a blank, place 2k + 1 label k.
    """
    count, labels = emitted.shape[0], emitted.shape[2]
    places = torch.arange(2 * labels + 1, device=blank.device)
    at_label = places % 2 == 1
    labelled = emitted[..., (places // 2).clamp_max(max(labels - 1, 0))] if labels else blank[..., None]
    of_place = torch.where(at_label, labelled, blank[..., None])  # (N, S, 2L + 1)
    never = torch.full((count, 2), _NEVER, dtype=blank.dtype, device=blank.device)
    steps = torch.stack((torch.full_like(leap, _NEVER), leap), -1).flatten(1)  # of places 2, 3, 4, 5, ...
    skip = torch.cat((never, steps, never[:, :1]), 1)[:, : len(places)]
    found = torch.where(places < 2, of_place[:, 0], _NEVER)
    for step in range(1, blank.shape[1]):
        one_on = torch.cat((never[:, :1], found[:, :-1]), 1)
        two_on = torch.cat((never, found[:, :-2]), 1)[:, : len(places)] + skip
        found = torch.logsumexp(torch.stack((found, one_on, two_on.clamp_min(_NEVER))), 0) + of_place[:, step]
        found = found.clamp_min(_NEVER)
    ends = torch.stack((2 * lengths, (2 * lengths - 1).clamp_min(0)), 1)
    last = found.gather(1, ends)
    last = torch.stack((last[:, 0], torch.where(lengths > 0, last[:, 1], _NEVER)), 1)
    return torch.logsumexp(last, 1)


def _numbers(distance: Callable[[Tensor, Tensor], Tensor], output: Tensor, targets: Tensor) -> Tensor:
    """Outputs (N, 1) against targets (N,) are compared as (N,)."""
    output = _in_full(output)
    if output.dim() == targets.dim() + 1 and output.shape[-1] == 1:
        output = output[..., 0]
    return distance(output, targets.to(output.dtype))


LOSSES: Mapping[str, Loss] = {
    CROSS_ENTROPY: cross_entropy,
    NLL_ON_LOGITS: nll_on_logits,
    "nll": nll,
    "bce": partial(_numbers, F.binary_cross_entropy_with_logits),
    "mse": partial(_numbers, F.mse_loss),
    "l1": partial(_numbers, F.l1_loss),
    "huber": partial(_numbers, F.huber_loss),
    "ctc": ctc,
}


@dataclass(frozen=True)
class Scaled:
    """A loss times a factor, so that the small gradients of float16 do not vanish."""

    loss: Loss
    factor: float

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        return self.factor * self.loss(output, targets).float()


def averaged_over(loss: Loss, targets: Tensor) -> Tensor | None:
    """By what the mean of this loss divides, for each trial of targets (T, N, ...): (T,). None where nobody knows.

    A mean over a batch is the mean over its parts, weighed by this.
    """
    if isinstance(loss, Scaled):
        return averaged_over(loss.loss, targets)
    samples = torch.full(targets.shape[:1], targets.shape[1], dtype=torch.float64, device=targets.device)
    weighted = isinstance(loss, partial) and loss.func is weighted_cross_entropy
    if not weighted and loss not in LOSSES.values():
        return None
    labels = not targets.is_floating_point()
    if weighted and labels and (weights := loss.keywords["weights"]):  # type: ignore[attr-defined]
        each = torch.tensor(weights, dtype=torch.float64, device=targets.device)[targets.clamp_min(0)]
        return torch.where(targets >= 0, each, 0).flatten(1).sum(1)
    if (weighted or loss in (cross_entropy, nll)) and labels and targets.dim() > 2:
        return (targets >= 0).flatten(1).sum(1).double()
    return samples


def loss_of(local: Client) -> Loss:
    """The loss that a client's settings name, the user's own function included."""
    if catalog.is_own(local.loss):
        return partial(_own, local.loss, catalog.own(local.loss))
    if not local.label_smoothing and not local.class_weights:
        return LOSSES[local.loss]
    if local.loss != CROSS_ENTROPY:
        do = "leave label_smoothing and class_weights out"
        raise BadInput("local: loss", allowed=f"{CROSS_ENTROPY} with smoothing or weights", got=local.loss, do=do)
    return partial(weighted_cross_entropy, smoothing=local.label_smoothing, weights=local.weights_of_classes)


def _own(name: str, function: Callable[[Any, Any], Any], output: Tensor, targets: Tensor) -> Tensor:
    loss = function(output, targets.to(output.dtype) if targets.is_floating_point() else targets)
    if not isinstance(loss, Tensor) or loss.dim():
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise BadInput(f"loss {name!r}", allowed="one number, a mean over the samples", got=got, do="average it")
    return loss

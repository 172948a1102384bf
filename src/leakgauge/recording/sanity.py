"""Is the update what the scenario says it is? What an update shows of that without the batch behind it.

Optimisers that divide every entry by its own size leave entries of about one size, in all tensors; SGD leaves a few
large ones among many small ones. How even they are under the claim is seen on public or made-up batches.

Sign, scale, learning rate and loss are read off the last layer's bias.
For cross-entropy the bias gradient is the mean prediction over the batch minus the share of each label. So its entries
sum to zero; none is larger than a prediction; what is negative adds up to at most 1; and for fewer samples than classes
to no less than what the network predicts for the classes that are not there. The network is known, so its predictions
on public or made-up inputs bound the batch's. An update that was scaled, turned round or taken for another kind breaks
one of these. The bounds are loose on a trained network and for large batches: what fits is then not proven.

A declared defense leaves marks on any update, which are seen on made-up batches: noise in the last layer of a
cross-entropy, whose columns add up to zero without it; zeros of pruning and masks; few sizes of entries of compression.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from leakgauge.client.chain import client_step
from leakgauge.client.gradient_behind import gradient_scale, pulled_by_decay
from leakgauge.client.summed import behind_one, seen_step
from leakgauge.engine.randomness import derived_seed, generator
from leakgauge.errors import BadInput, LeakgaugeError, NotApplicable
from leakgauge.matching.last_layer import Clues, clues_of
from leakgauge.types import (
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    QUANTITIES,
    SEVERAL_CLASSES,
    Batch,
    Client,
    DataSpec,
    Defense,
    Fact,
    Observation,
    SharedUpdate,
)
from leakgauge.types.triage import CAUTION, INFO, OPTIMISER, WRONG, Clue

_NOISY = 1e-3  # columns of the last layer may miss zero by this share of their entries; rounding is far below it
_MARGIN, _PLUS = 1.2, 0.02  # a batch may be predicted this much beyond what the probe shows
_LOOSE = 0.5  # and leave this share of the least that the probe implies
_ROUND = 1e-3  # how near to -1 the entries of a loss without its softmax add up
_MADE_UP = 4  # batches
_QUIETER = 100.0  # times less noise than the least of them
_LEAST = 1e-6  # of an entry: rounding
_FEWER_ZEROS = 0.2  # of all entries
_MORE_SIZES = 8.0  # times the most of them
_EVEN, _UNEVEN = 0.55, 0.45  # how even entries are at least under rules that divide by sizes, and at most under SGD
_APART = 0.15  # and so far from what the claim gives
_SOME = 64  # entries that are not zero, to say how even they are
_COUNTS = 2e-3  # of the average entry: smaller ones are rounding, or decay alone
_SCALE = 6.0  # times as large or small as under the claim, where sizes follow from the rate
_COUNTED = 20_000  # entries of the largest tensor


@dataclass(frozen=True)
class _Bounds:
    """What the bias gradient of a batch can be, by the predictions of the known network."""

    highest: Tensor  # (C,) of any entry
    least: float  # of what the negative entries add up to

    def fit(self, bias: Tensor) -> bool:
        """Can this be the bias gradient (C,) of a mean over the batch?"""
        negative = float(-bias.clamp_max(0).sum())
        return bool((bias <= self.highest).all()) and self.least <= negative <= 1 + _PLUS


def sanity(observation: Observation, *, claimed: bool = False) -> list[Clue]:
    """One clue on the loss, one on sign and scale; no result where the last layer cannot be read.

    With `claimed`, for a saved update without a defense, one on the optimiser before.
    """
    return [*(_optimiser(observation) if claimed else []), *_last_layer(observation)]


def doubt_in(clues: Sequence[Clue]) -> str:
    """Why the update is not what was claimed, where no batch is at hand to prove it; empty if nothing speaks for it."""
    return next((f"{c.value}; {c.meaning}" for c in clues if c.id == OPTIMISER and c.severity == CAUTION), "")


def _last_layer(observation: Observation) -> list[Clue]:
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    untested = partial(Clue, "claims", "sign and scale", "not tested", severity=INFO)
    if local.loss not in (CROSS_ENTROPY, NLL_ON_LOGITS):
        return [untested(f"nothing is known of what {local.loss} leaves in the last bias")]
    try:
        clues = clues_of(observation)
    except NotApplicable as error:
        return [untested(str(error))]
    if not clues.has_bias:
        return [untested("the last layer has no bias to read them off")]
    loss = _loss(clues, local)
    if local.kind_of_loss != CROSS_ENTROPY or loss.severity == WRONG:
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


def _loss(clues: Clues, local: Client) -> Clue:
    clue = partial(Clue, "loss", "loss")
    noise, total = noise_share(clues), float(clues.bias.sum(1).mean())
    plain = local.kind_of_loss == CROSS_ENTROPY
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


def _claims(observation: Observation, clues: Clues, local: Client, clean: bool) -> Clue:
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


def _mistakes(observation: Observation, local: Client) -> list[tuple[str, float]]:
    """What people do wrong, and the factor that puts it right."""
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    found = [("the opposite sign", -1.0)]
    if samples > 1 and local.kind == "fedsgd":  # of a weight difference the rate is wrong far more often
        found.append((f"a sum over the {samples} samples (divide by {samples})", 1 / samples))
    if local.kind == "fedavg" and not local.adaptive:
        found.append(("a gradient (say --local kind=fedsgd)", gradient_scale(local, samples)))
    return found


def _rate(bounds: _Bounds, bias: Tensor, local: Client) -> str:
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


# --- how even the entries are ---------------------------------------------------------------------------


def _optimiser(observation: Observation) -> list[Clue]:
    """Are the entries as even, and where the rate sets their size as large, as the claimed optimiser leaves them?"""
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    clue = partial(Clue, OPTIMISER, "optimiser")
    try:
        expected = [_evenness(o, local) for o in _made_up(observation, ())]
    except (LeakgaugeError, RuntimeError, ValueError) as error:
        return [clue("not tested", f"the claimed training cannot be simulated here: {error}", INFO)]
    seen = [_evenness(observation.take([t]), local) for t in range(observation.trials)]
    if any(entries < _SOME for _, _, entries in (*seen, *expected)):
        return [clue("not tested", "too few entries are not zero", INFO)]
    even = min(seen)[0], max(seen)[0]
    least, most = min(expected)[0], max(expected)[0]
    value = f"entries are even to {even[1]:.2f} (1: all of one size), {least:.2f} to {most:.2f} under {local.optimizer}"
    wrong, rule = "the update is not what was claimed", "kind=fedavg,optimizer=adam, adamw, rmsprop or adagrad"
    if even[1] > max(_EVEN, most + _APART):
        return [clue(value, f"{wrong}: the client divides gradients by their sizes; say --local {rule}", CAUTION)]
    if local.adaptive and even[0] < min(_UNEVEN, least - _APART):
        return [clue(value, f"{wrong}: the client does not divide gradients by their sizes, as sgd does not", CAUTION)]
    if local.adaptive:
        sizes, usual = sorted(s for _, s, _ in seen), sorted(s for _, s, _ in expected)
        if sizes[0] * _SCALE < usual[0] or sizes[-1] > _SCALE * usual[-1]:
            rule = f"{local.optimizer} at a rate of {local.lr:g}"
            value = f"entries of {sizes[-1]:.1g} on average, {usual[-1]:.1g} under {rule}"
            return [clue(value, f"{wrong}: check the optimiser, its rate and the number of steps", CAUTION)]
    return [clue(value, f"fits {local.optimizer}, as far as it can be seen without the batch", INFO)]


def _evenness(observation: Observation, local: Client) -> tuple[float, float, int]:
    """Squared mean size of entries over their mean square, the root of that one, and how many entries count."""
    start = {n: p.detach() for n, p in observation.model.named_parameters()}
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    moved = observation.update.kind == "weight_delta"
    sizes = torch.cat(
        [
            (t[0].double() - (pulled_by_decay(start[n].to(t), local, samples) if moved else 0)).abs().flatten()
            for n, t in observation.update.tensors.items()
        ]
    )
    sizes = sizes[sizes > _COUNTS * sizes.square().mean().sqrt()]
    if not len(sizes):
        return 0.0, 0.0, 0
    square = float(sizes.square().mean())
    return float(sizes.mean()) ** 2 / square, square**0.5, len(sizes)


# --- the marks of a declared defense --------------------------------------------------------------------


@dataclass(frozen=True)
class _Marks:
    noise: float | None  # in the last layer, as a share of its entries; None where it cannot be read
    zeros: float  # share of all entries
    sizes: int  # different ones in the largest tensor


def refuse_unmarked(observation: Observation, defenses: Sequence[Defense], declared: str) -> None:
    """For a saved update: raise BadInput where it cannot have gone through the defenses. `declared` names them."""
    if not defenses or behind_one(defenses) > 1:
        return
    try:
        expected, plain = ([_marks(o) for o in _made_up(observation, some)] for some in (defenses, ()))
    except (LeakgaugeError, RuntimeError, ValueError):  # what cannot be simulated leaves no expectation
        return
    for trial in range(observation.trials):
        if (how := _contradiction(_marks(observation.take([trial])), expected, plain)) is not None:
            what = "update" + (f" of client {trial}" if observation.trials > 1 else "")
            do = "the declared defense was not applied: check the client, or leave it out of --defenses"
            raise BadInput(what, allowed=f"one that went through --defenses {declared}", got=how, do=do)


def _contradiction(seen: _Marks, expected: Sequence[_Marks], plain: Sequence[_Marks]) -> str | None:
    noise = [m.noise for m in expected if m.noise is not None]
    if seen.noise is not None and noise and min(noise) > _QUIETER * max(seen.noise, _LEAST):
        return f"one with noise of {seen.noise:.1g} of an entry in its last layer, where {min(noise):.1g} should be"
    # Dead units leave zeros too, in other batches others: only what the defense turns to zero of the rest is expected.
    zeros = min((m.zeros - p.zeros) / max(1 - p.zeros, 1e-9) for m, p in zip(expected, plain, strict=True))
    if zeros - seen.zeros > _FEWER_ZEROS:
        return f"one in which {seen.zeros:.0%} of the entries are zero, where {zeros:.0%} should be"
    sizes = max(m.sizes for m in expected)
    if min(seen.sizes, *(p.sizes for p in plain)) > _MORE_SIZES * sizes:  # dead units alone leave few sizes too
        return f"one with {seen.sizes:,} different sizes of entries, where {sizes:,} should be"
    return None


def _made_up(observation: Observation, defenses: Sequence[Defense]) -> list[Observation]:
    """What the same client would share of noise with labels drawn by chance."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    g, like = generator(0, "made-up batches"), next(observation.model.parameters())
    if observation.knows(Fact.PUBLIC_DATA):
        public: Batch = observation.fact(Fact.PUBLIC_DATA)
        rows = torch.randint(public.labels.shape[1], (_MADE_UP, samples), generator=g).to(like.device)
        inputs, labels = public.inputs[0, rows].to(like), public.labels[0, rows]
    else:
        inputs = torch.rand((_MADE_UP, samples, *data.shape), generator=g).to(like)
        labels = data.draw_targets((_MADE_UP, samples), g).to(like.device)
    step = seen_step(client_step(observation.fact(Fact.LOCAL_TRAINING)), *defenses)
    shared = step(observation.model, Batch(inputs, labels), [derived_seed(0, f"made up/{k}") for k in range(_MADE_UP)])
    kept = {name: t.detach() for name, t in shared.tensors.items() if name in observation.update.tensors}
    every = SharedUpdate(shared.kind, kept)
    return [dataclasses.replace(observation, update=every.take([k])) for k in range(_MADE_UP)]


def _noise(data: DataSpec, samples: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs of noise, and targets of their kind by chance."""
    inputs, shape = torch.rand((_MADE_UP, samples, *data.shape), generator=g), (_MADE_UP, samples, *data.target_shape)
    if data.target == SEVERAL_CLASSES:
        return inputs, torch.randint(2, shape, generator=g).float()
    if data.target == QUANTITIES:
        return inputs, torch.rand(shape, generator=g)
    return inputs, torch.randint(data.classes, shape, generator=g)


def _marks(observation: Observation) -> _Marks:
    try:
        clues = clues_of(observation, public=False)
        noise = noise_share(clues) if clues.has_bias else None
    except NotApplicable:
        noise = None
    tensors = observation.update.tensors
    entries = sum(t.numel() for t in tensors.values())
    largest = max(tensors.values(), key=lambda t: t.numel()).flatten()
    some = largest[largest != 0][:_COUNTED].abs()
    zeros = sum(int((t == 0).sum()) for t in tensors.values()) / max(1, entries)
    return _Marks(noise, zeros, len(torch.unique(some)))

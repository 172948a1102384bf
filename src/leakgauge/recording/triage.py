"""What an architecture and an update allow, found in seconds and before any attack: where exact recovery is possible.

Nothing is recovered here, and nothing of the private batch is used. Each check gives one clue; what cannot be checked
says so. `leakgauge.recording.sanity` adds whether the update is what it is claimed to be.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.attacks.patch_embedding import found_rows, solved_rows
from leakgauge.attacks.peeling import BehindFirstLayer, coefficient_space
from leakgauge.attacks.rank_one import IS_ZERO, found_map
from leakgauge.attacks.rgap import rank_report
from leakgauge.client.chain import prepared
from leakgauge.client.fedavg import local_steps
from leakgauge.client.gradient_behind import AVERAGE, DIRECTIONS, EXACT, SIGNS
from leakgauge.client.observe import observe
from leakgauge.engine.gradients import working_model
from leakgauge.errors import NotApplicable
from leakgauge.matching.last_layer import CANNOT, clues_of
from leakgauge.matching.targets import read_targets
from leakgauge.matching.updates import example_input, observed_gradient, read_gradient
from leakgauge.models.structure import first_linear
from leakgauge.recording.sanity import sanity
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, ONE_CLASS, UNDEFENDED, Client, DataSpec, Fact, Observation
from leakgauge.types.triage import CAUTION, EXPOSED, INFO, WRONG, Clue

_COUNTED = 1024  # numbers in a sample up to which ranks are counted without being asked: a second or less
_SPARSE = 0.5  # scattered zeros from which an update counts as compressed
_FEW = 256  # values up to which it counts as quantised
_UNEXPLAINED = 1e-2  # of a gradient, from which a closed form is not exact
_MENTIONED = 1e-3  # share of the patches that is left open
_LOOKED_AT = 50_000  # entries of the largest tensor that are counted
_RULES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "adagrad": "Adagrad"}
_LEFT = {  # of the gradient, by how it follows from a weight difference
    EXACT: ("the gradient follows exactly: every attack can use it", INFO),
    AVERAGE: (
        "the average gradient of the steps follows; the weights moved between them, so that closed forms are the less "
        "exact the further they moved, and attacks that replay the steps (dlg) are not",
        CAUTION,
    ),
    SIGNS: (
        "signs of the first layer's gradient remain, sizes do not: ratios and label counts are lost, attacks that "
        "match signs or replay the step (dlg, inverting-gradients) work",
        CAUTION,
    ),
    DIRECTIONS: (
        "signs of the first layer's gradient remain, averaged over the steps, sizes do not: ratios and label counts "
        "are lost, attacks that match directions or replay the steps (dlg, inverting-gradients) work",
        CAUTION,
    ),
}
_SAME = 1e-5  # relative: a norm this near to a round number was put there


def triage(observation: Observation, *, ranks: bool = True, claimed: bool = False) -> tuple[Clue, ...]:
    """All clues, what is wrong first and what is exposed next. Without `ranks` large ones are not counted.

    `claimed` is for saved updates that no defense changed: was the client's optimiser the one that is claimed?
    """
    checks = (
        partial(sanity, claimed=claimed),
        _client,
        _first_layer,
        _closed_forms,
        _labels,
        _batchnorm,
        partial(_ranks, asked=ranks),
        _entries,
    )
    clues = [clue for check in checks for clue in check(observation)]
    return tuple(sorted(clues, key=lambda clue: (WRONG, EXPOSED, CAUTION, INFO).index(clue.severity)))


def triage_of(setup: Setup) -> tuple[Clue, ...]:
    """Of the first victim's undefended update, as an attacker of the scenario would see it; of all in a blind audit."""
    seen = first_observation(setup, (0,) if setup.scored else range(setup.victims.trials))
    return believed(setup, triage(seen, ranks=False, claimed=is_claim(setup)))


def believed(setup: Setup, clues: Sequence[Clue]) -> tuple[Clue, ...]:
    """The clues, of which none is wrong where the batch at hand gave this very update by the claimed step."""
    origin = setup.victims.belonging
    if origin is None or not origin.sure:
        return tuple(clues)
    why = "unusual, but the batch at hand gives this very update by the step that is claimed"
    return tuple(dataclasses.replace(c, severity=INFO, meaning=why) if c.severity == WRONG else c for c in clues)


def is_claim(setup: Setup) -> bool:
    """Is the client's training claimed, and the update a saved one that shows whether it is so?"""
    return setup.victims.shared is not None and not any(d != UNDEFENDED for d in setup.scenario.defenses)


def first_observation(setup: Setup, trials: Sequence[int] = (0,)) -> Observation:
    """What an attacker of the scenario sees of some victims without a defense, or of what was saved."""
    model, threat = setup.model, setup.threat_model
    if setup.victims.shared is not None:  # what was declared is in the update, and may be in the network
        model = prepared(model, *parse_chain(setup.scenario.defenses[0] if setup.scenario.defenses else UNDEFENDED))
    facts = setup.facts(model, setup.batch.take(trials) if setup.scored else None, threat.facts)
    return observe(model, setup.update((), model, trials=trials), threat, facts, setup.scenario.shared_layers)


def _client(observation: Observation) -> list[Clue]:
    """What the client's optimiser leaves of its gradients."""
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    if local.kind == "fedsgd":
        return []
    steps, rule = local_steps(observation.fact(Fact.NUM_SAMPLES), local), _RULES[local.optimizer]
    momentum = f" with momentum {local.momentum:g}" if local.momentum else ""
    value = f"{steps:,} {rule} step{'' if steps == 1 else 's'}{momentum}"
    value += f" of {local.fit}, as it is declared" if local.fit else ""
    meaning, severity = _LEFT[read_gradient(observation).quality]
    return [Clue("client", "client's training", value, meaning, severity)]


def _first_layer(observation: Observation) -> list[Clue]:
    layer = first_linear(observation.model, example_input(observation))
    clue = partial(Clue, "first-layer", "first layer")
    if layer is None:
        meaning = "no ratio of a layer's gradients to take; for other closed forms see the next line"
        return [clue("not an nn.Linear on the raw input", meaning, INFO)]
    try:
        gradient = observed_gradient(observation)
    except NotApplicable as error:
        return [clue(f"{layer}, without the sizes of its gradient", str(error), INFO)]
    weight, bias = gradient.get(f"{layer}.weight"), gradient.get(f"{layer}.bias")
    if weight is None or bias is None:
        return [clue(f"{layer}, without weight or bias in the update", "no ratio to take", INFO)]
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    units, entries = weight.shape[1:]
    size = f"{layer}: {entries:,} to {units:,} units, {samples:,} sample{'' if samples == 1 else 's'}"
    if samples == 1:
        return [clue(size, "its weight gradient over its bias gradient is the input: linear", EXPOSED)]
    still = working_model(observation.model, local.batchnorm).double().requires_grad_(False)
    if not BehindFirstLayer(still, layer, data.shape, samples, local.kind_of_loss).rectified():
        return [clue(size, "ratios are mixtures of the samples (linear); no ReLU tells them apart", CAUTION)]
    if local.kind == "fedavg" and local_steps(samples, local) > 1:
        meaning = "a ReLU follows, but several local steps are mixed: ratios are mixtures of the samples"
        return [clue(size, meaning, CAUTION)]
    directions = _directions(weight, bias, samples)
    meaning = "a ReLU follows: peeling recovers batches exactly where nothing was added to it or left out"
    return [clue(size, meaning, directions.severity), directions]


def _directions(weight: Tensor, bias: Tensor, samples: int) -> Clue:
    """Are there as many directions in the layer's gradient as samples? Then nothing was added to it."""
    units, entries = weight.shape[1:]
    clue = partial(Clue, "directions", "directions in the first layer")
    found = [coefficient_space(w, b, samples) for w, b in zip(weight.double(), bias.double(), strict=True)]
    if all(space is not None for space in found):
        meaning = "one for each sample and nothing else: no noise, and certificates hold"
        return clue(f"{samples:,} for {samples:,} samples", meaning, EXPOSED)
    if samples >= min(units, entries):
        meaning = f"no more than {min(units, entries + 1):,} can be told apart: certificates need two units that agree"
        return clue(f"fewer than the {samples:,} samples", meaning, CAUTION)
    meaning = (
        "noise or compression, samples that are there twice, or another batch size than claimed: peeling gets less"
    )
    return clue(f"not {samples:,}, the samples claimed", meaning, CAUTION)


def _closed_forms(observation: Observation) -> list[Clue]:
    """Tensors that give one sample away by the rank or the residual of their gradients, whatever layers they are of."""
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    alone = dataclasses.replace(observation, revealed={**observation.revealed, Fact.NUM_SAMPLES: 1})
    clues = []
    for id_, look in (("rank-one", _rank_one), ("patch-embedding", _patch_embedding)):
        clue = partial(Clue, id_, "closed forms")
        try:
            seen, left = look(alone)
        except NotApplicable as error:
            if IS_ZERO in str(error):
                clues.append(clue("a gradient of zeros", str(error), CAUTION))
            continue
        value = f"{seen}; {left:.1g} of the gradient is not explained"
        if samples > 1:
            meaning = f"one sample would be exact ({id_}); {samples:,} are summed here, which hides each of them"
            clues.append(clue(seen, meaning, CAUTION))
        elif left > _UNEXPLAINED:
            meaning = f"{id_} would be exact, but noise, compression or more samples than claimed are in the way"
            clues.append(clue(value, meaning, CAUTION))
        else:
            clues.append(clue(value, f"the sample follows without a search: {id_}", EXPOSED))
    if clues:
        return clues
    looked_at = f"{len(observation.update.tensors):,} tensors looked at"
    value = f"{looked_at}: none is one product with the sample, no two solve it"
    meaning = "none of the closed forms known here applies; attacks have to search (dlg, inverting-gradients)"
    return [Clue("closed-forms", "closed forms", value, meaning, INFO)]


def _rank_one(alone: Observation) -> tuple[str, float]:
    found = found_map(alone)
    _, left = found.direction({n: t.double() for n, t in observed_gradient(alone).items()})
    missing = "" if found.returned else ", but for its length"
    return f"the gradient of {found.name} is one product with the sample{missing}", float(left.max())


def _patch_embedding(alone: Observation) -> tuple[str, float]:
    found = found_rows(alone)
    solved = solved_rows(alone, found)
    left = float(solved.open.max())
    still = f", {left:.0%} of them left open" if left > _MENTIONED else ""
    seen = f"{found.positions} says what each patch got back, {found.weight} holds the patches{still}"
    return seen, float(solved.residual.max())


def _labels(observation: Observation) -> list[Clue]:
    clue = partial(Clue, "labels", "labels")
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    try:
        if data.target != ONE_CLASS:
            read = read_targets(observation)
            meaning = "read off the last layer's bias, without a search (attack labels)"
            return [clue(read.words[0], meaning, EXPOSED if bool(read.sure.any()) else CAUTION)]
        if (loss := observation.fact(Fact.LOCAL_TRAINING).loss) not in (CROSS_ENTROPY, NLL_ON_LOGITS):
            return [clue("not readable", f"{CANNOT}: the rules rest on cross-entropy, and the loss is {loss}", INFO)]
        clues = clues_of(observation)
    except NotApplicable as error:
        return [clue("not readable", str(error), INFO)]
    if not clues.has_bias:
        meaning = "counted from the weight's gradient, which is less sure (attack labels)"
        return [clue("the last layer has no bias", meaning, CAUTION)]
    certain = (clues.bias < 0).sum(1).tolist()
    span = f"{min(certain)}" if min(certain) == max(certain) else f"{min(certain)} to {max(certain)}"
    meaning = "a negative entry means that the label is there; counts follow from the rest (attack labels)"
    if clues.samples == 1 and max(certain) == 1:
        meaning = "the one negative entry is the label"
    return [clue(f"{span} of {clues.bias.shape[1]} classes have a negative entry", meaning, EXPOSED)]


def _batchnorm(observation: Observation) -> list[Clue]:
    layers = [m for m in observation.model.modules() if isinstance(m, _BatchNorm)]
    if not layers:
        return []
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    meaning, severity = "fixed statistics: samples do not hide one another", CAUTION
    if local.batchnorm == "train":
        meaning = "the batch's own statistics mix its samples: attacks are weaker unless they are told them"
        severity = INFO
    return [Clue("batchnorm", "BatchNorm", f"{len(layers)} layers, {local.batchnorm} mode", meaning, severity)]


def _ranks(observation: Observation, asked: bool) -> list[Clue]:
    """R-GAP's count of equations, for one sample."""
    data: DataSpec = observation.fact(Fact.INPUT_SPEC)
    if observation.fact(Fact.NUM_SAMPLES) != 1 or (not asked and math.prod(data.shape) > _COUNTED):
        return []
    clue = partial(Clue, "ranks", "ranks")
    try:
        report = rank_report(observation.model, data)
    except NotApplicable as error:
        return [clue("not counted", str(error), INFO)]
    if short := [rank for rank in report if rank.deficient]:
        return [clue(str(short[0]), "rgap gives the solution of least norm only", INFO)]
    if any(rank.rank is None for rank in report):
        return [clue("too large to count", "rgap may or may not be exact", INFO)]
    meaning = "every layer's equations determine its input: rgap is exact"
    return [clue(f"full in all {len(report)} layers", meaning, EXPOSED)]


def _entries(observation: Observation) -> list[Clue]:
    """What the entries themselves show: zeros, few sizes, a norm that was set."""
    tensors = list(observation.update.tensors.values())
    return [_zeros(tensors), _values(tensors), _norm(tensors)]


def _zeros(tensors: Sequence[Tensor]) -> Clue:
    """Zeros that no dead unit and no black pixel explains: in a row and a column that both have other entries."""
    zeros = sum(int((t == 0).sum()) for t in tensors) / max(1, sum(t.numel() for t in tensors))
    scattered = max((_scattered(t) for t in tensors if t.dim() > 2), default=0.0)
    value = f"{zeros:.1%} of all entries, {scattered:.1%} scattered in one tensor"
    if scattered >= _SPARSE:
        return Clue("zeros", "zeros", value, "looks pruned or masked: attacks should match what is left", CAUTION)
    return Clue("zeros", "zeros", value, "as dead units and black pixels leave them", INFO)


def _scattered(tensor: Tensor) -> float:
    matrix = tensor.flatten(2) != 0  # (T, out, rest)
    here = matrix.any(2, keepdim=True) & matrix.any(1, keepdim=True)
    return float((here & ~matrix).sum() / here.sum().clamp_min(1))


def _values(tensors: Sequence[Tensor]) -> Clue:
    largest = max(tensors, key=lambda t: t.numel())[0].flatten()
    some = largest[largest != 0][:_LOOKED_AT]
    distinct = len(torch.unique(some.abs()))
    value = f"{distinct:,} sizes in {len(some):,} entries"
    if len(some) > 4 * _FEW and distinct <= _FEW:
        kind = "signs only" if distinct == 1 else "quantised"
        return Clue("values", "values", value, f"{kind}: attacks should match in the compressed domain", CAUTION)
    return Clue("values", "values", value, "not quantised", INFO)


def _norm(tensors: Sequence[Tensor]) -> Clue:
    norms = torch.stack([t.double().flatten(1).pow(2).sum(1) for t in tensors]).sum(0).sqrt()
    largest = float(norms.max())
    alike = len(norms) > 1 and float(norms.max() - norms.min()) <= _SAME * largest
    value = f"{largest:.6g}" + (f" in all {len(norms)} updates" if alike else "")
    if alike or _is_round(largest):
        return Clue("norm", "norm", value, "looks clipped: the scale of the gradient is lost", CAUTION)
    return Clue("norm", "norm", value, "no sign of clipping", INFO)


def _is_round(norm: float) -> bool:
    """1, 2 or 5 times a power of ten?"""
    if norm <= 0:
        return False
    lead = norm / 10.0 ** math.floor(math.log10(norm) + _SAME)
    return any(abs(lead - digit) <= _SAME * digit for digit in (1, 2, 5))

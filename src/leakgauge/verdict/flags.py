"""Reasons not to take a result at face value: each has an id, a reason and a remedy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from leakgauge.generators.loading import doubts_about, named_by
from leakgauge.types import Attack, Batch, Fact, Flag, Reconstruction, SharedUpdate, ThreatModel

NO_BETTER_THAN_CONTROL = "no-better-than-control"
NO_TRUTH = "no-ground-truth"
NOT_AS_CLAIMED = "not-as-claimed"

_ALL = (
    Flag(
        "labels-given",
        "the attacker was given the true labels, which no server of this kind has",
        "repeat with the threat model without '+labels'",
    ),
    Flag(
        "batchnorm-given",
        "the attacker was given the BatchNorm statistics of the private batch",
        "repeat with the threat model without '+batchnorm'",
    ),
    Flag(
        "defense-without-effect",
        "a defense is declared, but the update is exactly the undefended one",
        "check the defense's strength and its place in the chain",
    ),
    Flag(
        "objective-did-not-fall",
        "the attack's own objective ended where it began: it failed, which is not protection",
        "give it more steps or restarts, or another step length",
    ),
    Flag(
        "never-moved",
        "the attack stopped where it began, without one step: it failed, which is not protection",
        "give it a smaller threshold, more restarts or another start",
    ),
    Flag(
        "diverged",
        "the attack returned values that are not finite; they count as no claim, and the trial as failed",
        "use a line search, more restarts or a smaller step length",
    ),
    Flag(
        "no-better-than-mean",
        "the reconstruction scores no better than the mean of public data",
        "read it as nothing recovered, whatever the score",
    ),
    Flag(
        "no-better-than-decoy",
        "the same search on an update of other samples with these labels scores as well against the victim",
        "read it as nothing recovered beyond the label, whatever the picture looks like",
    ),
    Flag(
        NO_BETTER_THAN_CONTROL,
        "the recoveries are no closer to the true samples than to other private ones of the same label, neither "
        "on average nor for the closest record (permutation test, 5 %)",
        "read it as nothing recovered beyond the label; raise --trials if you expect a weak leak",
    ),
    Flag(
        "bound-exceeded",
        "more was recovered than the accounted mechanism allows: one of the bound's assumptions does not hold",
        "check that the clipping and the noise are applied, and whether a blind guess succeeds more often",
    ),
    Flag(
        "generator-saw-victims",
        "the generator was trained on samples that are attacked here: it remembers rather than recovers",
        "train it on the public part: leakgauge train generator",
    ),
    Flag(
        "generator-data-unknown",
        "nobody can say whether the generator was trained on samples that are attacked here",
        "use a generator from leakgauge train generator, which remembers what it has seen",
    ),
    Flag(
        "rank-deficient",
        "the network's layers leave fewer equations than unknowns: the input is not determined, and the answer is "
        "the one of least norm",
        "read a poor score as this attack's limit, not as protection; try inverting-gradients",
    ),
    Flag(
        "time-budget-spent",
        "the attack was stopped by its time budget: more time may recover more, and another machine gets further",
        "raise time_budget, or leave it out",
    ),
    Flag(
        "batch-only-alike",
        "the batch gives an update that is near the one under audit, nearer than other batches, but not the same: "
        "the order of mini-batches or dropout is not known, so the attacks replay the client in part wrongly",
        "say the client's training exactly with --local, or share what it drew",
    ),
    Flag(
        "batch-unproven",
        "it is not known whether the update came from this batch, so what was not recovered shows nothing",
        "check the batch and --local; where noise hides the batch, audit simulated clients instead of this update",
    ),
    Flag(
        "explained-by-others",
        "an attack found other records that give the update to the last digit: it came from another batch, or "
        "several batches give the same one, so a record that was not recovered shows nothing",
        "check that batch, weights and update belong together",
    ),
    Flag(
        NOT_AS_CLAIMED,
        "the update does not look like one of the claimed training, so attacks read it wrongly and what they did not "
        "recover shows nothing",
        "say with --local what the client runs; the triage says what speaks against the claim",
    ),
    Flag(
        NO_TRUTH,
        "the update came from a file, so nothing could be scored against the private data",
        "judge the pictures by eye, or audit a scenario whose data is available",
    ),
)
FLAGS: Mapping[str, Flag] = {flag.id: flag for flag in _ALL}


def oracle_flags(threat_model: ThreatModel) -> tuple[str, ...]:
    known = {Fact.LABELS: "labels-given", Fact.BATCHNORM_STATISTICS: "batchnorm-given"}
    return tuple(sorted(known[fact] for fact in threat_model.oracles))


def generator_flags(attack: Attack, batch: Batch) -> tuple[str, ...]:
    """For attacks that draw from a generator: may it have seen what it is to recover?"""
    spec = named_by(attack)
    return () if spec is None else doubts_about(spec, batch.inputs.flatten(0, 1))


def is_unchanged(defended: SharedUpdate, undefended: SharedUpdate) -> bool:
    """Bit for bit the same update, though a defense was declared?"""
    same_kind = defended.kind == undefended.kind and defended.tensors.keys() == undefended.tensors.keys()
    return same_kind and all(torch.equal(defended.tensors[n], t) for n, t in undefended.tensors.items())


def ran_out_of_time(attack: Attack, result: Reconstruction) -> bool:
    """Did the attack end because its time was up?"""
    budget = getattr(attack, "time_budget", None)
    return budget is not None and result.seconds >= 0.99 * budget


def never_moved(result: Reconstruction) -> Tensor:
    """(T,) bool: did a search end without a step? False for attacks that do not search."""
    return torch.zeros_like(result.steps, dtype=torch.bool) if result.trace is None else result.steps == 0


def objective_fell(result: Reconstruction) -> Tensor:
    """(T,) bool: did the own objective lose at least a tenth? True where the attack keeps no trace."""
    if result.trace is None:
        return torch.ones_like(result.objective, dtype=torch.bool)
    return result.objective < 0.9 * result.trace[:, 0]

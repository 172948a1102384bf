"""The two sides of a verdict: what was certainly recovered, and what an accounted mechanism lets nobody exceed.

Lower side: records that some attack recovered, with the least share that so many of so many show, and those that an
attack proved right by itself. Upper side: under mu-GDP nobody succeeds more often than Phi(Phi^-1(kappa) + mu), where
kappa is the success of a blind guess. Between the two nothing is known, and the verdict says so.

Which mu. The attacker sees updates of someone who is known to take part, so sampling hides nothing: every noised step
that a sample is used in counts, mu = sqrt(steps) / sigma. For the whole training as its user stated it (sampling rate
and number of steps), the accountant's curve of (epsilon, delta) is used instead, or mu = sqrt(rounds) / sigma where q
is 1. Nothing here rests on a limit theorem. A chain of several defenses gets no bound: one that mixes samples or
repeats steps would change what the noise covers.

Which kappa. As many pictures as the update has records are chosen on public data: of the mean, the class means and some
samples, greedily those that together meet the criterion for most other public samples. Then they are tried on private
samples that nobody attacks. A record counts as guessed if any of the pictures meets the criterion, which is generous to
the guess. A cleverer guess may exist: kappa is that of the best we know, with its upper confidence limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.defenses.accounting import Accounted, reconstruction_bound, reconstruction_bound_of
from leakgauge.metrics.criterion import Criterion, criterion_of
from leakgauge.metrics.intervals import at_least, at_most
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import Setup
from leakgauge.types import Batch, Client, DataSpec, Defense, Fact, LowerSide, Rate, TrainingBound, UpperSide

NOT_ACCOUNTED = "nothing in this configuration is accounted"
_PROTECTED = 0.1  # what a guarantee may add to a blind guess and still be called protection: one record in ten
_TYPICAL, _DRAWN = 8, 16  # public samples that are tried as guesses: nearest to the mean, and any
_TRIED_ON = 160  # public samples that guesses are chosen by
_MEASURED_ON = 500  # private samples that they are measured on


def upper_sides(setup: Setup, configurations: Sequence[str]) -> dict[str, UpperSide]:
    """What nobody can exceed, per configuration; the blind guess is measured only where a bound needs it."""
    chains = {c: parse_chain(c) for c in configurations}
    kappa = None
    if any(_accounted_mechanism(chain)[0] is not None for chain in chains.values()):
        knows = Fact.LABELS in setup.threat_model.facts
        kappa = blind_success(setup.data, setup.public, setup.others, setup.scenario.batch_size, by_label=knows)
    return {c: upper_side(chain, setup.scenario.local, kappa) for c, chain in chains.items()}


def upper_side(defenses: Sequence[Defense], local: Client, kappa: Rate | None) -> UpperSide:
    """What nobody can exceed, or why there is no such limit."""
    mechanism, why = _accounted_mechanism(defenses)
    if mechanism is None:
        return UpperSide(why=why)
    used = local.seen * (local.epochs if mechanism.unit == "sample" else 1)
    mu = mechanism.mu(used)
    if mu is None:
        return UpperSide(why=f"{mechanism.name} adds no accounted noise as it is set")
    if kappa is None:
        why = "the success of a blind guess could not be measured: there are no public or no other samples"
        return UpperSide(why=why)
    training, gamma = _over_training(mechanism, kappa.high), reconstruction_bound(mu, kappa.high)
    return UpperSide(True, gamma, mu, used, mechanism.unit, kappa, training)


def _accounted_mechanism(defenses: Sequence[Defense]) -> tuple[Accounted | None, str]:
    """The one defense whose noise is accounted, if it stands alone; else why there is none."""
    found = [d for d in defenses if isinstance(d, Accounted)]
    if not found:
        return None, NOT_ACCOUNTED
    if len(defenses) > 1:
        return None, "other defenses stand in the chain, and the accounting does not cover what they change"
    return found[0], ""


def _over_training(mechanism: Accounted, kappa: float) -> TrainingBound | None:
    """The bound for all rounds as stated; None where they are not."""
    if not (mechanism.q and mechanism.rounds):
        return None
    if mechanism.q == 1:
        mu = mechanism.mu(mechanism.rounds)
        assert mu is not None  # `upper_side` found its noise
        return TrainingBound(reconstruction_bound(mu, kappa), f"mu = {mu:.3g}, {_steps(mechanism.rounds)}")
    gamma = reconstruction_bound_of(mechanism.promises(), kappa)
    return TrainingBound(gamma, f"by the {mechanism.accountant} accountant, {_steps(mechanism.rounds)}")


def lower_side(recovered: int, records: int, certified: int | None) -> LowerSide:
    """Records that some attack recovered, and what share of all records that shows at the least (95 %)."""
    return LowerSide(recovered, records, at_least(recovered, records) if records else 0.0, certified)


def standing(leaks: bool, upper: UpperSide, undecided: int = 0) -> str:
    """`leaks`, `protected` by a guarantee that is worth the name, or `unknown`, as where a record is undecided."""
    if leaks:
        return "leaks"
    if undecided or upper.gamma is None or upper.kappa is None:
        return "unknown"
    return "protected" if upper.gamma - upper.kappa.high <= _PROTECTED else "unknown"


def contradicted(lower: LowerSide, upper: UpperSide) -> bool:
    """Is more shown to be recovered than the guarantee allows? Then one of its assumptions does not hold."""
    return upper.gamma is not None and lower.at_least > upper.gamma


def both_sides(lower: LowerSide, upper: UpperSide) -> str:
    """The two sides and what lies between them, in words."""
    shown = "No record was shown to be recoverable"
    if lower.recovered:
        shown = f"At least {_percent(lower.at_least)} of records are shown to be recoverable (95 %)"
    if lower.certified:
        one = lower.certified == 1
        proven = "1 recovery carries a proof of its" if one else f"{lower.certified} recoveries carry a proof of their"
        shown += f"; {proven} own"
    if upper.gamma is None or upper.kappa is None or upper.mu is None or upper.steps is None:
        return f"{shown}. No guarantee: {upper.why}. All above {_percent(lower.at_least)} is unknown."
    kappa = upper.kappa
    text = (
        f"{shown}. Guaranteed: nobody recovers more than {_percent(upper.gamma)} from what is seen here (mu = "
        f"{upper.mu:.3g} per {upper.unit}, {_steps(upper.steps)}), if a blind guess succeeds for at most "
        f"{_percent(kappa.high)} (measured: {kappa.recovered} of {kappa.records})."
    )
    if upper.training:
        text += f" Over the stated training: {_percent(upper.training.gamma)} ({upper.training.how})."
    if contradicted(lower, upper):
        return f"{text} More was recovered than the guarantee allows: one of its assumptions does not hold."
    return f"{text} What lies between {_percent(lower.at_least)} and {_percent(upper.gamma)} is unknown."


def _steps(count: int) -> str:
    return "one noised step" if count == 1 else f"{count} noised steps"


def _percent(share: float) -> str:
    """Two digits; never rounds a few to none."""
    return "<0.1 %" if 0 < share < 0.001 else f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def blind_success(
    data: DataSpec, public: Batch | None, private: Batch | None, guesses: int, *, by_label: bool = False
) -> Rate | None:
    """The share of private samples that `guesses` public pictures hit; `high` is the upper end of its 95 % interval.

    `by_label` lets the guesser know each label, as a threat model may. None without samples to choose or measure by.
    """
    if public is None or private is None:
        return None
    rule = criterion_of(data)
    pictures, labels = _pictures(public)
    if not by_label:
        labels = torch.full_like(labels, -1)
    hits = _hits(rule, pictures, labels, Batch(public.inputs[:, :_TRIED_ON], public.classes[:, :_TRIED_ON]), data)
    chosen = _greedy(hits, labels, guesses)
    held = Batch(private.inputs[:, :_MEASURED_ON], private.classes[:, :_MEASURED_ON])
    found = _hits(rule, pictures[chosen], labels[chosen], held, data)
    k, n = int(found.any(0).sum()), found.shape[1]
    return Rate(k / n, 0.0, at_most(k, n), k, n, str(rule))


def _pictures(public: Batch) -> tuple[Tensor, Tensor]:
    """Guesses (G, *shape) and the label each is for; -1 stands for any."""
    inputs, labels = public.inputs[0], public.classes[0]
    mean, present = inputs.mean(0), torch.unique(labels)
    classes = torch.stack([inputs[labels == label].mean(0) for label in present])
    nearest = (inputs - mean).flatten(1).square().sum(1).argsort()
    typical = torch.cat([nearest[:_TYPICAL], torch.arange(min(_DRAWN, len(inputs)), device=inputs.device)])
    kinds = torch.cat([-torch.ones_like(present[:1]), present, labels[typical]])
    return torch.cat([mean[None], classes, inputs[typical]]), kinds


def _hits(rule: Criterion, pictures: Tensor, labels: Tensor, held: Batch, data: DataSpec) -> Tensor:
    """(G, P) bool: does the picture meet the criterion for the sample, and is it for the sample's label?"""
    metric, samples = catalog.get("metrics", rule.metric), held.inputs[0]
    hits = rule.hits(torch.stack([metric(samples, picture.expand_as(samples), data) for picture in pictures]))
    return hits & ((labels[:, None] == held.labels) | (labels[:, None] == -1))


def _greedy(hits: Tensor, groups: Tensor, guesses: int) -> list[int]:
    """Of each group up to `guesses` pictures, each the one that hits most samples that none before it did."""
    chosen: list[int] = []
    for group in torch.unique(groups).tolist():
        members = (groups == group).nonzero()[:, 0]
        left = torch.ones_like(hits[0])
        for _ in range(min(guesses, len(members))):
            gains = (hits[members] & left).sum(1)
            best = members[int(gains.argmax())]
            chosen.append(int(best))
            left = left & ~hits[best]
    return sorted(set(chosen))

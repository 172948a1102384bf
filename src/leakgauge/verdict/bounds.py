"""The two sides of a verdict: what was certainly recovered, and what an accounted mechanism lets nobody exceed.

Lower side: records that some attack recovered, with the least share that so many of so many show, and those that an
attack proved right by itself. Upper side: under mu-GDP nobody succeeds more often than Phi(Phi^-1(kappa) + mu), where
kappa is the success of a blind guess. Between the two nothing is known, and that is said.

Which mu. The attacker sees updates of someone who is known to take part, so sampling hides nothing: every noised step
that a sample is used in counts, mu = sqrt(steps) / sigma. For the whole training as its user stated it (sampling rate
and number of steps), the accountant's curve of (epsilon, delta) is used instead, or mu = sqrt(rounds) / sigma where q
is 1. Nothing here rests on a limit theorem.

A chain of several defenses gets no bound: one that mixes samples or repeats steps would change what the noise covers.
"""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.defenses.accounting import Accounted, reconstruction_bound, reconstruction_bound_of
from leakgauge.metrics.intervals import at_least
from leakgauge.types import Defense, LocalTraining, LowerSide, Rate, TrainingBound, UpperSide

PROTECTED = 0.1  # what a guarantee may add to a blind guess and still be called protection: one record in ten
NOT_ACCOUNTED = "nothing in this configuration is accounted"


def upper_side(defenses: Sequence[Defense], local: LocalTraining, kappa: Rate | None) -> UpperSide:
    """What nobody can exceed, or why there is no such limit."""
    mechanism, why = accounted_mechanism(defenses)
    if mechanism is None:
        return UpperSide(why=why)
    used = local.seen * (local.epochs if mechanism.unit == "sample" else 1)
    mu = mechanism.mu(used)
    if mu is None:
        return UpperSide(why=f"{mechanism.name} adds no accounted noise as it is set")
    if kappa is None:
        return UpperSide(
            why="the success of a blind guess could not be measured: there are no public or no other samples"
        )
    return UpperSide(
        guaranteed=True,
        gamma=reconstruction_bound(mu, kappa.high),
        mu=mu,
        steps=used,
        unit=mechanism.unit,
        kappa=kappa,
        training=_over_training(mechanism, kappa.high),
    )


def accounted_mechanism(defenses: Sequence[Defense]) -> tuple[Accounted | None, str]:
    """The one defense whose noise is accounted, if it stands alone; else why there is none."""
    found = [d for d in defenses if isinstance(d, Accounted)]
    if not found:
        return None, NOT_ACCOUNTED
    if len(defenses) > 1:
        return None, "other defenses stand in the chain, and the accounting does not cover what they change"
    return found[0], ""


def lower_side(recovered: int, records: int, certified: int | None) -> LowerSide:
    """Records that some attack recovered, and what share of all records that shows at the least (95 %)."""
    return LowerSide(recovered, records, at_least(recovered, records) if records else 0.0, certified)


def standing(leaks: bool, upper: UpperSide, undecided: int = 0) -> str:
    """`leaks`, `protected` by a guarantee that is worth the name, or `unknown`, as where a record is undecided."""
    if leaks:
        return "leaks"
    if undecided:
        return "unknown"
    if upper.gamma is None or upper.kappa is None:
        return "unknown"
    return "protected" if upper.gamma - upper.kappa.high <= PROTECTED else "unknown"


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


def _over_training(mechanism: Accounted, kappa: float) -> TrainingBound | None:
    """The bound for all rounds as stated; None where they are not."""
    if not (mechanism.q and mechanism.rounds):
        return None
    if mechanism.q == 1:
        mu = mechanism.mu(mechanism.rounds)
        assert mu is not None  # its noise was there a moment ago
        return TrainingBound(reconstruction_bound(mu, kappa), f"mu = {mu:.3g}, {_steps(mechanism.rounds)}")
    gamma = reconstruction_bound_of(mechanism.promises(), kappa)
    return TrainingBound(gamma, f"by the {mechanism.accountant} accountant, {_steps(mechanism.rounds)}")


def _steps(count: int) -> str:
    return "one noised step" if count == 1 else f"{count} noised steps"


def _percent(share: float) -> str:
    """Two digits; never rounds a few to none."""
    return "<0.1 %" if 0 < share < 0.001 else f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"

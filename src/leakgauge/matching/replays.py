"""How an attack accounts for several local steps: by replaying them, at one point on their way, or not at all.

unrolled   the client's steps are simulated and differentiated through: exact if samples meet in the order assumed, and
           as many times slower as there are steps. Rules that divide by sizes have no slope to unroll.
surrogate  the average gradient of the way is matched at one point of the line between the weights before and after; how
           far along is searched with the inputs (SME: Zhu, Yao and Blaschko, "Surrogate Model Extension", ICML 2023).
           The cost is that of one step, and nobody has to know which samples met.
average    the same at the weights before.

Where we depart from SME: the place is a logistic function of what is searched, so that it stays inside; it begins at
random about the middle; and optimisers other than plain SGD are read first (see `gradient_behind`).
"""

from __future__ import annotations

from leakgauge.engine.optimizers import local_plan
from leakgauge.errors import NotApplicable
from leakgauge.types import Client, Fact, Observation

REPLAYS = ("auto", "unrolled", "surrogate", "average")
AUTO, UNROLLED, SURROGATE, AVERAGE = REPLAYS
HELP = "several local steps are replayed, matched at a searched point of their way, or at its start"


def chosen_replay(asked: str, observation: Observation, *, unrolls: bool = True) -> str:
    """How the steps behind this update are accounted for; `unrolls` says whether the attack does so by itself."""
    local: Client = observation.fact(Fact.LOCAL_TRAINING)
    samples: int = observation.fact(Fact.NUM_SAMPLES)
    if observation.update.kind == "gradient":
        return AVERAGE
    if asked == UNROLLED and local.adaptive:
        raise NotApplicable(f"replay=unrolled needs slopes, and {local.optimizer} makes signs; use replay=surrogate")
    if asked != AUTO:
        return asked
    if order_is_hidden(local, samples) and not local.adaptive:  # of signs those at the start are as good or better
        return SURROGATE
    return UNROLLED if unrolls and not local.adaptive else AVERAGE


def order_is_hidden(local: Client, samples: int) -> bool:
    """Does it matter which samples met, and is it unknown? In a single epoch the guess itself may have any order."""
    meets = any(part != slice(0, samples) for step in local_plan(samples, local) for part in step.parts)
    return local.order == "shuffled" and local.epochs > 1 and meets

"""How an attack accounts for several local steps: by replaying them, at one point on their way, or not at all.

unrolled   the client's steps are simulated and differentiated through: exact if samples meet in the order of the guess,
           as in a single epoch they do in some order of it, and as many times slower as there are steps. Where each
           epoch has an order of its own, which nobody knows, that of the guess stands for all: better than a point on
           the way all the same. Rules that divide by sizes have no slope to unroll.
surrogate  the average gradient of the way is matched at one point of the line between the weights before and after; how
           far along is searched with the inputs (SME: Zhu, Yao and Blaschko, "Surrogate Model Extension", ICML 2023).
           The cost is that of one step, whoever met.
average    the same at the weights before.

Where we depart from SME: the place is a logistic function of what is searched, so that it stays inside. It begins at
random near the start, which is 1 to 5 dB better where the first steps move the weights most. Optimisers other than
plain SGD are read first (see `gradient_behind`).
"""

from __future__ import annotations

from leakgauge.client.fedavg import local_steps
from leakgauge.errors import NotApplicable
from leakgauge.types import Client, Fact, Observation

AUTO, UNROLLED, SURROGATE, AVERAGE = REPLAYS = ("auto", "unrolled", "surrogate", "average")
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
    if local.adaptive:
        return SURROGATE if local_steps(samples, local) > 1 else AVERAGE
    return UNROLLED if unrolls else AVERAGE

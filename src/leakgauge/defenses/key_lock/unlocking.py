"""Scale and shift of a locked normalisation: as far as told, and the rest searched for with the inputs.

Two numbers per channel stand between the attacker and the client's own network. A lock without its key leaves the key
to be searched for; a key without its lock says nothing about scale and shift, which are then searched for directly.
A lock is known if it was told or if the public model holds the one that the server made. A key is known if it was told
or if the gradient of the lock layer was shared, from which it is read. The gradient of the lock's weight has then said
all it can: it is that of the bias times the key. Only the bias is compared, as the weight would outweigh all the rest.
"""

from __future__ import annotations

from torch import Tensor, nn

from leakgauge.defenses.key_lock.reading import read_key
from leakgauge.errors import NotApplicable
from leakgauge.matching.problem import Matching
from leakgauge.models.locked_norm import FIRST_ROUND, PARTS, SeveralRounds, locks_in
from leakgauge.types import Observation

_UNIT = 0.3  # chosen by aligned PSNR on three CIFAR-10 victims among 0.01 to 3: 1 costs 2 to 8 dB, 0.03 about 4


def with_unlocking(problem: Matching, observation: Observation) -> Matching:
    """The same problem on the client's own network, as far as it is known; what is not is part of the search."""
    locks = locks_in(problem.model)
    if not locks:
        raise NotApplicable("this defense puts a locked normalisation into the model, and this one has none")
    masks: dict[str, Tensor] = dict(problem.masks)
    hidden = dict(problem.hidden)
    for name, lock in locks.items():
        own = {part: f"{name}.{part}" if name else part for part in (*PARTS, "shift")}
        told = {part: observation.update.buffers[n] for part, n in own.items() if n in observation.update.buffers}
        gradient = observation.update.tensors
        if "key" not in told and own["weight"] in gradient and own["bias"] in gradient:
            told["key"] = read_key(gradient[own["weight"]], gradient[own["bias"]])
        if "key" in told and own["bias"] in problem.observed:
            problem = problem.without({own["weight"]})
        known = "weight" in told or lock.public
        if known or own["weight"] in gradient:  # else a key acts on nothing
            masks |= {own[part]: values for part, values in told.items()}
        if not known:
            hidden[own["shift"]] = tuple(lock.shift.shape)
        elif "key" not in told:
            hidden[own["key"]] = tuple(lock.key.shape)
    return problem.replace(masks=masks, hidden=hidden, hidden_unit=_UNIT)


def before_the_lock(model: nn.Module) -> list[str]:
    """Names of the layers that the model lists in front of its first locked normalisation, and of that layer."""
    locks = locks_in(model)
    names = [name for name, module in model.named_modules() if next(module.parameters(recurse=False), None) is not None]
    order = [name for name, _ in model.named_modules()]
    found = [name for name in names if order.index(name) < order.index(next(iter(locks)))]
    if isinstance(model, SeveralRounds):  # the lock is listed in the first round; the others have the same layers
        return [name.replace(FIRST_ROUND, each, 1) for each in model.names for name in found]
    return found

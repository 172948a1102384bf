"""FedKL's key-lock: scale and shift of one normalisation come from a key and a lock that never leave the client.

Ren, "Gradient Leakage and Protection for Federated Learning", thesis, Swansea 2023, chapter 5. The layer normalises
without scale and shift of its own; gamma = W_g k + b_g and beta = W_b k + b_b are made from the private key k by the
private lock (W, b). The update has no tensor for either; an attacker without them computes other gradients. A model
without a normalisation gets a BatchNorm behind its first convolution.

Text and released code differ. The code puts gamma and beta through a ReLU or a sigmoid (`activation`), the text does
not (`identity`, our default); a ReLU switches channels off for good. In the text the server makes the first lock, for
all clients and known to it (`first_lock=server`, our default), and each client draws a key; with `first_lock=client`
every client draws a lock of its own, which nobody else sees.

`told` says what the attacker is given. The thesis shares the key (`key`), the gradient of the lock layer (`gradient`),
or both (`key-and-gradient`). `lock` and `both` give the values of the client's lock, and those with the key.

Where we depart. Each update is taken in the first round: with a key as it is drawn and a lock that has not trained yet;
how locks train is in `lab/locked_training.py`.

How to beat it. The gradient of the lock's weight is that of its bias times the key: dividing the two gives the key
(`read_key`, `leakgauge lab read-key`). First lock and key together give the whole network. Without the key two numbers
per channel are unknown, and the update has thousands of equations: they are searched for together with the image
(`joint`), or the tensors in front of the lock are left out besides (`behind the lock`). Then the picture is stretched:
BatchNorm in train mode hides the scale of one sample, and with it most of what the thesis measures. `--assume` can name
both ways without that (`joint, not stretched`), as a recipe does. Compare with `batchnorm-only`, and look at aligned
scores. A first dense layer in front of the lock shows its input as in any network.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from leakgauge.defenses._families import FitsRows, one_by_one
from leakgauge.defenses.batchnorm_only import with_hidden_scale
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.matching.problem import Matching, inside
from leakgauge.models.locked_norm import (
    ACTIVATIONS,
    FIRST,
    FIRST_ROUND,
    INITS,
    PARTS,
    SeveralRounds,
    draw_locks,
    locks_in,
    with_norm,
)
from leakgauge.settings import setting
from leakgauge.types import Attack, Batch, Observation, SharedUpdate, Step

SERVER, CLIENT = FIRST_LOCKS = ("server", "client")  # who makes the lock that a client begins with
JOINT, BEHIND = ("joint", "behind the lock")
_UNSTRETCHED = {f"{way}, not stretched": way for way in (JOINT, BEHIND)}
_GIVEN = {  # the values that are given; a gradient stands among the tensors of the update
    "nothing": (),
    "key": ("key",),
    "gradient": (),
    "key-and-gradient": ("key",),
    "lock": ("weight", "bias"),
    "both": PARTS,
}
_UNIT = 0.3  # of hidden numbers; by aligned PSNR on three CIFAR-10 victims: 1 costs 2 to 8 dB, 0.03 about 4
_TINY = 1e-300


@dataclass(frozen=True)
class KeyLock(FitsRows):
    """Example: `--defense key-lock:activation=sigmoid --local batchnorm=train`"""

    name: ClassVar[str] = "key-lock"
    summary: ClassVar[str] = "scale and shift of one normalisation come from a private key and lock"
    paper: ClassVar[str] = "Ren 2023 (FedKL)"

    length: int = setting(1024, "numbers in the key", low=1)
    activation: str = setting(
        "identity",
        "what scale and shift go through: nothing, as in the text, or what the released code has",
        choices=ACTIVATIONS,
    )
    layer: str = setting(FIRST, "the normalisation, or the layer that gets one behind it, by name; or the first")
    init: str = setting("default", "first values of the lock: PyTorch's rule, or U(-0.5, 0.5)", choices=INITS)
    first_lock: str = setting(
        SERVER,
        "who makes the first lock: the server, for all and known to it, or each client its own",
        choices=FIRST_LOCKS,
    )
    lock_seed: int = setting(0, "seed of the server's first lock", low=0)
    rounds: int = setting(1, "rounds with the same samples, key and lock whose updates the attacker keeps", low=1)
    drift: float = setting(0.1, "how far weights move between those rounds, as a share of their size", above=0)
    told: str = setting(
        "nothing",
        "what the attacker is given: the key, the gradient of the lock layer, or the values of the lock",
        choices=tuple(_GIVEN),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds > 1 and self._shares_gradient:
            allowed, do = "without gradient where rounds is above 1", "leave rounds out: one shows the key already"
            raise BadInput("key-lock: told", allowed=allowed, got=repr(self.told), do=do)

    @property
    def _shares_gradient(self) -> bool:
        return self.told in ("gradient", "key-and-gradient")

    def prepare(self, model: nn.Module) -> nn.Module:
        """`model` with the locked layer, nobody's key in it; at the weights of all rounds that are seen."""
        locked = with_norm(model, self.layer, self.length, self.activation)
        (lock,) = locks_in(locked).values()
        if self.first_lock == SERVER:
            lock.publish(self.lock_seed, self.init)
        if self._shares_gradient:
            lock.share_gradient()
        return locked if self.rounds == 1 else SeveralRounds(locked, self.rounds, self.drift)

    def wrap(self, step: Step) -> Step:
        def locked(model: nn.Module, batch: Batch, seeds: Sequence[int]) -> SharedUpdate:
            worker = copy.deepcopy(model)
            ((name, lock),) = locks_in(worker).items()
            drawn = draw_locks(seeds, lock, self.init)
            if self.first_lock == SERVER:  # it stands in the model already
                first = {part: getattr(lock, part).detach().clone() for part in ("weight", "bias")}
                drawn |= {part: values.expand(len(seeds), *values.shape) for part, values in first.items()}

            def begin(trial: int) -> None:
                lock.put({part: values[trial] for part, values in drawn.items()})

            shared = one_by_one(step, worker, batch, seeds, begin)
            given = {f"{name}.{part}" if name else part: drawn[part] for part in _GIVEN[self.told]}
            return dataclasses.replace(shared, buffers={**shared.buffers, **given})

        return locked

    def ways(self, attack: Attack) -> tuple[str, ...]:
        """Scale and shift are searched for with the inputs; all layers are compared, or those behind the lock."""
        return (JOINT, BEHIND) if issubclass(attack.kind, Matching) else super().ways(attack)

    def weaker_ways(self, attack: Attack) -> tuple[str, ...]:
        return tuple(_UNSTRETCHED) if issubclass(attack.kind, Matching) else ()

    def informs_matching(self, problem: Matching, observation: Observation, way: str) -> Matching:
        found = with_unlocking(problem if way in _UNSTRETCHED else with_hidden_scale(problem), observation)
        if _UNSTRETCHED.get(way, way) == JOINT:
            return found
        return found.without(inside(before_the_lock(found.model), found.observed))


def with_unlocking(problem: Matching, observation: Observation) -> Matching:
    """The same problem on the client's own network, as far as it is known; what is not is part of the search.

    A lock without its key leaves the key to be searched for; a key without its lock says nothing about scale and shift,
    which are then searched for directly. A lock is known if it was given or if the public model holds the one that the
    server made. A key is known if it was given or if the gradient of the lock layer was shared, from which it is read.
    The gradient of the lock's weight has then said all it can: it is that of the bias times the key. Only the bias is
    compared, as the weight would outweigh all the rest.
    """
    locks = locks_in(problem.model)
    if not locks:
        raise NotApplicable("this defense puts a locked normalisation into the model, and this one has none")
    masks: dict[str, Tensor] = dict(problem.masks)
    hidden = dict(problem.hidden)
    for name, lock in locks.items():
        own = {part: f"{name}.{part}" if name else part for part in (*PARTS, "shift")}
        given = {part: observation.update.buffers[n] for part, n in own.items() if n in observation.update.buffers}
        gradient = observation.update.tensors
        if "key" not in given and own["weight"] in gradient and own["bias"] in gradient:
            given["key"] = read_key(gradient[own["weight"]], gradient[own["bias"]])
        if "key" in given and own["bias"] in problem.observed:
            problem = problem.without({own["weight"]})
        known = "weight" in given or lock.public
        if known or own["weight"] in gradient:  # else a key acts on nothing
            masks |= {own[part]: values for part, values in given.items()}
        if not known:
            hidden[own["shift"]] = tuple(lock.shift.shape)
        elif "key" not in given:
            hidden[own["key"]] = tuple(lock.key.shape)
    return problem.replace(masks=masks, hidden=hidden, hidden_unit=_UNIT)


def before_the_lock(model: nn.Module) -> list[str]:
    """Names of the layers that the model lists in front of its first locked normalisation, and of that layer."""
    locks = locks_in(model)
    listed = itertools.takewhile(lambda named: named[0] not in locks, model.named_modules())
    found = [name for name, module in listed if next(module.parameters(recurse=False), None) is not None]
    if isinstance(model, SeveralRounds):  # the lock is listed in the first round; the others have the same layers
        return [name.replace(FIRST_ROUND, each, 1) for each in model.names for name in found]
    return found


def read_key(weight: Tensor, bias: Tensor) -> Tensor:
    """Gradients of the lock's weight (T, R, K) and bias (T, R) -> the key (T, K); zeros where no row has a slope.

    Ren 2023, Eqs. 5.27 and 5.28. With opened = W k + b, row i of dL/dW is (dL/db_i) k, whatever the samples were: every
    row whose bias has a gradient shows the key, and all are fitted by least squares. The same holds for the weight
    difference of several local steps, but not with weight decay, which moves W on its own.
    """
    scale = bias.abs().amax(1, keepdim=True).double()
    slope = bias.double() / scale.clamp_min(_TINY)  # (T, R), the largest is one: its square cannot vanish
    rows = weight.double() / scale.clamp_min(_TINY)[..., None]
    key = torch.einsum("tr,trk->tk", slope, rows) / slope.square().sum(1, keepdim=True).clamp_min(_TINY)
    return key.to(weight)


def misfit(weight: Tensor, bias: Tensor, key: Tensor) -> Tensor:
    """(T,): the share of the weight's gradient, by its norm, that `bias x key` leaves over; one if it is zero."""
    left = weight.double() - bias.double()[..., None] * key.double()[:, None]
    size = weight.double().flatten(1).norm(dim=1)
    return torch.where(size > 0, left.flatten(1).norm(dim=1) / size.clamp_min(_TINY), torch.ones_like(size))

"""Other claims than the one that was made: where a batch gives the update under one of them, a refusal names it.

Claims differ in the rule of the optimiser, in how many steps it takes and over which samples, and in the loss; these
are tried one by one. Rate, decay and momentum can have any value. They are solved for, by Gauss-Newton steps on
replays, in which entries that are far off (signs that rounding turned) count little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.client.fedavg import local_steps
from leakgauge.errors import BadInput
from leakgauge.recording.replays import ReplayedClient, Rows
from leakgauge.types import CROSS_ENTROPY, NLL_ON_LOGITS, Batch, Client

_SMOOTHED = 0.1
_DECAYS = (1e-4, 5e-4, 1e-2)
_MOMENTA = (0.9, 0.5, 0.99)
_OF_RULES = ("momentum", "dampening", "nesterov", "weight_decay", "beta1", "beta2", "alpha", "eps")
_MEMORIES = (
    *(
        (o, n, v)
        for o in ("adam", "adamw")
        for n, v in (("beta1", 0.9), ("beta1", 0.8), ("beta2", 0.99), ("beta2", 0.95))
    ),
    *(("rmsprop", "alpha", v) for v in (0.99, 0.9)),
)
_USUAL = 1e-3  # rate of rules that divide by sizes
_TIMES = (2, 3, 5, 10)  # how many epochs more or fewer are tried
_ROUNDS = 10  # of Gauss-Newton steps
_CAREFUL = 0.01  # of the slope of a setting, by which it is moved to find that slope
_FAR = 3.0  # times the median of what is left, from which an entry counts little
_SHORTEST = 0.1  # of such a step
_SETTLED = 1e-6
_TINY = 1e-30
_NOTHING = {"weight_decay": 1e-7, "momentum": 1e-4}  # below this it is none
_DIGITS = (1, 2, 3, 4)  # people write settings in few digits

Replay = Callable[[Client], Rows]


@dataclass(frozen=True)
class OtherClaim:
    """What else could be claimed, and how that is said."""

    local: Client
    one_hot: bool = False  # are targets 0 and 1 for each class?
    decay_in_gradient: float = 0.0  # added to a single gradient; cannot be claimed, but left out of what is shared

    @property
    def words(self) -> str:
        """After "it fits ...": what to write or to do."""
        if self.decay_in_gradient:
            return f"a gradient with a weight decay of {self.decay_in_gradient:g} in it: share it without"
        targets = " and targets of 0 and 1 for each class in --data" if self.one_hot else ""
        return f"--local {as_text(self.local)}{targets}: say so"

    def replay(self, client: ReplayedClient, batch: Batch, seeds: Sequence[int], **how: Any) -> Rows:
        """What the client would have shared so; see `ReplayedClient.replay`."""
        if self.one_hot:
            classes = client.classes(batch)
            batch = Batch(batch.inputs, torch.nn.functional.one_hot(batch.labels, classes).to(batch.inputs))
        made = replace(client, local=self.local).replay(batch, seeds, **how)
        if not self.decay_in_gradient:
            return made
        weights = {n: p.detach().double().flatten() for n, p in client.model.named_parameters()}
        return {n: rows + self.decay_in_gradient * weights[n] for n, rows in made.items()}


def as_text(local: Client) -> str:
    """The settings as they are written behind `--local`; those at their defaults are left out."""
    if local.optimizer == "adamw" and not local.weight_decay:
        local = replace(local, optimizer="adam")  # which is the same, and what people write
    fields = local.__dataclass_fields__
    changed = {n: getattr(local, n) for n, f in fields.items() if getattr(local, n) != f.default}
    if local.kind == "fedavg":
        changed = {"kind": "fedavg", "lr": local.lr} | changed
    return ",".join(f"{n}={v:g}" if isinstance(v, float) else f"{n}={str(v).lower()}" for n, v in changed.items())


def other_claims(client: ReplayedClient, samples: int) -> Iterator[OtherClaim]:
    """What people claim by mistake or forget to claim, the likeliest first."""
    for other in _locals(client, samples):
        try:
            local = replace(client.local, **other)
        except BadInput:  # settings that do not go together
            continue
        if local != client.local:
            yield OtherClaim(local)
    if client.local.loss == CROSS_ENTROPY:
        for loss in ("mse", "bce"):
            yield OtherClaim(replace(client.local, loss=loss, label_smoothing=0.0, class_weights=""), one_hot=True)
    if client.local.kind == "fedsgd":
        for decay in _DECAYS:
            yield OtherClaim(client.local, decay_in_gradient=decay)


def _locals(client: ReplayedClient, samples: int) -> Iterator[dict[str, Any]]:
    """The fields in which another claim differs."""
    local = client.local
    if any(isinstance(m, _BatchNorm) for m in client.model.modules()):
        yield {"batchnorm": "train" if local.batchnorm == "eval" else "eval"}
    if local.loss != NLL_ON_LOGITS:
        yield {"loss": NLL_ON_LOGITS, "label_smoothing": 0.0, "class_weights": ""}
    yield {"label_smoothing": 0.0 if local.label_smoothing else _SMOOTHED}
    if local.kind == "fedsgd":
        return
    steps = local_steps(samples, local)
    paths = list(_paths(local, steps))
    yield from paths[:2]
    yield from _rules(local, steps)
    yield from paths[2:]


def _rules(local: Client, steps: int) -> Iterator[dict[str, Any]]:
    """Other optimisers, with and without decay and momentum."""
    plain = {n: Client.__dataclass_fields__[n].default for n in _OF_RULES}
    momenta = _MOMENTA if steps > 1 else ()
    yield {"optimizer": "sgd"} | plain
    for momentum in momenta:
        yield {"optimizer": "sgd"} | plain | {"momentum": momentum}
        yield {"optimizer": "sgd"} | plain | {"momentum": momentum, "nesterov": True}
    for optimizer in ("adam", "rmsprop", "adagrad"):
        yield {"optimizer": optimizer} | plain
        if not local.adaptive:  # a rate of SGD's is none of theirs
            yield {"optimizer": optimizer, "lr": _USUAL} | plain
    for decay in _DECAYS:
        yield {"optimizer": "sgd"} | plain | {"weight_decay": decay}
        for momentum in momenta[:1]:
            yield {"optimizer": "sgd"} | plain | {"momentum": momentum, "weight_decay": decay}
        for optimizer in ("adamw", "adam", "rmsprop", "adagrad"):
            yield {"optimizer": optimizer} | plain | {"weight_decay": decay}
    for momentum in momenta:
        yield {"optimizer": "rmsprop"} | plain | {"momentum": momentum}
    for optimizer, name, value in _MEMORIES if steps > 1 else ():
        yield {"optimizer": optimizer} | plain | {"weight_decay": local.weight_decay, name: value}


def _paths(local: Client, steps: int) -> Iterator[dict[str, Any]]:
    """More or fewer epochs, other rates along them, and what is done to gradients."""
    near = (local.epochs - 1, local.epochs + 1, *(local.epochs * n for n in _TIMES))
    fewer = (local.epochs // n for n in _TIMES if local.epochs % n == 0)
    for epochs in dict.fromkeys((*near, *fewer)):
        if epochs >= 1:
            yield {"epochs": epochs}
    if steps > 1:
        for schedule in ("constant", "linear", "cosine"):
            yield {"schedule": schedule}
    for clip in (0.0, 1.0) if local.clip else (1.0,):
        yield {"clip": clip}


def solved_for(start: Client, seen: Rows, replay: Replay, steps: int, until: float = math.inf) -> Iterator[Client]:
    """Claims with another rate, decay or momentum that fit better: each alone, then together.

    They are found by Gauss-Newton steps until what is left no longer falls, or the clock (`time.thread_time`) shows
    `until`.
    """
    names = _free(start, steps)
    for free in dict.fromkeys((*((n,) for n in names), names[:2], names)):
        found = _descent(start, free, _Gap(seen, replay), until)
        if found != start:
            yield found


@dataclass(frozen=True)
class _Gap:
    """What a claim leaves of the update, every tensor in its own unit."""

    seen: Rows
    replay: Replay

    def __call__(self, claim: Client) -> Tensor:
        made = self.replay(claim)
        unit = {n: rows.pow(2).mean().sqrt().clamp_min(_TINY) for n, rows in self.seen.items()}
        return torch.cat([((rows - made[n]) / unit[n]).flatten() for n, rows in self.seen.items()])


def _descent(start: Client, names: Sequence[str], gap: _Gap, until: float) -> Client:
    local, left = start, gap(start)
    for _ in range(_ROUNDS):
        if time.thread_time() > until:
            break
        far = (_FAR * left.abs().median()).clamp_min(_TINY)
        step = _gauss_newton(local, left, far, names, gap)
        before, shrink = _misfit(left, far), 1.0
        while shrink > _SHORTEST:  # a step too far is halved
            tried = _moved(local, {n: shrink * by for n, by in step.items()})
            after = gap(tried)
            if _misfit(after, far) < before:
                break
            shrink /= 2
        else:
            break
        local, left = tried, after
        if float(left.abs().median()) < _SETTLED:
            break
    return local


def _misfit(left: Tensor, far: Tensor) -> float:
    """Of Cauchy: squares where little is left, logarithms where an entry is far off."""
    return float((left / far).square().log1p().mean())


def _gauss_newton(local: Client, left: Tensor, far: Tensor, names: Sequence[str], gap: _Gap) -> dict[str, float]:
    """How far each setting is to be moved."""
    slopes = []
    for name in names:
        by = _probe(local, name)
        slopes.append((left - gap(_moved(local, {name: by}))) / by)
    system = torch.stack(slopes, 1)  # (entries, settings)
    weight = 1 / (1 + (left / far).square())
    size = system.pow(2).mean(0).sqrt().clamp_min(_TINY)
    scaled = system / size * weight.sqrt()[:, None]
    normal = scaled.T @ scaled
    normal += 1e-9 * normal.diagonal().mean() * torch.eye(len(names), dtype=normal.dtype, device=normal.device)
    found = torch.linalg.solve(normal, scaled.T @ (weight.sqrt() * left)) / size
    return dict(zip(names, found.tolist(), strict=True))


def rounded_claims(local: Client, start: Client) -> Iterator[Client]:
    """The solved claim in few digits, then as it is."""
    names = [n for n in ("lr", "weight_decay", "momentum") if getattr(local, n) != getattr(start, n)]
    nothing: dict[str, Any] = {n: 0.0 for n, least in _NOTHING.items() if getattr(local, n) < least}
    local = replace(local, **nothing)
    for digits in _DIGITS:
        few: dict[str, Any] = {n: float(f"{getattr(local, n):.{digits}g}") for n in names}
        yield replace(local, **few)
    yield local


def _free(local: Client, steps: int) -> tuple[str, ...]:
    momentum = local.optimizer in ("sgd", "rmsprop") and steps > 1 and not local.nesterov
    return ("lr", "weight_decay", *(["momentum"] if momentum else []))


def _probe(local: Client, name: str) -> float:
    """How far a setting is moved to see what it does: the rate by a share of itself."""
    return {"lr": _CAREFUL, "weight_decay": 1e-4, "momentum": -0.003 if local.momentum > 0.5 else 0.003}[name]


def _moved(local: Client, moves: dict[str, float]) -> Client:
    """The settings moved, the rate by a factor and within their bounds."""
    value: dict[str, Any] = {n: getattr(local, n) + by for n, by in moves.items() if n != "lr"}
    if "lr" in moves:
        value["lr"] = local.lr * math.exp(max(-2.0, min(2.0, moves["lr"])))
    for n, most in (("weight_decay", 10.0), ("momentum", 0.999)):
        if n in value:
            value[n] = min(max(value[n], 0.0), most)
    return replace(local, **value)

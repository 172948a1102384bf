"""Defenses inside a Flower app: `as_mod` at the client, `with_aggregate` at the server.

    app = ClientApp(mods=[as_mod(Gaussian(std=0.01))])
    strategy = with_aggregate(FedAvg(), RandomMask())

A mod sees the model that came and the model that goes back; their difference is the update that is defended. Noise,
clipping of the whole update, pruning, quantising and the other changes of an update need no more. A defense that acts
on the samples, on each local step or on the network itself cannot do so from outside the app's own training: for those
give `training=`, and the mod trains in the app's place.

Draws are fresh and from the system's own randomness unless `seed` is given, which is for tests: with the seed the noise
can be taken off again. `with_aggregate` is arithmetic at the server, which sees every update: with masked sums it shows
what masking costs and gives, it hides nothing from that process.
"""

from __future__ import annotations

import copy
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.engine.randomness import derived_seed
from leakgauge.errors import NotApplicable
from leakgauge.federation.exchange import PlainExchange
from leakgauge.integrations._flower_arrays import difference, flower, moved, only_record, record_of, tensors_in
from leakgauge.types import Batch, Client, Defense, SharedUpdate, Step

_MEMORY = "leakgauge.kept-back"  # what a client keeps between rounds, in Flower's state of its node
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]  # (message, context, call_next) -> reply


@dataclass(frozen=True)
class Training:
    """How the mod trains in the app's place, for defenses that act inside the training."""

    model: Callable[[], nn.Module]  # as the app builds it, before any defense is put into it
    batch: Callable[[Any], tuple[Tensor, Tensor]]  # Context -> this client's inputs (N, *shape) and labels (N,)
    local: Client  # kind="fedavg": Flower's clients send back weights
    weighted_by: str = "num-examples"  # the metric by which the strategy weighs clients


def as_mod(*defenses: Defense, training: Training | None = None, seed: int | None = None) -> Mod:
    """A Flower client mod that applies the defenses, in the order written, to what `train` sends back.

    Example: `ClientApp(mods=[as_mod(Clip(norm=1.0, unit="client"), Gaussian(std=0.01))])`. A defense that changes the
    network needs `training`, and a server that starts from `prepared(model, defense)`.
    """
    app = flower()
    _check(defenses, training)

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        if not str(message.metadata.message_type).startswith("train"):
            return call_next(message, context)
        key, record = only_record(message.content, "to a client")
        before = tensors_in(record)
        drawn = _seed(seed, message, context)
        if training is not None:
            update, samples = _trained(training, before, defenses, drawn, context)
            metrics = app.MetricRecord({training.weighted_by: samples})
            content = app.RecordDict({key: record_of(moved(before, update), record), "metrics": metrics})
            return app.Message(content, reply_to=message)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        sent_key, sent = only_record(reply.content, "from a client")
        update = _defended(difference(tensors_in(sent), before), defenses, drawn, context)
        reply.content[sent_key] = record_of(moved(before, update), sent)
        return reply

    return mod


def with_aggregate(strategy: Any, defense: Defense, weighted_by: str = "num-examples") -> Any:
    """A copy of a Flower strategy in which the defense's `aggregate` takes the place of the plain weighted mean.

    The strategy then sees the same aggregated model from each client, and goes on with it by its own rule.
    """
    flower()
    wrapped, sent = copy.copy(strategy), {}

    def configure_train(server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        sent["record"] = arrays
        return strategy.configure_train(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    def aggregate_train(server_round: int, replies: Iterable[Any]) -> Any:
        received = list(replies)
        whole = [reply for reply in received if not reply.has_error()]
        if whole:
            _replace_by_aggregate(whole, tensors_in(sent["record"]), defense, weighted_by)
        return strategy.aggregate_train(server_round, received)

    wrapped.configure_train, wrapped.aggregate_train = configure_train, aggregate_train
    return wrapped


def _replace_by_aggregate(
    replies: Sequence[Any], before: Mapping[str, Tensor], defense: Defense, weighted_by: str
) -> None:
    found = [only_record(reply.content, "from a client") for reply in replies]
    updates = [difference(tensors_in(record), before) for _, record in found]
    together = SharedUpdate(
        "weight_delta",
        {n: torch.cat([u.tensors[n] for u in updates]) for n in updates[0].tensors},
        {n: torch.cat([u.buffers[n] for u in updates]) for n in updates[0].buffers},
    )
    weights = torch.tensor([_weight(reply, weighted_by) for reply in replies], dtype=torch.float64)
    mean = PlainExchange(together, defense.aggregate, defense.aggregate_weighted).mean(weights / weights.sum())
    after = moved(before, mean)
    for reply, (key, record) in zip(replies, found, strict=True):
        reply.content[key] = record_of(after, record)


def _weight(reply: Any, key: str) -> float:
    for metrics in reply.content.metric_records.values():
        if key in metrics:
            return float(metrics[key])
    raise NotApplicable(f"a client's reply has no metric {key!r} to weigh it by; name it with weighted_by=")


def _defended(update: SharedUpdate, defenses: Sequence[Defense], seed: int, context: Any) -> SharedUpdate:
    """The defenses around an update that is there already."""
    for defense in defenses:
        if defense.keeps:
            update = _remembered(defense, update, context)
            continue
        unseen: Any = _Unseen(defense.name)
        update = defense.wrap(lambda *_, arrived=update: arrived)(unseen, unseen, [seed])
    return update


def _remembered(defense: Defense, update: SharedUpdate, context: Any) -> SharedUpdate:
    app, place = flower(), f"{_MEMORY}.{defense.spec}"
    kept = context.state.get(place)
    sent, memory = defense.remembering(update, {} if kept is None else tensors_in(kept))
    context.state[place] = app.ArrayRecord({n: app.Array(t.detach().cpu().numpy()) for n, t in memory.items()})
    return sent


def _trained(
    training: Training, before: Mapping[str, Tensor], defenses: Sequence[Defense], seed: int, context: Any
) -> tuple[SharedUpdate, int]:
    """One client step of ours on the received weights, with the defenses around and inside it; its samples."""
    model = prepared(training.model(), *defenses).eval()
    model.load_state_dict(before)
    inputs, labels = training.batch(context)
    step: Step = chain(client_step(training.local), *(d for d in defenses if not d.keeps))
    update = step(model, Batch(inputs[None], labels[None]), [seed])
    for defense in (d for d in defenses if d.keeps):
        update = _remembered(defense, update, context)
    return update, len(labels)


def _check(defenses: Sequence[Defense], training: Training | None) -> None:
    for defense in defenses:
        kind = type(defense)
        if defense.fellows:
            raise NotApplicable(f"{defense.name} acts among the clients of a round, of whom a mod sees one")
        if kind.wrap is Defense.wrap and kind.prepare is Defense.prepare and not defense.keeps:
            raise NotApplicable(f"{defense.name} acts at the server; use with_aggregate(strategy, defense)")
        if training is None and kind.prepare is not Defense.prepare:
            raise _inside(defense.name)
    if training is None:
        return
    if training.local.kind != "fedavg":
        raise NotApplicable("Flower's clients send back weights; give Training a local of kind='fedavg'")
    kept_before = [d.name for d, after in itertools.pairwise(defenses) if d.keeps and not after.keeps]
    if kept_before:
        raise NotApplicable(f"{kept_before[0]} keeps something back between rounds; write it last in the chain")


def _seed(seed: int | None, message: Any, context: Any) -> int:
    if seed is None:
        return secrets.randbits(62)
    config: Any = next(iter(message.content.config_records.values()), {})
    return derived_seed(seed, f"{context.node_id}/{config.get('server-round', message.metadata.group_id)}")


def _inside(name: str) -> NotApplicable:
    return NotApplicable(
        f"{name} acts inside the client's training, which a mod around the app's own does not see; give as_mod a "
        "training=Training(model, batch, local), and it trains in the app's place"
    )


class _Unseen:
    """Stands for the model and the samples where the mod has neither: any use of them raises."""

    def __init__(self, defense: str) -> None:
        self._defense = defense

    def __getattr__(self, name: str) -> NoReturn:
        raise _inside(self._defense)

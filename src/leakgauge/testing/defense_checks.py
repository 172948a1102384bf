"""What every defense must hold to, whoever wrote it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.errors import NotApplicable
from leakgauge.models import load_model
from leakgauge.settings import plain_type
from leakgauge.testing import _must as must
from leakgauge.types import Attack, Batch, Client, Defense, Known, SharedUpdate, threat_model

SEEDS = (11, 12, 13)
KINDS = ("fedsgd", "fedavg")
_ATTACKS = (DLG(steps=1, restarts=1), Linear())


@dataclass(frozen=True)
class DefenseCase:
    """A defense, and clients of one digit each, with the model that they are sent."""

    defense: Defense
    model: nn.Module
    clients: Batch

    def shared(self, kind: str, clients: Batch | None = None, seeds: Sequence[int] = SEEDS) -> SharedUpdate:
        """What they share behind it."""
        return shared((self.defense,), self.model, clients or self.clients, seeds, kind)


def check_defense(defense: type[Defense] | Defense, model: str = "mlp:hidden=16") -> None:
    """Run the whole contract; an AssertionError says what does not hold.

    A class is checked at its defaults, on the updates of three clients with one digit each.

    Example: `check_defense(Rotation(key=3))`
    """
    made = defense() if isinstance(defense, type) else defense
    must.describe_itself(type(made))
    must.survive_writing(made)
    case = defense_case(made, model)
    for check in CHECKS:
        check(case)


def defense_case(defense: Defense, model: str = "mlp:hidden=16") -> DefenseCase:
    """The defense on three clients with one digit each."""
    digits = load("digits", "test")
    return DefenseCase(defense, load_model(model, digits.spec, seed=3), draw_victims(digits, len(SEEDS), 1, 5))


def shared(
    defenses: Sequence[Defense], model: nn.Module, clients: Batch, seeds: Sequence[int], kind: str
) -> SharedUpdate:
    """What clients share behind these defenses."""
    step = chain(client_step(Client(kind=kind)), *defenses)
    return step(prepared(model, *defenses), clients, seeds)


def strength_zero_is_the_identity(case: DefenseCase) -> None:
    """With all numbers at zero that may go down to zero: the same update bit for bit, and nothing to know."""
    fields, name = [f.name for f in dataclasses.fields(case.defense) if f.metadata.get("low") == 0], case.defense.name
    zeros = {field: 0.0 for field in fields if plain_type(type(case.defense), field) is float}
    if not zeros:
        return
    off = dataclasses.replace(case.defense, **zeros)
    must.hold(off.idle, f"{name}: {off.spec} does nothing, and `idle` does not say so")
    for kind in KINDS:
        bare, defended = (shared(chosen, case.model, case.clients, SEEDS, kind) for chosen in ((), (off,)))
        must.be_equal(f"{name}: {off.spec} changes the update", bare.tensors, defended.tensors)
    for attack in _ATTACKS:
        must.hold(off.ways(attack) == (), f"{name}: {attack.name} is informed of {off.spec}, which does nothing")


def same_seed_gives_the_same_update(case: DefenseCase) -> None:
    """Bit for bit, and nobody's random numbers move."""
    name = case.defense.name
    for kind in KINDS:
        with must.draw_from_own_generators(name):
            first = case.shared(kind)
        must.be_equal(f"{name}: run again, the update", first.tensors, case.shared(kind).tensors)


def clients_together_equal_clients_alone(case: DefenseCase) -> None:
    """To rounding: what a client shares depends on its own seed and samples only."""
    for kind in KINDS:
        together = case.shared(kind)
        for t, seed in enumerate(SEEDS):
            alone = case.shared(kind, case.clients.take([t]), [seed])
            for key, tensor in together.tensors.items():
                what = f"{case.defense.name}: client {t} alone and among others, {key}"
                must.be_close(what, alone.tensors[key], tensor[[t]], rtol=1e-4, atol=1e-6)


def each_client_has_randomness_of_its_own(case: DefenseCase) -> None:
    """What another client's seed draws does not reach this one."""
    twins = case.clients.take([0, 0])
    alike, apart = case.shared("fedsgd", twins, (4, 4)), case.shared("fedsgd", twins, (4, 5))
    for key, tensor in alike.tensors.items():
        what = f"{case.defense.name}: {key} of a client"
        must.be_close(f"{what} depends on its place", tensor[0], tensor[1], rtol=1.3e-6, atol=1e-5)
        must.be_close(f"{what} depends on another's seed", apart.tensors[key][0], tensor[0], rtol=1.3e-6, atol=1e-5)


def names_shapes_and_kind_stay(case: DefenseCase) -> None:
    """An update of the model that was sent, in finite numbers of its precision."""
    name = case.defense.name
    for kind, of in zip(KINDS, ("gradient", "weight_delta"), strict=True):
        update = case.shared(kind)
        must.hold(update.kind == of, f"{name}: of {kind} it makes a {update.kind}, not a {of}")
        parameters = prepared(case.model, case.defense).named_parameters()
        wanted = {n: (len(SEEDS), *p.shape) for n, p in parameters}
        got = {n: tuple(t.shape) for n, t in update.tensors.items()}
        must.hold(got == wanted, f"{name}: names or shapes change: {sorted(set(got.items()) ^ set(wanted.items()))}")
        for key, tensor in update.tensors.items():
            must.hold(tensor.dtype == torch.float32, f"{name}: {key} is {tensor.dtype}, not torch.float32")
            must.hold(bool(torch.isfinite(tensor).all()), f"{name}: {key} holds nan or infinity")
            must.hold(not tensor.requires_grad, f"{name}: {key} still has a graph; detach it")


def what_it_is_given_stays_as_it_was(case: DefenseCase) -> None:
    """Model, samples, and the update of the step inside."""
    name, model = case.defense.name, case.model
    weights, clients = copy.deepcopy(model.state_dict()), copy.deepcopy(case.clients)
    inner = client_step(Client())(prepared(model, case.defense), clients, SEEDS)
    kept = copy.deepcopy(inner)
    case.defense.wrap(lambda *_: inner)(prepared(model, case.defense), case.clients, SEEDS)
    must.leave_model_alone(name, model, weights)
    must.be_close(f"{name} changes the samples", clients.inputs, case.clients.inputs)
    must.be_close(f"{name} changes the labels", clients.labels, case.clients.labels)
    must.be_equal(f"{name} changes the update that it wraps", kept.tensors, inner.tensors)


def a_promise_is_accounted(case: DefenseCase) -> None:
    """Epsilon, delta and what they protect, or no promise at all."""
    found, promises = case.defense.guarantee(), f"{case.defense.name}: promises"
    if found is not None:
        must.hold(found.epsilon > 0, f"{promises} epsilon {found.epsilon:g}, which is not above zero")
        must.hold(0 <= found.delta < 1, f"{promises} delta {found.delta:g}, which is not from 0 to 1")
        must.hold(found.unit in ("sample", "client"), f"{promises} for a {found.unit}, not a sample or client")


def the_server_makes_one_update_of_many(case: DefenseCase) -> None:
    """By `aggregate`: the same names and kind, one row."""
    update = case.shared("fedsgd")
    whole = case.defense.aggregate(update)
    same = whole.kind == update.kind and whole.tensors.keys() == update.tensors.keys()
    one = all(t.shape == (1, *update.tensors[n].shape[1:]) for n, t in whole.tensors.items())
    must.hold(same and one, f"{case.defense.name}: `aggregate` does not make one update of the same kind of many")


def who_knows_it_is_informed(case: DefenseCase) -> None:
    """A defense that says for no problem how it is beaten would pass for a strong one."""
    has_rule = any(case.defense.has_rule_for(type(attack)) for attack in _ATTACKS)
    must.hold(has_rule, f"{case.defense.name}: says for no kind of problem how it is beaten; write informs_matching")
    for attack in _ATTACKS:
        for way in case.defense.ways(attack):
            _informs(case, attack, way)


def _informs(case: DefenseCase, attack: Attack, way: str) -> None:
    """The attack runs on a problem of the same type that says something else, and leaves the one it had alone."""
    name, what = case.defense.name, f"{attack.name} ({way})" if way else attack.name
    sent = prepared(case.model, case.defense)
    digits = load("digits", "train")
    facts = facts_about(sent, case.clients, digits.spec, Client(), public_batch(digits, 32, seed=5))
    observation = observe(sent, case.shared("fedsgd"), threat_model("honest-but-curious"), facts)
    try:
        posed = attack.problem(observation, SEEDS)
        before = dict(vars(posed))
        informed = case.defense.informs(posed, observation, way)
        result = attack(observation, SEEDS, known=(Known(case.defense, way),))
    except NotApplicable:
        return
    must.hold(type(informed) is type(posed), f"{name}: of the problem of {what} it makes a {type(informed).__name__}")
    must.hold(informed is not posed, f"{name}: {what} is said to be informed and its problem stays the same")
    same = all(value is before.get(key) for key, value in vars(posed).items())
    must.hold(same, f"{name}: informing {what} changes the problem instead of making another")
    must.hold(result.inputs is not None, f"{name}: informed of it, {what} recovers nothing")


CHECKS = (  # the first sees what nothing has touched yet
    what_it_is_given_stays_as_it_was,
    strength_zero_is_the_identity,
    same_seed_gives_the_same_update,
    clients_together_equal_clients_alone,
    each_client_has_randomness_of_its_own,
    names_shapes_and_kind_stay,
    a_promise_is_accounted,
    the_server_makes_one_update_of_many,
    who_knows_it_is_informed,
)

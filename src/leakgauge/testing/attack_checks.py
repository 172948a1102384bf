"""What every attack must hold to, whoever wrote it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.defenses.prune import Prune
from leakgauge.errors import BadInput, HiddenFact, NotApplicable
from leakgauge.models import load_model
from leakgauge.testing import _must as must
from leakgauge.types import (
    Attack,
    Batch,
    Client,
    DataSpec,
    Fact,
    Known,
    Observation,
    Reconstruction,
    TamperingServer,
    ThreatModel,
)

SEEDS = (11, 12, 13)
MODELS = ("lenet-dlg:filters=4", "mlp:hidden=16", "vit:embedding=24,depth=1")


@dataclass(frozen=True)
class AttackCase:
    """An attack, what it saw, and what it made of that."""

    attack: Attack
    data: DataSpec
    observation: Observation
    result: Reconstruction


def check_attack(attack: type[Attack] | Attack, models: Sequence[str] = MODELS) -> None:
    """Run the whole contract; an AssertionError says what does not hold.

    An instance is checked as it is; of a class two short attempts are made. The attack is tried on the first of
    `models` that it does not refuse, on updates of three clients with one digit each, and gets just what it `needs`.

    Example: `check_attack(Nearest(candidates=8))`
    """
    made = shortened(attack()) if isinstance(attack, type) else attack
    must.describe_itself(type(made))
    must.survive_writing(made)
    case = attack_case(made, models)
    for check in CHECKS:
        check(case)


def shortened(attack: Attack) -> Attack:
    """Two short attempts, so that choosing between restarts is covered as well.

    Small strides, because long ones blow rounding up to visible differences within twenty iterations.
    """
    counts = [n for n, count in attack.as_dict().items() if n.endswith("steps") and count is not None]
    several = attack.with_fields(restarts=2)
    if several is None:
        return dataclasses.replace(attack, **dict.fromkeys(counts, 2))
    changed = dataclasses.replace(several, **dict.fromkeys(counts, 1))
    return changed.with_fields(lr=0.1) or changed


def attack_case(attack: Attack, models: Sequence[str] = MODELS) -> AttackCase:
    """The attack on the first model that it does not refuse, in double precision, given just what it needs."""
    digits, train = load("digits", "test"), load("digits", "train")
    victims, public = draw_victims(digits, len(SEEDS), 1, 5), public_batch(train, 32, seed=5)
    victims, public = (Batch(batch.inputs.double(), batch.labels) for batch in (victims, public))
    refused = []
    for name in models:
        model = load_model(name, digits.spec, seed=3).double()
        try:
            observation = _observed(attack, model, victims, public, digits.spec)
            return AttackCase(attack, digits.spec, observation, attack(copy.deepcopy(observation), SEEDS))
        except NotApplicable as error:
            refused.append(f"{name}: {error}")
    raise AssertionError(f"{attack.name} fits none of {', '.join(models)} ({'; '.join(refused)})")


def _observed(attack: Attack, model: nn.Module, victims: Batch, public: Batch, data: DataSpec) -> Observation:
    """A server that asks again goes by the first victim's answers; its last model is sent to all."""
    knows = ThreatModel("just-enough", "knows what the attack needs", "none", attack.needs)
    server = attack if isinstance(attack, TamperingServer) else None
    sent: nn.Module | None = server.prepare(model, data, public) if server else model
    asked = 0
    while sent is not None:
        facts = facts_about(sent, victims, data, Client(), public)
        observation, asked = observe(sent, fedsgd()(sent, victims, SEEDS), knows, facts), asked + 1
        sent = server.ask_again(observation.take([0]), asked) if server and server.asks_again else None
    return observation


def claims_have_one_row_per_trial(case: AttackCase, other: Reconstruction | None = None) -> None:
    """Shapes, kinds of numbers, and labels that exist; of the case's result, or of another one."""
    name, trials, result = case.attack.name, len(SEEDS), other or case.result
    inputs, labels, classes = result.inputs, result.labels, case.data.classes
    must.hold(inputs is not None or labels is not None, f"{name}: claims neither inputs nor labels")
    if inputs is not None:
        wanted = (trials, 1, *case.data.shape)
        must.hold(inputs.shape == wanted, f"{name}: inputs are {tuple(inputs.shape)} and not {wanted}")
        must.hold(inputs.is_floating_point(), f"{name}: inputs are {inputs.dtype}, not floating point")
        must.hold(bool(torch.isfinite(inputs).all()), f"{name}: inputs hold nan or infinity")
    if labels is not None:
        must.hold(labels.shape == (trials, 1), f"{name}: labels are {tuple(labels.shape)} and not {(trials, 1)}")
        must.hold(labels.dtype == torch.int64, f"{name}: labels are {labels.dtype}, not int64")
        low, high = int(labels.min()), int(labels.max())
        must.hold(0 <= low <= high < classes, f"{name}: labels reach from {low} to {high}, of {classes} classes")
    for counted in ("objective", "steps", "evaluations"):
        value: Tensor = getattr(result, counted)
        must.hold(value.shape == (trials,), f"{name}: {counted} is {tuple(value.shape)} and not ({trials},)")
        must.hold(bool((torch.isfinite(value) & (value >= 0)).all()), f"{name}: {counted} is not finite, or below zero")
    must.hold(result.seconds >= 0, f"{name}: seconds is below zero")
    if result.trace is not None:
        must.hold(len(result.trace) == trials, f"{name}: trace has {len(result.trace)} rows for {trials} trials")
        must.hold(bool(torch.isfinite(result.trace[:, 0]).all()), f"{name}: trace begins with nan or infinity")


def _same(what: str, one: Reconstruction, other: Reconstruction) -> None:
    for part in ("inputs", "labels", "objective"):
        must.be_close(f"{what}, {part}", getattr(one, part), getattr(other, part))


def same_seed_gives_the_same_result(case: AttackCase) -> None:
    """Bit for bit."""
    _same(f"{case.attack.name}: run again", case.attack(case.observation, SEEDS), case.result)


def trials_together_equal_trials_alone(case: AttackCase) -> None:
    """To rounding: a trial's result depends on its own seed and update, not on the other trials."""
    for t, seed in enumerate(SEEDS):
        alone, together = case.attack(case.observation.take([t]), [seed]), case.result.take([t])
        what = f"{case.attack.name}: trial {t} alone and among others"
        must.be_close(f"{what}, inputs", alone.inputs, together.inputs, rtol=5e-3, atol=5e-3)
        must.be_close(f"{what}, labels", alone.labels, together.labels)
        must.be_close(f"{what}, objective", alone.objective, together.objective, rtol=1e-2, atol=1e-5)


def what_it_is_given_stays_as_it_was(case: AttackCase) -> None:
    """Model, update, facts and everybody's random numbers; a model in train mode stays in it."""
    name, observation = case.attack.name, case.observation
    observation.model.train()  # an attack that needs eval mode must work on a copy
    before = copy.deepcopy(observation)
    with must.draw_from_own_generators(name):
        case.attack(observation, SEEDS)
    must.hold(observation.model.training, f"{name} switches the model it is given to another mode")
    observation.model.eval()
    must.leave_model_alone(name, observation.model, before.model.state_dict())
    must.be_equal(f"{name} changes the update", before.update.tensors, observation.update.tensors)
    has_graph = any(t.requires_grad for t in observation.update.tensors.values())
    must.hold(not has_graph, f"{name} differentiates the update")
    must.hold(observation.revealed.keys() == before.revealed.keys(), f"{name} changes the facts it is given")
    for fact, value in before.revealed.items():
        what, now = f"{name} changes the fact {fact.value}", observation.revealed[fact]
        if isinstance(value, Batch):
            must.be_equal(what, vars(value), vars(now))
        elif isinstance(value, Tensor):
            must.be_close(what, value, now)
        elif not isinstance(value, dict):
            must.hold(now == value, what)


def hidden_facts_are_refused_by_name(case: AttackCase) -> None:
    """Whatever the attack `needs`, one after another."""
    for fact in case.attack.needs:
        refuses_without(case, fact)


def refuses_without(case: AttackCase, fact: Fact) -> None:
    """The message names the attack and the fact."""
    blind = {known: value for known, value in case.observation.revealed.items() if known is not fact}
    said = _refusal(case.attack, dataclasses.replace(case.observation, revealed=blind), SEEDS, HiddenFact)
    says = said is not None and case.attack.name in said and fact.value in said
    must.hold(says, f"{case.attack.name}: runs without {fact.value}, which it needs, or does not say so: {said}")


def a_wrong_number_of_seeds_is_refused(case: AttackCase) -> None:
    """One seed per trial."""
    said = _refusal(case.attack, case.observation, SEEDS[:2], BadInput)
    must.hold(said is not None and "seeds must be 3" in said, f"{case.attack.name}: takes 2 seeds for 3 trials: {said}")


def _refusal(attack: Attack, observation: Observation, seeds: Sequence[int], kind: type[Exception]) -> str | None:
    try:
        attack(observation, seeds)
    except kind as error:
        return str(error)
    return None


def an_informed_attack_holds_to_the_same(case: AttackCase) -> None:
    """Also against a defense that its attacker knows, which rewrites its problem before it is solved."""
    if isinstance(case.attack, TamperingServer):
        return
    pruned = Prune(share=0.5)
    nobody = Batch(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    sent = pruned.wrap(lambda *_: case.observation.update)(case.observation.model, nobody, SEEDS)
    observation = dataclasses.replace(case.observation, update=sent)
    claims_have_one_row_per_trial(case, case.attack(observation, SEEDS, known=(Known(pruned),)))
    idle = case.attack(case.observation, SEEDS, known=(Known(Prune(share=0.0)),))
    _same(f"{case.attack.name}: knowing a defense of strength zero", idle, case.result)


def a_tampering_server_leaves_the_model_it_is_given_alone(case: AttackCase) -> None:
    """It sends another one."""
    if not isinstance(case.attack, TamperingServer):
        return
    digits, name = load("digits", "train"), case.attack.name
    for model in (load_model(spec, digits.spec, seed=3) for spec in MODELS[:2]):
        before = copy.deepcopy(model.state_dict())
        try:
            sent = case.attack.prepare(model, digits.spec, public_batch(digits, 32, seed=5))
        except NotApplicable:
            continue
        must.hold(sent is not model, f"{name}: sends the model it is given instead of a copy")
        must.leave_model_alone(name, model, before)


CHECKS = (  # the first sees what nothing has touched yet
    what_it_is_given_stays_as_it_was,
    claims_have_one_row_per_trial,
    same_seed_gives_the_same_result,
    trials_together_equal_trials_alone,
    hidden_facts_are_refused_by_name,
    a_wrong_number_of_seeds_is_refused,
    an_informed_attack_holds_to_the_same,
    a_tampering_server_leaves_the_model_it_is_given_alone,
)

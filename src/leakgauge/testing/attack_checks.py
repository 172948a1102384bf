"""What every attack must hold to, whoever wrote it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
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
    DataSpec,
    Fact,
    Known,
    LocalTraining,
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
    counts = {f.name: getattr(attack, f.name) for f in dataclasses.fields(attack) if f.name.endswith("steps")}
    several = attack.with_fields(restarts=2) or attack
    steps = 2 if several is attack else 1
    changed = dataclasses.replace(several, **{name: steps for name, count in counts.items() if count is not None})
    return changed if several is attack else changed.with_fields(lr=0.1) or changed


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

    def look(sent: nn.Module) -> Observation:
        facts = facts_about(sent, victims, data, LocalTraining(), public)
        return observe(sent, fedsgd()(sent, victims, SEEDS), knows, facts)

    if not isinstance(attack, TamperingServer):
        return look(model)
    sent: nn.Module | None = attack.prepare(model, data, public)
    asked = 0
    while sent is not None:
        observation, asked = look(sent), asked + 1
        sent = attack.ask_again(observation.take([0]), asked) if attack.asks_again else None
    return observation


def claims_have_one_row_per_trial(case: AttackCase, other: Reconstruction | None = None) -> None:
    """Shapes, kinds of numbers, and labels that exist; of the case's result, or of another one."""
    name, trials, result = case.attack.name, len(SEEDS), other or case.result
    must.hold(result.inputs is not None or result.labels is not None, f"{name}: claims neither inputs nor labels")
    if result.inputs is not None:
        wanted = (trials, 1, *case.data.shape)
        must.hold(result.inputs.shape == wanted, f"{name}: inputs are {tuple(result.inputs.shape)} and not {wanted}")
        must.hold(result.inputs.is_floating_point(), f"{name}: inputs are {result.inputs.dtype}, not floating point")
        must.hold(bool(torch.isfinite(result.inputs).all()), f"{name}: inputs hold nan or infinity")
    if result.labels is not None:
        labels, classes = result.labels, case.data.classes
        must.hold(labels.shape == (trials, 1), f"{name}: labels are {tuple(labels.shape)} and not {(trials, 1)}")
        must.hold(labels.dtype == torch.int64, f"{name}: labels are {labels.dtype}, not int64")
        exist = bool(((labels >= 0) & (labels < classes)).all())
        must.hold(exist, f"{name}: labels reach from {int(labels.min())} to {int(labels.max())}, of {classes} classes")
    for counted in ("objective", "steps", "evaluations"):
        value: Tensor = getattr(result, counted)
        must.hold(value.shape == (trials,), f"{name}: {counted} is {tuple(value.shape)} and not ({trials},)")
        must.hold(bool((torch.isfinite(value) & (value >= 0)).all()), f"{name}: {counted} is not finite, or below zero")
    must.hold(result.seconds >= 0, f"{name}: seconds is below zero")
    if result.trace is not None:
        must.hold(len(result.trace) == trials, f"{name}: trace has {len(result.trace)} rows for {trials} trials")
        must.hold(bool(torch.isfinite(result.trace[:, 0]).all()), f"{name}: trace begins with nan or infinity")


def same_seed_gives_the_same_result(case: AttackCase) -> None:
    """Bit for bit."""
    again = case.attack(case.observation, SEEDS)
    for part in ("inputs", "labels", "objective"):
        must.be_close(f"{case.attack.name}: run again, {part}", getattr(again, part), getattr(case.result, part))


def trials_together_equal_trials_alone(case: AttackCase) -> None:
    """To rounding: a trial's result hangs on its own seed and update, not on who is beside it."""
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
    must.hold(
        not any(t.requires_grad for t in observation.update.tensors.values()), f"{name} differentiates the update"
    )
    must.hold(observation.revealed.keys() == before.revealed.keys(), f"{name} changes the facts it is given")
    for fact, value in before.revealed.items():
        what, now = f"{name} changes the fact {fact.value}", observation.revealed[fact]
        if isinstance(value, Batch):
            must.be_close(what, value.inputs, now.inputs)
            must.be_close(what, value.labels, now.labels)
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
    observation = dataclasses.replace(case.observation, revealed=blind)
    said = _refusal(lambda: case.attack(observation, SEEDS), HiddenFact)
    says = said is not None and case.attack.name in said and fact.value in said
    must.hold(says, f"{case.attack.name}: runs without {fact.value}, which it needs, or does not say so: {said}")


def a_wrong_number_of_seeds_is_refused(case: AttackCase) -> None:
    """One seed per trial."""
    said = _refusal(lambda: case.attack(case.observation, SEEDS[:2]), BadInput)
    must.hold(said is not None and "seeds must be 3" in said, f"{case.attack.name}: takes 2 seeds for 3 trials: {said}")


def _refusal(call: Callable[[], object], kind: type[Exception]) -> str | None:
    try:
        call()
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
    for part in ("inputs", "labels", "objective"):
        what = f"{case.attack.name}: knowing a defense of strength zero, {part}"
        must.be_close(what, getattr(idle, part), getattr(case.result, part))


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

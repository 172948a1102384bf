"""What every attack must hold to, whoever wrote it: the folder is walked, a new file is covered by itself."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge import catalog
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.observe import facts_about, observe
from leakgauge.errors import BadInput, HiddenFact, NotApplicable
from leakgauge.settings import plain_type
from leakgauge.types import (
    Attack,
    Batch,
    DataSpec,
    Fact,
    LocalTraining,
    Observation,
    Reconstruction,
    TamperingServer,
    ThreatModel,
)

ATTACKS = catalog.find("attacks")
SEEDS = (11, 12, 13)
every_attack = pytest.mark.parametrize("name", ATTACKS)


@dataclasses.dataclass(frozen=True)
class Case:
    attack: Attack
    observation: Observation
    result: Reconstruction


def quick(attack: Attack) -> Attack:
    """Two short attempts, so that choosing between restarts is covered as well.

    Small strides, because long ones blow float32 rounding up to visible differences within twenty iterations.
    """
    for fields in ({"steps": 1, "restarts": 2, "lr": 0.1}, {"steps": 1, "restarts": 2}, {"steps": 2}):
        if changed := attack.with_fields(**fields):
            return changed
    return attack


def only(facts: frozenset[Fact]) -> ThreatModel:
    return ThreatModel("just-enough", "knows what the test says", "none", facts)


@pytest.fixture(scope="module")
def case(
    digits: DataSpec, victims: Batch, public: Batch, model_named: Callable[[str], nn.Module]
) -> Callable[[str], Case]:
    """The attack against lenet-dlg, mlp or vit, the first that fits, told exactly what it needs. Kept."""
    kept: dict[str, Case] = {}

    victims, public = (Batch(b.inputs.double(), b.labels) for b in (victims, public))

    def look(attack: Attack, model: nn.Module) -> Observation:
        update = fedsgd()(model, victims, SEEDS)
        facts = facts_about(model, victims, digits, LocalTraining(), public)
        return observe(model, update, only(attack.needs), facts)

    def meet(attack: Attack, model: nn.Module) -> Observation:
        """A server that asks again goes by the first victim's answers; its last model is sent to all."""
        if not isinstance(attack, TamperingServer):
            return look(attack, model)
        sent: nn.Module | None = attack.prepare(model, digits, public)
        asked = 0
        while sent is not None:
            observation, asked = look(attack, sent), asked + 1
            sent = attack.ask_again(observation.take([0]), asked) if attack.asks_again else None
        return observation

    def build(name: str) -> Case:
        attack = quick(ATTACKS[name]())
        refused = []
        for model_name in ("lenet-dlg", "mlp", "vit"):
            model = copy.deepcopy(model_named(model_name)).double()  # float32 rounding grows by the machine's own ways
            try:
                observation = meet(attack, model)
                return Case(attack, observation, attack(observation, SEEDS))
            except NotApplicable as error:
                refused.append(str(error))
        raise AssertionError(f"{name} fits none of lenet-dlg, mlp and vit: {refused}")

    def cached(name: str) -> Case:
        if name not in kept:
            kept[name] = build(name)
        return kept[name]

    return cached


def close(first: Tensor | None, second: Tensor | None) -> None:
    if first is None or second is None:
        assert first is second
        return
    torch.testing.assert_close(first, second, rtol=5e-3, atol=5e-3, equal_nan=True)


@every_attack
def test_describes_itself(name: str) -> None:
    attack = ATTACKS[name]
    assert attack.name == name == name.lower()
    assert "\n" not in attack.summary
    assert attack.summary
    assert attack.paper
    assert isinstance(attack.needs, frozenset)
    assert all(isinstance(fact, Fact) for fact in attack.needs)
    assert "Example:" in attack.__doc__
    assert f"leakgauge attack {name}" in attack.__doc__
    for field in dataclasses.fields(attack):
        assert field.metadata.get("help"), f"{name}: {field.name} has no help; declare it with setting(...)"


@every_attack
def test_claims_have_one_row_per_trial_and_finite_numbers(
    name: str, case: Callable[[str], Case], digits: DataSpec
) -> None:
    result = case(name).result
    assert result.inputs is not None or result.labels is not None, "an attack must claim something"
    if result.inputs is not None:
        assert result.inputs.shape == (len(SEEDS), 1, *digits.shape)
        assert result.inputs.is_floating_point()
        assert torch.isfinite(result.inputs).all()
    if result.labels is not None:
        assert result.labels.shape == (len(SEEDS), 1)
        assert result.labels.dtype == torch.int64
        assert result.labels.min() >= 0
        assert result.labels.max() < digits.classes
    for counted in (result.objective, result.steps, result.evaluations):
        assert counted.shape == (len(SEEDS),)
        assert torch.isfinite(counted).all()
        assert (counted >= 0).all()
    assert result.seconds >= 0
    if result.trace is not None:
        assert result.trace.shape[0] == len(SEEDS)
        assert torch.isfinite(result.trace[:, 0]).all()


@every_attack
def test_same_seed_gives_the_same_result(name: str, case: Callable[[str], Case]) -> None:
    known = case(name)
    again = known.attack(known.observation, SEEDS)
    for first, second in ((again.inputs, known.result.inputs), (again.labels, known.result.labels)):
        assert first is second or torch.equal(first, second)
    assert torch.equal(again.objective, known.result.objective)


@every_attack
def test_trials_together_equal_trials_alone(name: str, case: Callable[[str], Case]) -> None:
    together = case(name).result
    for t, seed in enumerate(SEEDS):
        alone = case(name).attack(case(name).observation.take([t]), [seed])
        close(alone.inputs, None if together.inputs is None else together.inputs[[t]])
        assert (alone.labels is None) == (together.labels is None)
        assert alone.labels is None or torch.equal(alone.labels, together.labels[[t]])
        torch.testing.assert_close(alone.objective, together.objective[[t]], rtol=1e-2, atol=1e-5)


@every_attack
def test_inputs_and_global_randomness_stay_untouched(
    name: str, case: Callable[[str], Case], global_randomness_untouched: Callable[..., Any]
) -> None:
    observation = case(name).observation
    observation.model.train()  # an attack that needs eval mode must work on a copy
    before = copy.deepcopy(observation)
    with global_randomness_untouched():
        case(name).attack(observation, SEEDS)
    assert observation.model.training, "the attack switched the caller's model to another mode"
    observation.model.eval()
    for key, tensor in before.model.state_dict().items():
        assert torch.equal(observation.model.state_dict()[key], tensor), key
    assert all(p.grad is None and p.requires_grad for p in observation.model.parameters())
    for key, tensor in before.update.tensors.items():
        assert torch.equal(observation.update.tensors[key], tensor), key
        assert not observation.update.tensors[key].requires_grad
    assert observation.revealed.keys() == before.revealed.keys()
    for fact, value in before.revealed.items():
        now = observation.revealed[fact]
        if isinstance(value, Batch):
            assert torch.equal(now.inputs, value.inputs), fact
            assert torch.equal(now.labels, value.labels), fact
        elif isinstance(value, Tensor):
            assert torch.equal(now, value), fact
        elif not isinstance(value, dict):
            assert now == value, fact


@pytest.mark.parametrize(("name", "fact"), [(n, f) for n, a in ATTACKS.items() for f in sorted(a.needs, key=str)])
def test_refuses_and_names_a_hidden_fact(name: str, fact: Fact, case: Callable[[str], Case]) -> None:
    observation = case(name).observation
    hidden = {f: v for f, v in observation.revealed.items() if f is not fact}
    blind = dataclasses.replace(observation, revealed=hidden)
    with pytest.raises(HiddenFact, match=f"{name}.*{fact.value}"):
        case(name).attack(blind, SEEDS)


@every_attack
def test_refuses_a_wrong_number_of_seeds(name: str, case: Callable[[str], Case]) -> None:
    with pytest.raises(BadInput, match="seeds must be 3"):
        case(name).attack(case(name).observation, SEEDS[:2])


@every_attack
def test_settings_survive_text_and_json(name: str) -> None:
    attack = ATTACKS[name]()
    assert attack.spec == name
    for changed in (attack, quick(attack), *one_field_changed(attack)):
        assert catalog.build("attacks", changed.spec) == changed
        assert type(attack).from_mapping(json.loads(json.dumps(changed.as_dict()))) == changed


def one_field_changed(attack: Attack) -> list[Attack]:
    """For each field the attack with another allowed value."""
    variants = []
    for field in dataclasses.fields(attack):
        value = getattr(attack, field.name)
        if field.metadata["choices"]:
            other: Any = next(c for c in (*field.metadata["choices"], value) if c != value)
        elif isinstance(value, bool):
            other = not value
        elif plain_type(type(attack), field.name) is int:
            other = (value or 0) + 1
        elif plain_type(type(attack), field.name) is str:
            other = "3-1-7" if field.name == "policy" else f"{value}x"  # any other text is no policy
        else:
            other = (value or 1e-7) / 3
        variants.append(dataclasses.replace(attack, **{field.name: other}))
    return variants


@pytest.mark.parametrize("name", [n for n, a in ATTACKS.items() if issubclass(a, TamperingServer)])
def test_tampering_server_leaves_the_model_it_is_given_alone(
    name: str, digits: DataSpec, public: Batch, model_named: Callable[[str], nn.Module]
) -> None:
    for model_name in ("lenet-dlg", "mlp"):
        model = model_named(model_name)
        before = copy.deepcopy(model.state_dict())
        try:
            sent = ATTACKS[name]().prepare(model, digits, public)
        except NotApplicable:
            continue
        assert sent is not model
        for key, tensor in before.items():
            assert torch.equal(model.state_dict()[key], tensor), key

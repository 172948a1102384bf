"""What every defence must hold to, whoever wrote it: the folder is walked, a new file is covered by itself."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from leakgauge import catalog
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load
from leakgauge.execution.table_cell import run_cell
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import (
    Attack,
    Batch,
    Defense,
    Guarantee,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
    Scenario,
    SharedUpdate,
)

DEFENSES = catalog.find("defenses")
SEEDS = (11, 12, 13)
KINDS = ("fedsgd", "fedavg")
every_defense = pytest.mark.parametrize("name", DEFENSES)


def strength_fields(defense: type[Defense]) -> dict[str, float]:
    """Fields that say how much: numbers that may go down to zero."""
    return {f.name: 0.0 for f in dataclasses.fields(defense) if f.metadata.get("low") == 0 and f.type == "float"}


def shared(defense: Defense | None, model: nn.Module, batch: Batch, seeds: Any, kind: str = "fedsgd") -> SharedUpdate:
    defenses = () if defense is None else (defense,)
    return chain(client_step(LocalTraining(kind=kind)), *defenses)(prepared(model, *defenses), batch, seeds)


@pytest.fixture(scope="module")
def model(model_named: Callable[[str], nn.Module]) -> nn.Module:
    return model_named("mlp")


@every_defense
def test_describes_itself(name: str) -> None:
    defense = DEFENSES[name]
    assert defense.name == name == name.lower()
    assert defense.summary
    assert "\n" not in defense.summary
    assert defense.paper
    assert f"--defense {name}" in defense.__doc__
    for field in dataclasses.fields(defense):
        assert field.metadata.get("help"), f"{name}: {field.name} has no help; declare it with setting(...)"


@every_defense
def test_settings_survive_text_and_json(name: str) -> None:
    defense = DEFENSES[name]()
    weaker = [dataclasses.replace(defense, **{field: 0.125}) for field in strength_fields(type(defense))]
    for changed in (defense, *weaker):
        assert catalog.build("defenses", changed.spec) == changed
        assert type(defense).from_mapping(json.loads(json.dumps(changed.as_dict()))) == changed


@pytest.mark.parametrize("kind", KINDS)
@every_defense
def test_zero_strength_is_the_identity(name: str, kind: str, model: nn.Module, victims: Batch) -> None:
    zero = strength_fields(DEFENSES[name])
    if not zero:
        pytest.skip(f"{name} has no field that turns it off")
    off = DEFENSES[name](**zero)
    bare, defended = shared(None, model, victims, SEEDS, kind), shared(off, model, victims, SEEDS, kind)
    assert defended.kind == bare.kind
    for key, tensor in bare.tensors.items():
        assert torch.equal(defended.tensors[key], tensor), key
    assert off.adaptive(DLG()) == off.adaptive(Linear()) == (), "there is nothing to know about a defence that is off"


@every_defense
def test_default_strength_does_something(name: str, model: nn.Module) -> None:
    """With two samples each: a defence may mix them."""
    victims = draw_victims(load("digits", "test"), trials=len(SEEDS), batch_size=2, seed=5)
    defense = DEFENSES[name]()
    if type(defense).aggregate is not Defense.aggregate or defense.prepare(model) is not model or defense.fellows:
        return  # acts at the server, inside the network or among clients
    bare, defended = shared(None, model, victims, SEEDS), shared(defense, model, victims, SEEDS)
    assert not all(torch.equal(defended.tensors[key], tensor) for key, tensor in bare.tensors.items())


@pytest.mark.parametrize("kind", KINDS)
@every_defense
def test_same_seed_gives_the_same_update(
    name: str, kind: str, model: nn.Module, victims: Batch, global_randomness_untouched: Callable[..., Any]
) -> None:
    with global_randomness_untouched():
        first = shared(DEFENSES[name](), model, victims, SEEDS, kind)
    torch.manual_seed(0)
    second = shared(DEFENSES[name](), model, victims, SEEDS, kind)
    for key, tensor in first.tensors.items():
        assert torch.equal(second.tensors[key], tensor), key


@pytest.mark.parametrize("kind", KINDS)
@every_defense
def test_clients_together_equal_clients_alone(name: str, kind: str, model: nn.Module, victims: Batch) -> None:
    together = shared(DEFENSES[name](), model, victims, SEEDS, kind)
    for t, seed in enumerate(SEEDS):
        alone = shared(DEFENSES[name](), model, victims.take([t]), [seed], kind)
        for key, tensor in together.tensors.items():
            torch.testing.assert_close(alone.tensors[key], tensor[[t]], rtol=1e-4, atol=1e-6, msg=key)


@every_defense
def test_two_clients_with_the_same_sample_get_randomness_of_their_own(
    name: str, model: nn.Module, victims: Batch
) -> None:
    twins = victims.take([0, 0])
    defense = DEFENSES[name]()
    alike, apart = shared(defense, model, twins, (4, 4)), shared(defense, model, twins, (4, 5))
    for key, tensor in alike.tensors.items():
        torch.testing.assert_close(tensor[0], tensor[1], msg=key)
        # Whatever seed 5 draws for client 1 must not reach client 0.
        torch.testing.assert_close(apart.tensors[key][0], tensor[0], msg=key)


@pytest.mark.parametrize("kind", KINDS)
@every_defense
def test_update_keeps_names_shapes_and_kind(name: str, kind: str, model: nn.Module, victims: Batch) -> None:
    defense = DEFENSES[name]()
    trained = prepared(model, defense)
    update = shared(defense, model, victims, SEEDS, kind)
    assert update.kind == {"fedsgd": "gradient", "fedavg": "weight_delta"}[kind]
    expected = {n: (len(SEEDS), *p.shape) for n, p in trained.named_parameters()}
    assert {n: tuple(t.shape) for n, t in update.tensors.items()} == expected
    for tensor in update.tensors.values():
        assert tensor.dtype == torch.float32
        assert torch.isfinite(tensor).all()
        assert not tensor.requires_grad


@every_defense
def test_neither_model_nor_batch_nor_inner_update_is_touched(name: str, model: nn.Module, victims: Batch) -> None:
    defense = DEFENSES[name]()
    weights, batch = copy.deepcopy(model.state_dict()), copy.deepcopy(victims)
    inner = client_step(LocalTraining())(prepared(model, defense), victims, SEEDS)
    kept = copy.deepcopy(inner)
    defense.wrap(lambda *_: inner)(prepared(model, defense), victims, SEEDS)
    for key, tensor in weights.items():
        assert torch.equal(model.state_dict()[key], tensor), key
    assert torch.equal(victims.inputs, batch.inputs)
    assert torch.equal(victims.labels, batch.labels)
    for key, tensor in kept.tensors.items():
        assert torch.equal(inner.tensors[key], tensor), key


@pytest.mark.parametrize("attack", [DLG(steps=7), Linear()], ids=lambda a: a.name)
@every_defense
def test_adaptive_attacks_are_the_same_attack_better_informed(name: str, attack: Attack) -> None:
    informed = DEFENSES[name]().adaptive(attack)
    assert informed, f"{name} does not say how {attack.name} would use knowing it; no defence row is non-adaptive only"
    for better in informed:
        assert type(better) is type(attack)
        assert better != attack
        assert better.with_fields(steps=7) in (better, None), "the user's own settings must be kept"
        assert catalog.build("attacks", better.spec) == better


@every_defense
def test_guarantee_is_accounted_or_absent(name: str) -> None:
    promise = DEFENSES[name]().guarantee()
    assert promise is None or isinstance(promise, Guarantee)
    if promise is not None:
        assert promise.epsilon > 0
        assert 0 <= promise.delta < 1
        assert promise.unit in ("sample", "client")


@every_defense
def test_aggregate_makes_one_update_of_many(name: str, model: nn.Module, victims: Batch) -> None:
    update = shared(DEFENSES[name](), model, victims, SEEDS)
    whole = DEFENSES[name]().aggregate(update)
    assert whole.kind == update.kind
    assert {n: tuple(t.shape) for n, t in whole.tensors.items()} == {
        n: (1, *t.shape[1:]) for n, t in update.tensors.items()
    }


@dataclasses.dataclass(frozen=True)
class Witness(RandomGuess):
    """Remembers what it was shown."""

    name: ClassVar[str] = "witness"
    baseline: ClassVar[bool] = False
    seen: ClassVar[list[Observation]] = []

    def reconstruct(self, observation: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        self.seen.append(observation)
        return super().reconstruct(observation, seeds, progress)


@every_defense
def test_the_attacker_receives_what_the_client_sent(name: str) -> None:
    scenario = Scenario(model="mlp:hidden=8", data="digits", trials=2, seed=9, defenses=(name,))
    setup = load_setup(scenario, None, "cpu")
    Witness.seen.clear()
    findings, _ = run_cell(setup, Cell(Witness(), name, False, "witness"), [], lambda _: None)
    assert [f.error for f in findings] == [None, None]
    defense = DEFENSES[name]()
    step = seen_step(client_step(scenario.local), defense)  # where clients hide in a sum, the sum is what was sent
    held = setup.victims.with_fellows((defense,), setup.behind((defense,)))
    sent = step(prepared(setup.model, defense), held, scenario.seeds)
    (observation,) = Witness.seen
    assert observation.update.tensors.keys() == sent.tensors.keys()
    for key, tensor in sent.tensors.items():
        assert torch.equal(observation.update.tensors[key], tensor), key
    for key, tensor in prepared(setup.model, defense).state_dict().items():
        assert torch.equal(observation.model.state_dict()[key], tensor), key

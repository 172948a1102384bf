"""What every defense must hold to, whoever wrote it: the folder is walked, a new file is covered by itself."""

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
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.grnn import GRNN
from leakgauge.attacks.inverting_gradients import InvertingGradients
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.peeling import Peeling
from leakgauge.attacks.random_guess import RandomGuess
from leakgauge.client.chain import chain, client_step, prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.client.summed import seen_step
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.defenses.local_steps import LocalSteps
from leakgauge.execution.table_cell import run_cell
from leakgauge.matching.first_layer import PeeledLayer
from leakgauge.matching.problem import Generated, Latent, Matching
from leakgauge.servers.imprint import Imprint
from leakgauge.servers.mkor import MKOR
from leakgauge.setup.capability import INFORMED, NO_HELP, NO_RULE, capability
from leakgauge.setup.plan import Cell
from leakgauge.setup.setup import load_setup
from leakgauge.types import (
    Attack,
    Batch,
    Defense,
    Guarantee,
    Known,
    LocalTraining,
    Observation,
    Progress,
    Reconstruction,
    Scenario,
    SharedUpdate,
    TamperingServer,
    threat_model,
)

DEFENSES = catalog.find("defenses")
SEEDS = (11, 12, 13)
KINDS = ("fedsgd", "fedavg")
ATTACKS = catalog.find("attacks")
EVERY_KIND: tuple[Attack, ...] = (  # one attack for each kind of problem
    DLG(steps=2, restarts=1),
    InvertingGradients(steps=2),
    GRNN(steps=2),
    GGL(steps=2, restarts=1),
    Linear(),
    Peeling(),
    RandomGuess(),
)
DROWNED = ("gaussian", "laplace", "sensitivity")  # noise, by larger gradients
BOUNDED = ("clip", "dp-sgd", "fed-cdp", "fed-sdp")  # whatever a server makes large is shortened
PEELED = ("clip", "dp-sgd", "dropout", "fed-cdp", "fed-sdp", "mixup", "precode", "sensitivity")
DOES_NOT_HELP: dict[type, tuple[str, ...]] = {
    Matching: ("mixing",),  # a cosine is blind to the scale that guessed weights leave open
    Generated: ("mixing",),
    Latent: ("fed-cdp", "gaussian", "laplace", "mixing"),  # no prior to weigh noise against; tensors clipped apart
    PeeledLayer: ("fed-cdp", "sensitivity"),  # rows and biases no longer go together
}
every_defense = pytest.mark.parametrize("name", DEFENSES)


def strength_fields(defense: type[Defense]) -> dict[str, float]:
    """Fields that say how much: numbers that may go down to zero."""
    return {f.name: 0.0 for f in dataclasses.fields(defense) if f.metadata.get("low") == 0 and f.type == "float"}


OFF: dict[str, Defense] = {name: d(**strength_fields(d)) for name, d in DEFENSES.items() if strength_fields(d)}
OFF["local-steps"] = LocalSteps(steps=1)


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
    if name not in OFF:
        pytest.skip(f"{name} has no field that turns it off")
    off = OFF[name]
    bare, defended = shared(None, model, victims, SEEDS, kind), shared(off, model, victims, SEEDS, kind)
    assert defended.kind == bare.kind
    for key, tensor in bare.tensors.items():
        assert torch.equal(defended.tensors[key], tensor), key
    assert off.idle, "it says by itself that it does nothing"
    assert not DEFENSES[name]().idle
    for attack in EVERY_KIND:
        assert off.ways(attack) == (), "there is nothing to know about a defense that is off"


@every_defense
def test_default_strength_does_something(name: str, model: nn.Module) -> None:
    """With two samples each: a defense may mix them."""
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


# --- what a defense tells an attacker ---------------------------------------------------------------


def seen_behind(defense: Defense | None, model: nn.Module, samples: int = 4) -> Observation:
    """What an attacker sees of two clients with this defense, who train as it wants them to."""
    data, defenses = load("digits"), () if defense is None else (defense,)
    batch, net = draw_victims(data, 2, samples, seed=5), prepared(model, *defenses)
    locked = any("norm" in module for module, _ in net.named_modules())
    local = LocalTraining(batchnorm="train" if locked else "eval")
    update = chain(client_step(local), *defenses)(net, batch, SEEDS[:2])
    facts = facts_about(net, batch, data.spec, local, public_batch(load("digits", "train"), 32, seed=5))
    return observe(net, update, threat_model("honest-but-curious+labels"), facts)


def changed_fields(one: Any, other: Any) -> set[str]:
    return {name for name, value in vars(one).items() if getattr(other, name) is not value}


def test_every_kind_of_problem_is_tried() -> None:
    assert {attack.kind for attack in ATTACKS.values()} == {attack.kind for attack in EVERY_KIND}


@pytest.mark.parametrize("attack", EVERY_KIND, ids=lambda a: a.name)
def test_knowing_a_defense_of_strength_zero_changes_no_bit(attack: Attack, model: nn.Module) -> None:
    seen = seen_behind(None, model, samples=1)
    plain, problem = attack(seen, SEEDS[:2]), attack.problem(seen, SEEDS[:2])
    for name, off in OFF.items():
        assert off.informs(problem, seen, "") is problem, name
        found = attack(seen, SEEDS[:2], known=(Known(off),))
        for part in ("inputs", "labels", "objective"):
            one, other = getattr(plain, part), getattr(found, part)
            assert (one is None and other is None) or torch.equal(one, other), (name, part)


@pytest.mark.parametrize("server", [MKOR(), Imprint()], ids=lambda a: a.name)
def test_a_server_that_knows_a_defense_of_strength_zero_sends_the_same(server: TamperingServer) -> None:
    assert {off.informs_server(server) for off in OFF.values()} == {server}


@every_defense
def test_a_problem_without_a_rule_stays_as_it_is(name: str, model: nn.Module) -> None:
    defense = DEFENSES[name]()
    seen = seen_behind(defense, model)
    for attack in EVERY_KIND:
        if not defense.has_rule_for(type(attack)):
            problem = attack.problem(seen, SEEDS[:2])
            assert defense.informs(problem, seen, "") is problem
            assert defense.ways(attack) == ()
    assert defense.informs(seen, seen, "") is seen, "an attack that poses no problem is never informed"


@every_defense
def test_every_way_to_know_it_says_something_to_the_attack(name: str, model: nn.Module) -> None:
    defense = DEFENSES[name]()
    seen = seen_behind(defense, model)
    for attack in EVERY_KIND:
        ways = (*defense.ways(attack), *defense.weaker_ways(attack))
        assert len(set(ways)) == len(ways)
        assert ways == ("",) or all(ways), "of several ways each has a name"
        assert not any(sign in way for way in ways for sign in "@+"), "these part the ways of an assumed chain"
        problem = attack.problem(seen, SEEDS[:2]) if ways else None
        for way in ways:
            informed = defense.informs(problem, seen, way)
            assert type(informed) is type(problem)
            assert changed_fields(problem, informed), f"{attack.name} {way!r}"


@pytest.mark.parametrize("attack", ATTACKS)
@every_defense
def test_it_is_declared_for_every_attack_whether_knowing_the_defense_helps(name: str, attack: str) -> None:
    """Informed, or knowing does not help, or there is no rule yet: never by silence."""
    kind = ATTACKS[attack]
    if kind.baseline:
        expected = NO_HELP
    elif issubclass(kind, TamperingServer):
        louder = INFORMED if kind().louder() is not None else NO_HELP
        expected = louder if name in DROWNED else NO_HELP if name in BOUNDED else NO_RULE
    elif kind.kind is Observation or (kind.kind is PeeledLayer and name not in PEELED):
        expected = NO_RULE
    else:
        expected = NO_HELP if name in DOES_NOT_HELP.get(kind.kind, ()) else INFORMED
    assert capability(kind(), DEFENSES[name]()).verdict == expected


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

    def solve(self, problem: Observation, seeds: tuple[int, ...], progress: Progress) -> Reconstruction:
        self.seen.append(problem)
        return super().solve(problem, seeds, progress)


@every_defense
def test_the_attacker_receives_what_the_client_sent(name: str) -> None:
    scenario = Scenario(model="mlp:hidden=8", data="digits", trials=2, seed=9, defenses=(name,))
    setup = load_setup(scenario, None, "cpu")
    Witness.seen.clear()
    findings, _ = run_cell(setup, Cell(Witness(), name, False, "witness"), lambda _: None)
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

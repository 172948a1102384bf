"""What every defense must hold to, whoever wrote it: the folder is walked, a new file is covered by itself.

The checks are those that users run on a defense of their own.
"""

from __future__ import annotations

import dataclasses
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
from leakgauge.testing import _must as must
from leakgauge.testing import defense_checks as checks
from leakgauge.testing.defense_checks import DefenseCase, defense_case
from leakgauge.types import (
    Attack,
    Batch,
    Client,
    Defense,
    Known,
    Observation,
    Progress,
    Reconstruction,
    Scenario,
    TamperingServer,
    threat_model,
)

DEFENSES = catalog.find("defenses")
SEEDS = (11, 12, 13)
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


@pytest.fixture(scope="module")
def model(model_named: Callable[[str], nn.Module]) -> nn.Module:
    return model_named("mlp")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@every_defense
def test_it_holds_to_the_contract(name: str, check: Callable[[DefenseCase], None]) -> None:
    check(defense_case(DEFENSES[name]()))


@every_defense
def test_describes_itself_and_its_settings_survive_text_and_json(name: str) -> None:
    defense = DEFENSES[name]
    must.describe_itself(defense)
    assert defense.name == name
    assert f"--defense {name}" in defense.__doc__
    weaker = [defense(**{field: 0.125}) for field in strength_fields(defense)]
    for made in (defense(), *weaker):
        must.survive_writing(made)
        assert catalog.build("defenses", made.spec) == made


@pytest.mark.parametrize("kind", checks.KINDS)
@pytest.mark.parametrize("name", OFF)
def test_at_strength_zero_nothing_changes_and_there_is_nothing_to_know(name: str, kind: str, victims: Batch) -> None:
    case = defense_case(OFF[name])
    bare = checks.shared((), case.model, victims, SEEDS, kind)
    must.be_equal(name, bare.tensors, case.shared(kind).tensors)
    assert OFF[name].idle, "it says by itself that it does nothing"
    assert not DEFENSES[name]().idle
    assert all(OFF[name].ways(attack) == () for attack in EVERY_KIND)


@every_defense
def test_default_strength_does_something(name: str, model: nn.Module) -> None:
    """With two samples each: a defense may mix them."""
    victims = draw_victims(load("digits", "test"), trials=len(SEEDS), batch_size=2, seed=5)
    defense = DEFENSES[name]()
    if type(defense).aggregate is not Defense.aggregate or defense.prepare(model) is not model or defense.fellows:
        return  # acts at the server, inside the network or among clients
    bare, defended = (checks.shared(used, model, victims, SEEDS, "fedsgd") for used in ((), (defense,)))
    assert not all(torch.equal(defended.tensors[key], tensor) for key, tensor in bare.tensors.items())


# --- what an attacker learns from a defense ---------------------------------------------------------------


def seen_behind(defense: Defense | None, model: nn.Module, samples: int = 4) -> Observation:
    """What an attacker sees of two clients with this defense, who train as it wants them to."""
    data, defenses = load("digits"), () if defense is None else (defense,)
    batch, net = draw_victims(data, 2, samples, seed=5), prepared(model, *defenses)
    locked = any("norm" in module for module, _ in net.named_modules())
    local = Client(batchnorm="train" if locked else "eval")
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

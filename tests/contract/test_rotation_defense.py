"""A defense with a way of its own to be beaten is one file: attacks that never heard of it play it informed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from leakgauge import catalog
from leakgauge.cli import main
from leakgauge.client.chain import chain, client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load, public_batch
from leakgauge.models import load_model
from leakgauge.setup.plan import informed_by
from leakgauge.testing import check_defense
from leakgauge.types import Batch, Client, Known, Observation, threat_model

SEEDS = (0, 1)
FILE = Path(__file__).with_name("rotation_defense.py")
SHORT = (
    "dlg:steps=10,restarts=1",
    "inverting-gradients:steps=40",
    "gradinversion:steps=40,restarts=2,warm_up=5",
    "grnn:steps=40,lr=0.002,scale=mixed",
    "ggl:steps=25,restarts=1",
    "gias:steps=20,weight_steps=15,restarts=1",
)
Scene = tuple[Batch, Observation]


@pytest.fixture(scope="module")
def rotation() -> Any:
    return catalog.build("defenses", f"{FILE}:Rotation")


def seen_by_attacker(rotation: Any, model: str, told: str) -> Scene:
    """Two clients of one digit each, and what is seen of their turned updates; in double precision."""
    data = load("digits")
    network = load_model(model, data.spec, seed=0).double()
    victims, public = draw_victims(data, len(SEEDS), 1, 5), public_batch(load("digits", "train"), 64, seed=5)
    victims, public = (Batch(batch.inputs.double(), batch.labels) for batch in (victims, public))
    update = chain(client_step(Client()), rotation)(network, victims, SEEDS)
    facts = facts_about(network, victims, data.spec, Client(), public)
    return victims, observe(network, update, threat_model(told), facts)


def errors_of(attack: str, scene: Scene, known: tuple[Known, ...] = ()) -> Tensor:
    """(T,): mean squared error of what the attack recovers."""
    victims, seen = scene
    found = catalog.build("attacks", attack)(seen, SEEDS, known=known).inputs
    assert found is not None
    return (found - victims.inputs).square().flatten(1).mean(1)


@pytest.mark.parametrize("attack", SHORT, ids=lambda spec: spec.partition(":")[0])
def test_who_knows_the_rotation_comes_closer_with_every_attack_that_matches_gradients(
    rotation: Any, attack: str
) -> None:
    scene = seen_by_attacker(rotation, "lenet-dlg:filters=3", "honest-but-curious+labels")
    (known,) = informed_by(catalog.build("attacks", attack), (rotation,))
    assert known == (Known(rotation),)
    assert (errors_of(attack, scene, known) < 0.6 * errors_of(attack, scene)).all()


def test_it_holds_to_the_contract_of_defenses(rotation: Any) -> None:
    check_defense(rotation)
    check_defense(type(rotation))


def test_the_first_layers_ratio_is_exact_again(rotation: Any) -> None:
    scene = seen_by_attacker(rotation, "mlp:hidden=16", "honest-but-curious")
    assert (errors_of("linear", scene) > 0.1).all()
    assert (errors_of("linear", scene, (Known(rotation),)) < 1e-20).all()


def test_the_truth_explains_the_update_whatever_the_signs(rotation: Any) -> None:
    victims, seen = seen_by_attacker(rotation, "lenet-dlg:filters=3", "honest-but-curious+labels")
    problem = catalog.build("attacks", "dlg").problem(seen, SEEDS)
    rows, truth = torch.arange(len(SEEDS)), victims.inputs.flatten(1)
    assert (problem.values(rows)(truth) > 0.1).all()
    assert (rotation.informs(problem, seen, "").values(rows)(truth) < 1e-20).all()


def test_labels_that_were_read_off_a_turned_layer_are_searched_for(rotation: Any) -> None:
    attack, seeds = catalog.build("attacks", "inverting-gradients"), SEEDS
    for told, searched in (("honest-but-curious", True), ("honest-but-curious+labels", False)):
        _, seen = seen_by_attacker(rotation, "lenet-dlg:filters=3", told)
        problem = attack.problem(seen, seeds)
        assert problem.labels is not None
        assert (rotation.informs(problem, seen, "").labels is None) is searched


def test_a_rotation_keeps_lengths_and_its_key_decides_it(rotation: Any) -> None:
    tensor = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turned = rotation.turned("a.weight", tensor)
    torch.testing.assert_close(turned.flatten(2).norm(dim=2), tensor.flatten(2).norm(dim=2))
    torch.testing.assert_close(rotation.turned("a.weight", turned, back=True), tensor)
    assert not torch.allclose(type(rotation)(key=8).turned("a.weight", tensor), turned)


def test_an_audit_takes_it_from_the_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = ["--model", "mlp:hidden=16", "--data", "digits", "--trials", "2", "--attacks", "linear"]
    assert main(["audit", *scenario, "--defenses", f"{FILE}:Rotation", "--json", "--out", str(tmp_path / "run")]) == 0
    rows = json.loads(capsys.readouterr().out)["summary"]
    recovered = {r["adaptive"]: r["met"] for r in rows if r["attack"] == "linear" and "Rotation" in r["defense"]}
    assert recovered == {False: 0, True: 2}

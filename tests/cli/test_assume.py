"""`--assume`: what informed attackers take for the defense, right or wrong."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file, save_file

from leakgauge.client.chain import client_step
from leakgauge.data import draw_victims, load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.models import load_model
from leakgauge.types import Client

SMALL = ("--model", "mlp:hidden=16", "--data", "digits")
CHAIN = ("--defense", "prune:share=0.5")


def test_the_assumed_defense_stands_in_the_scenario_and_the_report(leakgauge, tmp_path):
    outcome = leakgauge(
        "attack", "linear", *SMALL, "--trials", 1, *CHAIN, "--assume", "gaussian:std=0.1", "--json", "--out", "run"
    )
    assert outcome.code == 0, outcome.err
    assert outcome.json["scenario"]["assume"] == "gaussian:std=0.1"
    assert {row["defense"] for row in outcome.json["summary"]} == {"prune:share=0.5"}
    assert [row["adaptive"] for row in outcome.json["summary"]] == [False, True]
    page = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "Informed attackers take the defense for: gaussian:std=0.1" in page


def test_one_way_is_chosen_and_named_in_the_row(leakgauge):
    search = ("dlg", *SMALL, "--steps", 1, "--restarts", 1, "--trials", 1, "--defense", "soteria", "--adaptive")
    outcome = leakgauge("attack", *search, "--assume", "soteria@visible columns", "--json", "--out", "run")
    assert [row["attack"] for row in outcome.json["summary"]] == ["dlg (visible columns)"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--assume", "prun"), "did you mean 'prune'"),
        (("--assume", "soteria@all"), "one of 'without the layer', 'visible columns', got 'all'"),
        (("--assume", "prune@all"), "these attacks have no ways with a name, got 'all'"),
        (("--assume", "prune", "--plain"), "assume must be left out with variants"),
    ],
)
def test_what_cannot_be_assumed_is_one_line(leakgauge, one_line, given, said):
    assert said in one_line(leakgauge("attack", "dlg", *SMALL, *CHAIN, *given))


def test_an_audit_refuses_it_the_same_way(leakgauge, one_line):
    refused = leakgauge("audit", *SMALL, "--attacks", "dlg", "--defenses", "prune", "--assume", "prun")
    assert "did you mean 'prune'" in one_line(refused)


@pytest.fixture
def noisy(tmp_path):
    """A saved update of a client that adds noise, and what is behind it."""
    model = load_model("mlp:hidden=16", load("digits").spec, seed=0)
    victims = draw_victims(load("digits", "test"), trials=1, batch_size=1, seed=8)
    step = Gaussian(std=0.003).wrap(client_step(Client()))
    save_file(dict(step(model, victims, (0,)).tensors), tmp_path / "update.safetensors")
    return victims


def test_a_saved_update_is_attacked_as_one_that_was_defended(leakgauge, noisy, tmp_path):
    command = ("attack", "linear", *SMALL, "--update", "update.safetensors", "--json", "--out")
    errors = []
    for folder, more in (("plain", ()), ("informed", ("--assume", "gaussian:std=0.003"))):
        outcome = leakgauge(*command, folder, *more)
        assert outcome.code == 0, outcome.err
        assert [f["adaptive"] for f in outcome.json["findings"]] == [bool(more)]
        found = load_file(tmp_path / folder / "reconstruction.safetensors")["inputs"]
        errors.append(float((found - noisy.inputs).square().mean()))
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    ("attack", "assumed", "said"),
    [("dlg", "soteria", "'without the layer', 'visible columns'"), ("labels", "prune", "something that helps labels")],
)
def test_a_saved_update_is_attacked_in_one_way(leakgauge, noisy, one_line, attack, assumed, said):
    command = ("attack", attack, *SMALL, "--update", "update.safetensors")
    assert said in one_line(leakgauge(*command, "--assume", assumed))

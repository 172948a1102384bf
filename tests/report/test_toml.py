"""The scenario on the page is the scenario that was run."""

import tomllib

import pytest

from leakgauge.report import scenario_toml
from leakgauge.types import LocalTraining, Scenario


def back(scenario: Scenario) -> Scenario:
    return Scenario.from_mapping(tomllib.loads(scenario_toml(scenario)))


def test_defaults_round_trip():
    assert back(Scenario()) == Scenario()


def test_every_field_round_trips():
    scenario = Scenario(
        model="mlp:width=64",
        data="folder/of pictures",
        batch_size=4,
        batch_labels="distinct",
        local=LocalTraining(kind="fedavg", epochs=3, batch_size=2, lr=1e-05, batchnorm="train"),
        defenses=("gaussian:std=0.1+prune:share=0.9", "dp-sgd"),
        threat_model="honest-but-curious+labels",
        attacks=("dlg",),
        trials=50,
        seed=2**30,
        weights="C:\\models\\a.pt",
    )
    assert back(scenario) == scenario


@pytest.mark.parametrize("text", ['"', "\\", "\n\r\t\b\f", "\x00\x1f\x7f", "é 😀", "'''", '"""', "a = 1\n[local]"])
def test_any_text_round_trips(text):
    assert back(Scenario(model=text, weights=text)) == Scenario(model=text, weights=text)

"""Flags over a scenario: given ones change it, the others leave it alone."""

from __future__ import annotations

import pytest

from leakgauge.cli.options import Run, changed
from leakgauge.errors import BadInput
from leakgauge.types import Client, Scenario, Training

SCENARIO = Scenario(model="mlp", data="digits", local=Client(kind="fedavg", lr=0.5), defenses=("prune",), seed=3)


def test_nothing_given_changes_nothing():
    assert changed(SCENARIO, model=None, trials=None, local=None) == SCENARIO


def test_what_is_given_is_changed_and_the_rest_kept():
    assert changed(SCENARIO, trials=9, local="kind=fedavg,epochs=2") == Scenario(
        model="mlp", data="digits", local=Client(kind="fedavg", epochs=2), defenses=("prune",), seed=3, trials=9
    )


def test_training_and_precision_are_read_as_the_other_settings_are():
    told = changed(SCENARIO, training="rounds=20,lr=0.1,optimizer=sgd", precision="float64")
    assert told.training == Training(rounds=20, lr=0.1, optimizer="sgd")
    assert told.precision == "float64"
    assert told.local == SCENARIO.local
    assert changed(told, training=None, precision=None) == told


def test_zero_is_given_too():
    with pytest.raises(BadInput, match="trials"):
        changed(SCENARIO, trials=0)
    assert changed(SCENARIO, seed=0).seed == 0


@pytest.mark.parametrize(("choice", "word"), [(None, None), (True, "adaptive"), (False, "plain")])
def test_variants(choice, word):
    assert Run(adaptive=choice).variants == word


def test_flags_that_are_fields_of_a_scenario_are_laid_over_it():
    given = Run(model="mlp", trials=9, metrics="mae lpips", adaptive=False, fresh=True)
    assert given.over(SCENARIO, defenses=()) == changed(
        SCENARIO, trials=9, metrics=("mae", "lpips"), variants="plain", defenses=()
    )


def test_a_client_of_ones_own_is_short_for_its_settings():
    given = Run(client="task.py:train,lr=0.1,momentum=0.9")
    assert given.over(SCENARIO).local == Client(kind="fedavg", fit="task.py:train", lr=0.1, momentum=0.9)
    beside = Run(client="task.py:train", local="lr=0.1,momentum=0.9")
    assert beside.over(SCENARIO).local == given.over(SCENARIO).local


@pytest.mark.parametrize(
    "text", ["train", "lr=0.1,fit=task.py:train", "task.py:train,kind=fedsgd", "task.py:train,fit=a"]
)
def test_a_client_that_names_no_function_first_is_refused(text):
    with pytest.raises(BadInput, match="--client"):
        Run(client=text).over(SCENARIO)


def test_attackers_know_the_settings_and_never_the_function():
    given = Run(client="task.py:train,lr=0.1").over(SCENARIO).local
    assert given.declared == Client(kind="fedavg", lr=0.1)
    assert given.declared.declared == given.declared

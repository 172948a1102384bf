"""Whose updates were attacked is told as it was: simulated, given or recorded."""

import dataclasses

import pytest

from leakgauge.recording.own_update import IN_PYTHON
from leakgauge.report import to_html, to_markdown, to_officer, to_summary
from leakgauge.report.numbers import counted
from leakgauge.report.subject import (
    attacked,
    facts_given,
    facts_not_given,
    kind_of_update,
    labels_sentence,
    local_training,
    title_of,
    update_of,
)
from leakgauge.types import ORACLES, Client, Fact, Scenario
from leakgauge.types.client import Partition


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({}, "simulated", "of simulated clients"),
        ({"update": "u.pt"}, "given", "u.pt"),
        ({"update": "folder", "round": 2}, "recorded", "folder (round 2 of a recording)"),
        ({"model": IN_PYTHON, "data": IN_PYTHON}, "given", "given in Python"),
    ],
)
def test_where_an_update_comes_from(changes, kind, said):
    scenario = Scenario(**changes)
    assert (kind_of_update(scenario), update_of(scenario)) == (kind, said)


def test_numbers_and_nouns_agree():
    assert [counted("update", n) for n in (0, 1, 2, 1000)] == ["0 updates", "1 update", "2 updates", "1,000 updates"]


def test_every_page_names_what_was_given_in_python_in_words(made):
    scenario = dataclasses.replace(made.report.scenario, model=IN_PYTHON, data=IN_PYTHON)
    report = dataclasses.replace(made.report, scenario=scenario)
    title = "A model and an update given in Python"
    assert title_of(report) == title
    for text in (to_html(report), to_markdown(report), to_officer(report), to_summary(report)):
        assert title in text
    for text in (to_html(report), to_markdown(report)):  # no file names them, so no command repeats the run
        assert "audit_update" in text
        assert "leakgauge audit scenario.toml" not in text


# --- what was attacked, and what was known --------------------------------------------------------

ORACLE = "an oracle"


def with_scenario(report, **changes):
    return dataclasses.replace(report, scenario=dataclasses.replace(report.scenario, **changes))


def with_told(report, *facts):
    return dataclasses.replace(report, facts=tuple(fact.value for fact in facts))


def test_the_target_is_described_by_the_scenario_and_the_data(made):
    report = with_scenario(made.report, weights="w.pt", batch_labels="distinct", seed=41)
    said = {
        "Model": "lenet-dlg",
        "Weights": "w.pt",
        "Data": "photos32 (image, 3 × 8 × 8, 10 classes)",
        "Samples per update": "2 (labels within a batch: distinct)",
        "Local training": local_training(report.scenario),
        "Defenses": "gaussian:std=0.1",
        "Attacks": "dlg, inverting-gradients",
        "Trials": "3 victims per cell",
        "Seed": "41",
    }
    assert said.items() <= dict(attacked(report)).items()


def test_what_informed_attackers_take_for_the_defense_is_said_where_they_were_not_given_the_true_one(made):
    name = "Informed attackers take the defense for"
    assert dict(attacked(with_scenario(made.report, assume="gaussian:std=1")))[name] == "gaussian:std=1"
    assert name not in dict(attacked(made.report))


def test_what_was_left_to_the_defaults_is_said_in_words(made):
    said = dict(attacked(with_scenario(made.report, weights=None, defenses=(), attacks=())))
    assert said["Weights"] == "freshly initialised from the seed"
    assert said["Defenses"] == "none"
    assert said["Attacks"] == "the suite quick"


def test_how_the_data_is_spread_over_clients_is_told(made):
    skewed = with_scenario(made.report, partition=Partition(kind="dirichlet", alpha=0.05))
    assert attacked(skewed) != attacked(made.report)


def test_a_single_trial_has_a_single_victim(made):
    assert dict(attacked(with_scenario(made.report, trials=1)))["Trials"] == "1 victim per cell"


def test_of_a_given_update_nothing_is_made_up(made):
    """No pool, no drawing of labels, no victims in cells: the update is what it is."""
    said = dict(attacked(with_scenario(made.report, update="update.pt", trials=1)))
    assert said["Update"] == "update.pt"
    assert said["Samples per update"] == "2"
    assert said["Clients"] == "the one whose update was given"
    assert said["Trials"] == "1 update"
    weighted = dataclasses.replace(made.report, environment={"model state": "weights from net.pt"})
    assert dict(attacked(weighted))["Weights"] == "net.pt"
    several = dict(attacked(with_scenario(made.report, update="folder", round=4, trials=3)))
    assert several["Update"] == "folder (round 4 of a recording)"
    assert several["Clients"] == "the 3 whose updates were recorded"
    assert several["Trials"] == "3 updates"


def test_what_was_given_in_python_is_said_to_be(made):
    said = dict(attacked(with_scenario(made.report, model=IN_PYTHON, data=IN_PYTHON, trials=1)))
    assert (said["Model"], said["Update"]) == ("given in Python", "given in Python")
    assert said["Data"].startswith("the batch given in Python (")


def test_a_table_has_the_shape_of_its_rows(make):
    assert dict(attacked(make("tabular", (30,)).report))["Data"] == "photos32 (tabular, 30, 10 classes)"


@pytest.mark.parametrize(
    ("local", "text"),
    [
        (Client(), "fedsgd: one gradient is shared; BatchNorm, if any, uses running statistics"),
        (Client(batchnorm="train"), "fedsgd: one gradient is shared; BatchNorm, if any, uses batch statistics"),
        (
            Client(kind="fedavg", epochs=1, lr=0.01),
            "fedavg: 1 local epoch, all samples at once, learning rate 0.01; "
            "BatchNorm, if any, uses running statistics",
        ),
        (
            Client(kind="fedavg", epochs=5, batch_size=4, lr=1e-5, batchnorm="train"),
            "fedavg: 5 local epochs, mini-batches of 4, learning rate 1e-05; BatchNorm, if any, uses batch statistics",
        ),
    ],
)
def test_local_training_says_what_is_shared_and_how_it_came_about(local, text):
    assert local_training(Scenario(local=local)) == text


@pytest.mark.parametrize("fact", Fact)
def test_every_fact_is_either_told_or_not_told_and_in_words(made, fact):
    given, bare = with_told(made.report, fact), with_told(made.report)
    (said,) = facts_given(given)
    (words,) = set(facts_not_given(bare)) - set(facts_not_given(given))
    assert said.partition(" (")[0] == words
    assert len(facts_not_given(given)) == len(Fact) - 1
    assert words != fact.value


@pytest.mark.parametrize("fact", Fact)
def test_oracles_and_only_they_are_confessed(made, fact):
    word = {Fact.LABELS: "+labels", Fact.BATCHNORM_STATISTICS: "+batchnorm"}.get(fact, "")
    report = with_scenario(made.report, threat_model=f"honest-but-curious{word}")
    (said,) = facts_given(with_told(report, fact))
    assert (ORACLE in said) == (fact in ORACLES)


def test_statistics_that_nobody_gave_were_read_off_the_shared_averages(made):
    (said,) = facts_given(with_told(made.report, Fact.BATCHNORM_STATISTICS))
    assert said.endswith("(read off the running averages that were shared)")


def test_facts_are_told_in_the_order_of_the_report(made):
    facts = (Fact.LABELS, Fact.INPUT_SPEC)
    assert facts_given(with_told(made.report, *facts)) == facts_given(with_told(made.report, *facts[::-1]))[::-1]


def test_a_fact_without_words_is_still_told(made):
    assert facts_given(dataclasses.replace(made.report, facts=("shoe-size",))) == ["shoe-size"]


def test_nothing_told_and_everything_told_leave_no_rest(made):
    assert facts_given(with_told(made.report)) == []
    assert facts_not_given(with_told(made.report, *Fact)) == []


def test_labels_given_take_the_worth_from_recovered_labels(made):
    assert labels_sentence(with_told(made.report, Fact.LABELS)).endswith("recovered labels prove nothing.")
    assert "not given" in labels_sentence(with_told(made.report, Fact.BATCHNORM_STATISTICS))

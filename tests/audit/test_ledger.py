"""One assumption changed at a time, on the same victims; what cannot be changed says so."""

import dataclasses

import pytest

from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.linear import Linear
from leakgauge.audit.ledger import changes
from leakgauge.audit.run import run_audit
from leakgauge.report import from_json, to_json
from leakgauge.report.markdown import to_markdown
from leakgauge.setup.setup import load_setup
from leakgauge.types import Client, Fact, Scenario

TINY = Scenario(data="digits", model="mlp:hidden=16", trials=2, attacks=("linear",), ledger=True)


def by_fact(setup, attack):
    return {c.fact: c for c in changes(setup, attack)}


def test_facts_are_switched_off_and_oracles_on():
    found = by_fact(load_setup(TINY, None, "cpu"), Linear())
    assert Fact.LABELS in found["labels"].setup.threat_model.facts
    assert Fact.PUBLIC_DATA not in found["public-data"].setup.threat_model.facts
    assert found["num-samples"].setup.assumed == {Fact.NUM_SAMPLES: 2}


def test_labels_that_were_given_are_kept_back():
    told = dataclasses.replace(TINY, threat_model="honest-but-curious+labels")
    change = by_fact(load_setup(told, None, "cpu"), Linear())["labels"]
    assert (change.audit, change.instead) == ("given", "inferred or searched for")
    assert Fact.LABELS not in change.setup.threat_model.facts


def test_what_cannot_be_changed_is_listed_with_the_reason():
    found = by_fact(load_setup(TINY, None, "cpu"), GGL())
    assert all(found[f].setup is None for f in ("input-spec", "batchnorm-statistics", "learning-rate", "public-data"))
    assert "does not run without it" in found["public-data"].why_not
    assert "no rate is in it" in found["learning-rate"].why_not


def test_a_model_with_batchnorm_gets_its_statistics_given():
    made = load_setup(dataclasses.replace(TINY, model="resnet20:width=2", attacks=()), None, "cpu")
    assert Fact.BATCHNORM_STATISTICS in by_fact(made, Linear())["batchnorm-statistics"].setup.threat_model.facts


def test_what_is_known_of_a_client_is_assumed_wrongly_one_thing_at_a_time():
    local = Client(kind="fedavg", lr=0.1, momentum=0.9, epochs=2, batch_size=2)
    found = by_fact(load_setup(dataclasses.replace(TINY, local=local, batch_size=4), None, "cpu"), Linear())
    wrong = {"learning-rate": {"lr": 0.2}, "momentum": {"momentum": 0.0}, "epochs": {"epochs": 3}}
    wrong |= {"order": {"order": "shuffled"}, "optimizer": {"optimizer": "adam", "momentum": 0.0}}
    for fact, changed in wrong.items():
        assert found[fact].setup.assumed == {Fact.LOCAL_TRAINING: dataclasses.replace(local, **changed)}
    adam = dataclasses.replace(local, optimizer="adam", momentum=0.0, batch_size=0, epochs=1)
    found = by_fact(load_setup(dataclasses.replace(TINY, local=adam, batch_size=4), None, "cpu"), Linear())
    assert found["optimizer"].instead == "assumed to be sgd"
    assert found["momentum"].why_not == "adam has none"
    assert found["order"].why_not == "a sample has no place in it"
    one = dataclasses.replace(local, batch_size=0, epochs=1)
    found = by_fact(load_setup(dataclasses.replace(TINY, local=one, batch_size=4), None, "cpu"), Linear())
    assert "single step" in found["momentum"].why_not


@pytest.fixture(scope="module")
def report():
    local = Client(kind="fedavg", lr=0.1)
    return run_audit(dataclasses.replace(TINY, local=local, batch_size=1))[0]


def test_a_ratio_does_not_mind_the_learning_rate_but_the_number_of_samples(report):
    found = {a.fact: a for a in report.ledger}
    rate = found["learning-rate"]
    assert (rate.recovered, rate.recovered_instead) == (2, 2)
    assert (rate.audit, rate.instead) == ("0.1, as it was", "assumed to be 0.2")
    assert found["num-samples"].recovered_instead is not None
    assert found["labels"].sentence.startswith("no change")


def test_the_ledger_is_in_json_and_text(report):
    assert from_json(to_json(report)).ledger == report.ledger
    text = to_markdown(report)
    assert "## What each assumption was worth" in text
    assert "assumed to be 0.2" in text


def test_an_update_of_several_samples_is_assumed_to_hold_one_less():
    made = dataclasses.replace(TINY, model="mlp:hidden=64", batch_size=2, attacks=("peeling",))
    (entry,) = [a for a in run_audit(made)[0].ledger if a.fact == "num-samples"]
    assert entry.instead == "assumed to be 1"
    assert entry.why_not or entry.recovered_instead <= entry.recovered


def test_reruns_are_kept_with_the_run(tmp_path, monkeypatch):
    first, _ = run_audit(TINY, out=tmp_path)
    monkeypatch.setattr("leakgauge.execution.work_units.run_cell", lambda *_: pytest.fail("it was there"))
    again, _ = run_audit(TINY, out=tmp_path)
    assert again.ledger == first.ledger

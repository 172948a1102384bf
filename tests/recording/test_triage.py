"""What is told before any attack: right for each kind of network and update, quick, and without the private batch."""

import time

import pytest

from leakgauge import catalog
from leakgauge.audit.applicability import why_not
from leakgauge.audit.run import run_audit
from leakgauge.client.chain import prepared
from leakgauge.client.observe import facts_about, observe
from leakgauge.recording.triage import first_observation, triage, triage_of
from leakgauge.report.html import to_html
from leakgauge.report.markdown import to_markdown
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import AuditReport, Client, Scenario
from leakgauge.types.triage import CAUTION, EXPOSED, INFO, SEVERITIES


def clues_of(model="mlp:hidden=100", defense="none", ranks=True, **fields):
    given = {"data": "digits", "trials": 2} | fields
    setup = load_setup(Scenario(model=model, defenses=() if defense == "none" else (defense,), **given), None, "cpu")
    defenses = parse_chain(defense)
    net = prepared(setup.model, *defenses)
    facts = facts_about(net, setup.behind(defenses), setup.data, setup.scenario.local, setup.public)
    seen = observe(net, setup.update(defenses, setup.model), setup.threat_model, facts, setup.scenario.shared_layers)
    return {clue.id: clue for clue in triage(seen, ranks=ranks)}


def test_one_sample_and_batches_behind_a_first_linear_layer():
    assert "linear" in clues_of(batch_size=1)["first-layer"].meaning
    found = clues_of(batch_size=6)
    assert found["first-layer"].severity == found["directions"].severity == EXPOSED
    assert found["directions"].value == "6 for 6 samples"
    crowded = clues_of("mlp:hidden=20", batch_size=40)
    assert crowded["directions"].severity == CAUTION
    assert "two units" in crowded["directions"].meaning


def test_other_first_layers_and_activations_are_told_as_such():
    assert clues_of("lenet-dlg:filters=4")["first-layer"].severity == INFO
    assert "no ReLU" in clues_of("mlp:hidden=30,activation=sigmoid", batch_size=4)["first-layer"].meaning
    several = clues_of(batch_size=4, local=Client(kind="fedavg", epochs=3))
    assert "several local steps" in several["first-layer"].meaning
    assert "no ratio" in clues_of(shared_layers="last:1", batch_size=4)["first-layer"].meaning


@pytest.mark.parametrize(
    ("local", "value", "meaning"),
    [
        (Client(kind="fedavg", lr=0.1), "1 SGD step", "follows exactly"),
        (Client(kind="fedavg", lr=0.1, momentum=0.9, epochs=3), "3 SGD steps with momentum 0.9", "average gradient"),
        (Client(kind="fedavg", lr=1e-3, optimizer="adam"), "1 Adam step", "signs of the first layer's gradient remain"),
        (
            Client(kind="fedavg", lr=1e-3, optimizer="adamw", weight_decay=0.01, epochs=10),
            "10 AdamW steps",
            "signs of the first layer's gradient remain, averaged over the steps, sizes do not",
        ),
    ],
    ids=["one SGD step", "momentum", "one Adam step", "AdamW"],
)
def test_what_the_clients_optimiser_leaves_is_said(local, value, meaning):
    found = clues_of(batch_size=4, local=local)
    assert found["client"].value == value
    assert meaning in found["client"].meaning
    assert ("sizes do not" in found["client"].meaning) == local.adaptive
    assert "client" not in clues_of(batch_size=4)


def test_attacks_that_need_sizes_are_not_applicable_to_adamw():
    local = Client(kind="fedavg", lr=1e-3, optimizer="adamw", epochs=10)
    scenario = Scenario(data="digits", model="mlp:hidden=32", trials=1, batch_size=1, local=local, attacks=())
    seen = first_observation(load_setup(scenario, None, "cpu"))
    for name in ("linear", "labels"):
        assert "signs of gradients and not their sizes" in why_not(catalog.build("attacks", name), seen)
    for name in ("dlg", "inverting-gradients"):
        assert why_not(catalog.build("attacks", name), seen) == ""


def test_ranks_are_those_of_rgap_and_only_for_one_sample():
    full = clues_of("lenet-dlg:filters=12", batch_size=1)
    assert full["ranks"].severity == EXPOSED
    assert "exact" in full["ranks"].meaning
    assert "ReLU" in clues_of(batch_size=1)["ranks"].meaning
    assert "ranks" not in clues_of("lenet-dlg:filters=4", batch_size=2)


def test_labels_and_batchnorm():
    assert clues_of(batch_size=1)["labels"].meaning == "the one negative entry is the label"
    assert "batchnorm" not in clues_of()
    assert "eval mode" in clues_of("resnet20")["batchnorm"].value


@pytest.mark.parametrize(
    ("defense", "id", "says"),
    [
        ("prune:share=0.9", "zeros", "pruned"),
        ("clip:norm=0.05,unit=client", "norm", "clipped"),
        ("sign", "values", "signs only"),
        ("gaussian:std=0.01", "loss", "noise"),
        ("gaussian:std=0.01", "directions", "noise"),
    ],
)
def test_what_a_defense_left_behind_is_seen(defense, id, says):
    found = clues_of(defense=defense, batch_size=4)[id]
    assert found.severity == CAUTION
    assert says in found.meaning
    assert clues_of(batch_size=4)[id].severity in (INFO, EXPOSED)


def test_gravest_first_and_known_severities():
    clues = list(clues_of(batch_size=4).values())
    order = [SEVERITIES[::-1].index(clue.severity) for clue in clues]
    assert order == sorted(order)


def test_an_audit_looks_first_and_its_report_keeps_what_was_seen():
    scenario = Scenario(model="mlp:hidden=40", data="digits", batch_size=3, trials=1, attacks=("linear",))
    told = []
    report, _ = run_audit(scenario, triaged=True, device="cpu", notice=told.append)
    assert {clue.id for clue in report.triage} >= {"first-layer", "labels", "claims", "norm"}
    assert any(line.startswith("first layer: fc1") for line in told)
    assert AuditReport.from_dict(report.as_dict()).triage == report.triage
    for page in (to_markdown(report), to_html(report)):
        assert "Before any attack" in page
        assert "first layer" in page
    blind = run_audit(scenario, device="cpu")[0]
    assert blind.triage == ()
    assert "Before any attack" not in to_markdown(blind)


def test_takes_a_second_or_two_in_an_audit():
    setup = load_setup(Scenario(model="lenet-dlg", data="photos32", trials=1), None, "cpu")
    triage_of(setup)
    began = time.perf_counter()
    triage_of(setup)
    assert time.perf_counter() - began < 5

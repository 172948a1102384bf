"""Training with and without a defense in lock step, kept and resumed."""

import dataclasses
import json

import pytest
import torch

import leakgauge.audit.federated_training as module
from leakgauge.audit.federated_training import train_federation, trainable, with_costs
from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput
from leakgauge.report.html import to_html
from leakgauge.report.markdown import to_markdown
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import AuditReport, Client, Federation, Partition, Scenario

SCENARIO = Scenario(
    model="mlp",
    data="digits",
    partition=Partition(kind="iid", clients=20),
    local=Client(kind="fedavg", epochs=2, lr=0.2),
    defenses=("gaussian:std=0.05", "dgc:share=0.9"),
)
SETTINGS = Federation(rounds=6, per_round=5, evaluate=2)


def accuracies(report) -> list[list[float | None]]:
    return [[r.accuracy for r in t.rounds] for t in report.trained]


def test_every_configuration_is_trained_and_the_undefended_one_too():
    report = train_federation(SCENARIO, SETTINGS)
    assert [t.defense for t in report.trained] == ["none", "gaussian:std=0.05", "dgc:share=0.9"]
    for trained in report.trained:
        assert [r.round for r in trained.rounds] == list(range(1, 7))
        assert [r.accuracy is not None for r in trained.rounds] == [False, True] * 3
        assert trained.round_seconds.low <= trained.round_seconds.value <= trained.round_seconds.high
    assert report.trained[0].accuracy > 0.3
    plain = report.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["accuracy"] == report.trained[-1].accuracy
    assert plain["round_seconds"].keys() == {"median", "iqr"}


def test_training_learns():
    alone = Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": []})
    report = train_federation(alone, Federation(rounds=40, per_round=10, evaluate=40))
    assert report.trained[0].accuracy > 0.75


def test_the_undefended_one_can_be_left_out():
    report = train_federation(SCENARIO, SETTINGS, baseline=False)
    assert [t.defense for t in report.trained] == ["gaussian:std=0.05", "dgc:share=0.9"]


def test_a_killed_training_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    whole = train_federation(SCENARIO, SETTINGS, out=tmp_path / "whole")
    rounds, dying = [], [True]
    real = module.Federated.run_round

    def dies(self, number):
        rounds.append(number)
        if dying and len(rounds) == 11:  # in the middle of the fourth round
            dying.clear()
            raise KeyboardInterrupt
        return real(self, number)

    monkeypatch.setattr(module.Federated, "run_round", dies)
    with pytest.raises(KeyboardInterrupt):
        train_federation(SCENARIO, SETTINGS, out=tmp_path / "cut")
    rounds.clear()
    resumed = train_federation(SCENARIO, SETTINGS, out=tmp_path / "cut")
    assert rounds[0] == 3  # after the last look
    assert accuracies(resumed) == accuracies(whole)


def test_slices_cut_from_the_first_model_are_the_same_after_a_kill(tmp_path, monkeypatch):
    alone = dataclasses.replace(SCENARIO, defenses=("sensitivity:packing=sweep,root=10,std=0.5,compensate=false",))
    settings = Federation(rounds=4, per_round=5, evaluate=1)
    whole = train_federation(alone, settings, baseline=False)
    real = module.Federated.run_round

    def dies(self, number):
        if number == 3:
            raise KeyboardInterrupt
        return real(self, number)

    monkeypatch.setattr(module.Federated, "run_round", dies)
    with pytest.raises(KeyboardInterrupt):
        train_federation(alone, settings, baseline=False, out=tmp_path)
    monkeypatch.undo()
    assert accuracies(train_federation(alone, settings, baseline=False, out=tmp_path)) == accuracies(whole)


def test_a_damaged_state_is_told_and_begun_anew(tmp_path):
    whole, told = train_federation(SCENARIO, SETTINGS, out=tmp_path / "t"), []
    kept = tmp_path / "t" / "state.safetensors"
    kept.write_bytes(kept.read_bytes()[:-3])
    again = train_federation(SCENARIO, SETTINGS, out=tmp_path / "t", notice=told.append)
    assert accuracies(again) == accuracies(whole)
    assert len(told) == 1
    assert "state.safetensors" in told[0]
    assert "begins anew" in told[0]


def test_another_training_in_the_same_folder_does_not_go_on_from_it(tmp_path):
    first = train_federation(SCENARIO, SETTINGS, out=tmp_path)
    other = Federation(rounds=6, per_round=4, evaluate=2)
    assert accuracies(train_federation(SCENARIO, other, out=tmp_path)) != accuracies(first)
    (tmp_path / "state.safetensors").write_bytes(b"broken")
    assert accuracies(train_federation(SCENARIO, SETTINGS, out=tmp_path)) == accuracies(first)


def test_a_rate_that_diverges_is_named():
    wild = Scenario.from_mapping({**SCENARIO.as_dict(), "local": {"kind": "fedavg", "lr": 1e30}, "defenses": []})
    with torch.no_grad(), pytest.raises(BadInput, match="led to NaN or infinity"):
        train_federation(wild, SETTINGS)


def test_masked_sums_cost_whole_words_and_keys_and_no_accuracy():
    chains = ("secure-aggregation:bits=64", "secure-aggregation", "prune:share=0.9+secure-aggregation")
    report = train_federation(Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": list(chains)}), SETTINGS)
    bare, long, usual, pruned = report.trained
    assert long.bytes_up == 2 * bare.bytes_up + 32
    assert usual.bytes_up == pruned.bytes_up == bare.bytes_up + 32  # nobody may see which entries are left out
    assert {t.bytes_down - bare.bytes_down for t in (long, usual, pruned)} == {4 * 32}  # the other clients' keys
    assert long.accuracy == pytest.approx(bare.accuracy, abs=0.01)
    assert usual.accuracy == pytest.approx(bare.accuracy, abs=0.01)


BOOSTED = Federation(
    rounds=4, per_round=5, evaluate=2, aggregator="fedboosting:mix=0.9", encryption="ckks", poison="kind=flip"
)


def test_another_aggregator_is_compared_with_plain_fedavg():
    alone = Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": []})
    report = train_federation(alone, BOOSTED)
    assert [t.name for t in report.trained] == ["none", "none, fedboosting:mix=0.9, ckks"]
    plain, boosted = report.trained
    assert (plain.aggregator, plain.encryption, plain.trust) == ("fedavg", "none", ())
    assert boosted.bytes_up > plain.bytes_up
    assert boosted.bytes_down > 5 * boosted.bytes_up  # five models to try, and the sum
    said = " ".join(boosted.trust)
    assert "Any client together with the server reads every client's update" in said
    assert "Mixing is not differential privacy" in said
    bad, good = boosted.poisoned_weight
    assert bad < good
    assert plain.poisoned_weight == pytest.approx((0.2, 0.2))
    shown = report.as_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["poisoned_weight"]["ratio"] == pytest.approx(bad / good)
    assert shown["encryption"] == "ckks"


def test_defenses_and_aggregators_combine():
    report = train_federation(SCENARIO, Federation(rounds=1, per_round=5, aggregator="fedadam"), baseline=False)
    assert [t.name for t in report.trained] == ["gaussian:std=0.05, fedadam", "dgc:share=0.9, fedadam"]
    assert [t.defense for t in report.trained] == ["gaussian:std=0.05", "dgc:share=0.9"]


@pytest.mark.parametrize("aggregator", ["fedadam:lr=0.05", "learned-proportions:every=2"])
def test_what_the_server_remembers_survives_a_kill(tmp_path, monkeypatch, aggregator):
    alone = Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": []})
    settings = Federation(rounds=4, per_round=5, evaluate=2, aggregator=aggregator, poison="kind=noise")
    whole = train_federation(alone, settings, out=tmp_path / "whole")
    real = module.Federated.run_round

    def dies(self, number):
        if number == 4:
            raise KeyboardInterrupt
        return real(self, number)

    monkeypatch.setattr(module.Federated, "run_round", dies)
    with pytest.raises(KeyboardInterrupt):
        train_federation(alone, settings, out=tmp_path / "cut")
    monkeypatch.setattr(module.Federated, "run_round", real)
    resumed = train_federation(alone, settings, out=tmp_path / "cut")
    assert accuracies(resumed) == accuracies(whole)
    assert [t.client_weights for t in resumed.trained] == [t.client_weights for t in whole.trained]


def test_models_that_are_tried_less_often_are_fewer_bytes_to_receive():
    def down(every):
        settings = Federation(rounds=4, per_round=5, aggregator=f"learned-proportions:every={every}")
        plain, learned = train_federation(
            Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": []}), settings
        ).trained
        return learned.bytes_down / plain.bytes_down

    assert [down(every) for every in (1, 2, 3, 4)] == pytest.approx([6, 3.5, 3.5, 2.25])


def test_a_centralised_model_beside_it_is_in_front_and_is_resumed(tmp_path):
    settings = Federation(rounds=4, per_round=5, evaluate=2, aggregator="fedboosting", poison="kind=flip")
    alone = Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": []})
    report = train_federation(alone, settings, centralised=True, out=tmp_path)
    assert [t.name for t in report.trained] == ["centralised", "none", "none, fedboosting"]
    first = report.trained[0]
    assert (first.bytes_up, first.poisoned, first.client_weights) == (0, 0, ())
    assert "protects nobody" in first.trust[0]
    again = train_federation(alone, settings, centralised=True, out=tmp_path)
    assert accuracies(again) == accuracies(report)
    without = train_federation(alone, settings)
    assert accuracies(without) == accuracies(report)[1:]


# --- what the configurations of an audit cost --------------------------------------------------------

AUDITED = Scenario(
    model="mlp",
    data="digits",
    trials=2,
    attacks=("linear",),
    defenses=("gaussian:std=10", "prune:share=0.5"),
    local=Client(kind="fedavg", lr=0.3),
)
SHORT = Federation(rounds=3, per_round=4, evaluate=3)


def test_data_that_nobody_holds_is_spread_evenly():
    assert trainable(AUDITED).partition == Partition(kind="iid", clients=20)
    held = Scenario(partition=Partition(kind="dirichlet", clients=5))
    assert trainable(held) == held


def test_every_configuration_has_its_price_in_every_report():
    report, _ = run_audit(AUDITED)
    assert tradeoff(report) is None
    assert "what it costs" not in to_html(report)
    priced = with_costs(report, SHORT)
    assert [c.defense for c in priced.costs.rows] == ["none", "gaussian:std=10", "prune:share=0.5"]
    assert all(c.accuracy is not None for c in priced.costs.rows)
    again = AuditReport.from_dict(json.loads(json.dumps(priced.as_dict())))
    assert again.costs == priced.costs
    page, text = to_html(priced), to_markdown(priced)
    for said in ("What each defense buys, and what it costs", "3 rounds, 4 of 20 clients in each"):
        assert said in page
        assert said in text


def test_the_front_holds_what_nothing_beats_in_both():
    report, _ = run_audit(AUDITED)
    found = tradeoff(with_costs(report, SHORT))
    by_name = {c.defense: c for c in found.choices}
    assert by_name["none"].rate.value == 1.0
    assert by_name["gaussian:std=10"].rate.value == 0.0
    best = [c for c in found.choices if c.best]
    assert by_name["gaussian:std=10"] in best or by_name["gaussian:std=10"].accuracy < max(c.accuracy for c in best)
    for c in found.choices:
        beaten = any(
            o.rate.value <= c.rate.value
            and o.accuracy >= c.accuracy
            and o is not c
            and (o.rate.value, o.accuracy) != (c.rate.value, c.accuracy)
            for o in found.choices
        )
        assert c.best == (not beaten)
    assert len(found.marks) == 3


def test_a_configuration_that_cannot_train_says_why(tmp_path):
    own = tmp_path / "unfit.py"
    own.write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from leakgauge.errors import NotApplicable\n"
        "from leakgauge.types import Defense\n"
        "@dataclass(frozen=True)\n"
        "class Unfit(Defense):\n"
        "    name: ClassVar[str] = 'unfit'\n"
        "    summary: ClassVar[str] = 'test'\n"
        "    paper: ClassVar[str] = 'none'\n"
        "    def prepare(self, model):\n"
        "        raise NotApplicable('it never fits')\n"
    )
    scenario = Scenario.from_mapping({**AUDITED.as_dict(), "defenses": [f"{own}:Unfit", "prune:share=0.5"]})
    report, _ = run_audit(scenario)
    priced = with_costs(report, SHORT)
    refused, trained = priced.costs.rows[1:]
    assert "it never fits" in refused.error
    assert trained.accuracy is not None
    assert tradeoff(priced).left_out[0][1] == refused.error

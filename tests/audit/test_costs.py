"""What configurations cost stands in the report, survives JSON, and one that cannot train says why."""

import json

from leakgauge.audit.costs import trainable, with_costs
from leakgauge.audit.run import run_audit
from leakgauge.report.html import to_html
from leakgauge.report.markdown import to_markdown
from leakgauge.report.tradeoff import tradeoff
from leakgauge.types import AuditReport, Federation, LocalTraining, Partition, Scenario

SCENARIO = Scenario(
    model="mlp",
    data="digits",
    trials=2,
    attacks=("linear",),
    defenses=("gaussian:std=10", "prune:share=0.5"),
    local=LocalTraining(kind="fedavg", lr=0.3),
)
SETTINGS = Federation(rounds=3, per_round=4, evaluate=3)


def test_data_that_nobody_holds_is_spread_evenly():
    assert trainable(SCENARIO).partition == Partition(kind="iid", clients=20)
    held = Scenario(partition=Partition(kind="dirichlet", clients=5))
    assert trainable(held) == held


def test_every_configuration_has_its_price_in_every_report():
    report, _ = run_audit(SCENARIO)
    assert tradeoff(report) is None
    assert "what it costs" not in to_html(report)
    priced = with_costs(report, SETTINGS)
    assert [c.defense for c in priced.costs.rows] == ["none", "gaussian:std=10", "prune:share=0.5"]
    assert all(c.accuracy is not None for c in priced.costs.rows)
    again = AuditReport.from_dict(json.loads(json.dumps(priced.as_dict())))
    assert again.costs == priced.costs
    page, text = to_html(priced), to_markdown(priced)
    for said in ("What each defense buys, and what it costs", "3 rounds, 4 of 20 clients in each"):
        assert said in page
        assert said in text


def test_the_front_holds_what_nothing_beats_in_both():
    report, _ = run_audit(SCENARIO)
    found = tradeoff(with_costs(report, SETTINGS))
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
    scenario = Scenario.from_mapping({**SCENARIO.as_dict(), "defenses": [f"{own}:Unfit", "prune:share=0.5"]})
    report, _ = run_audit(scenario)
    priced = with_costs(report, SETTINGS)
    refused, trained = priced.costs.rows[1:]
    assert "it never fits" in refused.error
    assert trained.accuracy is not None
    assert tradeoff(priced).left_out[0][1] == refused.error

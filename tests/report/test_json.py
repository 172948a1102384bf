"""JSON: nothing is lost on the way out and back, and what is not a report is refused in one line."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest

from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.report import from_json, scenario_toml, to_json
from leakgauge.types import Client, GateResult, Interval, Scenario, Traces


def test_round_trip_gives_back_an_equal_report(made):
    assert from_json(to_json(made.report)) == made.report


def test_round_trip_keeps_awkward_text_and_optional_parts(made):
    report = dataclasses.replace(
        made.report,
        scenario=dataclasses.replace(made.report.scenario, model='ü"\\\n\udcff', weights="w.pt"),
        verdict=dataclasses.replace(made.report.verdict, gate=GateResult("ssim", 0.5, False, "no")),
        interrupted=True,
    )
    assert from_json(to_json(report)) == report


def test_keys_that_others_rely_on_are_there(made):
    plain = json.loads(to_json(made.report))
    assert plain["schema"] == 2
    assert {"scenario", "findings", "summary", "verdict", "environment"} <= plain.keys()
    assert plain["summary"][0]["psnr_mean_per_image"].keys() == {"value", "low", "high"}


def test_what_was_spent_is_in_the_row_as_median_and_quartiles(made):
    row = json.loads(to_json(made.report))["summary"][0]
    assert row["steps_median"] == {"value": 300.0, "low": 300.0, "high": 300.0}
    assert row["evaluations_median"] == {"value": 6000.0, "low": 5990.0, "high": 6010.5}
    assert row["seconds"] == 3.75


def test_a_report_written_before_steps_were_counted_still_loads(made):
    plain = json.loads(to_json(made.report))
    del plain["digest"]
    for row in plain["summary"]:
        del row["steps_median"], row["evaluations_median"]
    nothing = Interval(None, None, None)
    rows = tuple(
        dataclasses.replace(row, steps_median=nothing, evaluations_median=nothing) for row in made.report.summary
    )
    assert from_json(json.dumps(plain)) == dataclasses.replace(made.report, summary=rows)


SCHEMA_1 = Path(__file__).parent / "schema_1.json"  # as version 0.1 wrote it


def test_a_report_of_schema_1_is_read_under_its_new_names():
    old = json.loads(SCHEMA_1.read_text(encoding="utf-8"))
    report = from_json(SCHEMA_1.read_text(encoding="utf-8"))
    assert (report.setup, list(report.facts)) == (old["stage"], old["told"])
    assert [f.is_decoy for f in report.findings] == [f["control"] for f in old["findings"]]
    bare, noisy, pruned = report.verdict.configurations
    assert (bare.leaks, bare.upper.guaranteed, bare.labels.read) == (True, False, 4)
    assert (noisy.upper.kappa.records, noisy.guarantee.unit) == (446, "sample")
    assert pruned.traces == Traces(**old["verdict"]["configurations"][2]["traces"])
    assert report.verdict.gate.sentence == old["verdict"]["gate"]["sentence"]


def test_nothing_of_schema_1_is_lost_on_the_way_to_schema_2():
    old = json.loads(SCHEMA_1.read_text(encoding="utf-8"))
    new = json.loads(to_json(from_json(SCHEMA_1.read_text(encoding="utf-8"))))
    assert new["schema"] == 2
    renamed = {"stage": "setup", "told": "facts", "control": "is_decoy"}

    def there(before, after, where=""):
        if isinstance(before, dict):
            for key, value in before.items():
                rename = where == "" or where.startswith(".findings")
                there(value, after[renamed.get(key, key) if rename else key], f"{where}.{key}")
        elif isinstance(before, list):
            assert len(before) == len(after), where
            for one, other in zip(before, after, strict=True):
                there(one, other, where)
        elif where not in (".schema", ".digest"):
            assert before == after, where

    there(old, new)


def test_a_report_of_schema_1_that_was_changed_by_hand_is_refused():
    with pytest.raises(BadInput, match="not what its digest says"):
        from_json(SCHEMA_1.read_text(encoding="utf-8").replace('"leaks": true', '"leaks": false'))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("findings", 2, "trial"), "0", "report.findings[2].trial is '0', not a whole number"),
        (("verdict", "gate"), [], "report.verdict.gate is [], not an object"),
        (("verdict", "configurations", 0), {}, "report.verdict.configurations[0] has no key 'defense'"),
        (("summary", 0, "colour"), "red", "report.summary[0].metrics.colour is 'red', not an object"),
        (("flags", 0, "colour"), "red", "report.flags[0] has the unknown key 'colour'"),
    ],
)
def test_a_refusal_names_the_place(made, path, value, said):
    plain = inner = json.loads(to_json(made.report))
    del plain["digest"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(BadInput, match=re.escape(said)):
        from_json(json.dumps(plain))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '{"schema": 1}', '{"schema": 2}', '{"schema": 9}', '{"a": NaN}']
)
def test_malformed_json_is_refused_in_one_line(text):
    with pytest.raises(BadInput) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"), [("findings", [{"attack": 1}]), ("data", []), ("summary", [7]), ("exposure", [3])]
)
def test_a_wrong_part_is_refused_in_one_line(made, key, value):
    plain = json.loads(to_json(made.report)) | {key: value}
    with pytest.raises(BadInput, match="report JSON"):
        from_json(json.dumps(plain))


def test_a_number_that_json_cannot_hold_is_named(made):
    finding = dataclasses.replace(made.report.findings[0], objective=float("inf"))
    broken = dataclasses.replace(made.report, findings=(finding, *made.report.findings[1:]))
    with pytest.raises(LeakgaugeError, match=r"report\.findings\[0\]\.objective = inf"):
        to_json(broken)


# --- the scenario as TOML -------------------------------------------------------------------------


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
        local=Client(kind="fedavg", epochs=3, batch_size=2, lr=1e-05, batchnorm="train"),
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

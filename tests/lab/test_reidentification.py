"""The classifier of people, and the table of recognised people of a finished run (METHODS K9)."""

import dataclasses
import json

import pytest
import torch

from leakgauge.audit.run import run_audit
from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput
from leakgauge.lab.reidentification import CEILING, FinishedRun, Standardize, reidentify, train_identifier
from leakgauge.types import NOT_APPLICABLE, DataSpec, Pictures, Scenario

CPU = torch.device("cpu")
STEPS = 60
SMALL = Scenario(model="mlp:hidden=16", data="digits", trials=20, batch_size=2, attacks=("linear",))


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """The classifier with few channels, so that it learns in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leakgauge.lab.reidentification.WIDTH", 6)
        yield


@pytest.fixture(scope="module")
def run():
    report, pictures = run_audit(SMALL, device="cpu")
    return FinishedRun("here", report, pictures)


@pytest.fixture(scope="module")
def result(run):
    perfect = dict(run.pictures.recovered) | {"linear | none | plain": run.pictures.true}
    return reidentify(
        [dataclasses.replace(run, pictures=Pictures(run.pictures.true, perfect))], steps=STEPS, device="cpu"
    )


def row(result, attack):
    (found,) = [r for r in result.rows if r.attack == attack]
    return found


def test_perfect_recoveries_reach_the_ceiling(result):
    assert row(result, "linear").hits == row(result, CEILING).hits
    assert row(result, CEILING).hits["top_1"].value > 0.5
    assert row(result, CEILING).hits["top_1"].records == 40


def test_the_floors_are_there_and_near_chance(result):
    assert result.chance["top_1"] == pytest.approx(0.1)
    for floor in ("mean-image", "random-guess"):
        assert row(result, floor).hits["top_1"].low < 0.3


def test_wider_nets_catch_more(result):
    for each in result.rows:
        assert each.hits["top_1"].value <= each.hits["top_3"].value <= each.hits["top_5"].value


def test_the_classifier_is_judged_on_all_pictures_it_has_not_seen(result):
    assert result.held_out["top_1"].records == 450
    assert result.classifier["training_samples"] == 1347
    assert result.held_out["top_1"].value > 0.5


def test_trials_that_failed_are_misses(run):
    """However good the picture that stands in their place."""
    bad = tuple(
        dataclasses.replace(f, flags=("diverged",)) if f.attack == "linear" and f.trial < 15 else f
        for f in run.report.findings
    )
    perfect = {"linear | none | plain": run.pictures.true}
    broken = FinishedRun("here", dataclasses.replace(run.report, findings=bad), Pictures(run.pictures.true, perfect))
    found = row(reidentify([broken], steps=1, device="cpu"), "linear")
    assert found.failed == 30
    assert found.hits["top_5"].recovered <= 10
    assert found.hits["top_5"].records == 40


def test_controls_are_left_out(run):
    """A decoy shows the same person: recognising them there says nothing of the update."""
    marked = tuple(dataclasses.replace(f, is_decoy=True) if f.attack == "linear" else f for f in run.report.findings)
    control = dataclasses.replace(run, report=dataclasses.replace(run.report, findings=marked))
    assert "linear" not in {r.attack for r in reidentify([control], steps=1, device="cpu").rows}


def stopped(run, why):
    errors = tuple(dataclasses.replace(f, error=why) if f.attack == "linear" else f for f in run.report.findings)
    rows = tuple(dataclasses.replace(s, error=why) if s.attack == "linear" else s for s in run.report.summary)
    report = dataclasses.replace(run.report, findings=errors, summary=rows)
    return FinishedRun("here", report, Pictures(run.pictures.true, {}))


def test_an_attack_that_broke_off_is_all_misses(run):
    found = row(reidentify([stopped(run, "no")], steps=1, device="cpu"), "linear")
    assert (found.failed, found.hits["top_5"].recovered) == (40, 0)


def test_an_attack_that_does_not_fit_is_no_measurement(run):
    found = reidentify([stopped(run, f"{NOT_APPLICABLE}: no first layer")], steps=1, device="cpu")
    assert "linear" not in {r.attack for r in found.rows}


def test_plain_json(result):
    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert plain["rows"][0]["hits"]["top_1"]["criterion"] == "top-1"
    assert plain["classifier"]["seed"] == 0
    assert plain["environment"]["device"] == "cpu"


def test_two_runs_share_one_classifier_but_not_two_kinds_of_data(run):
    other = dataclasses.replace(run, name="there")
    both = reidentify([run, other], steps=1, device="cpu")
    assert {r.run for r in both.rows} == {"here", "there"}
    elsewhere = dataclasses.replace(
        run, report=dataclasses.replace(run.report, scenario=dataclasses.replace(SMALL, data="photos32"))
    )
    with pytest.raises(BadInput, match="same data"):
        reidentify([run, elsewhere], steps=1)


def test_victims_that_are_not_those_of_the_data_are_refused_before_any_training(run, monkeypatch):
    monkeypatch.setattr("leakgauge.lab.reidentification.train_identifier", lambda *_: pytest.fail("trained"))
    changed = dataclasses.replace(run, pictures=Pictures(torch.zeros_like(run.pictures.true), {}))
    with pytest.raises(BadInput, match="other pictures"):
        reidentify([changed], steps=1)


def test_tables_are_refused():
    report, pictures = run_audit(
        Scenario(model="mlp:hidden=8", data="breast-cancer", attacks=("linear",), trials=1), device="cpu"
    )
    with pytest.raises(BadInput, match="pictures"):
        reidentify([FinishedRun("table", report, pictures)], steps=1)


@pytest.fixture(scope="module")
def stripes():
    """Three people who differ in the direction of their stripes; every picture at another phase."""
    spec = DataSpec("stripes", (1, 16, 16), 3, "image")
    source = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    pictures, labels = [], []
    for number in range(90):
        across = (x, y, x + y)[number % 3]
        phase = 6.3 * torch.rand((), generator=source)
        pictures.append(0.5 + 0.4 * torch.sin(across + phase))
        labels.append(number % 3)
    return Dataset(spec, torch.stack(pictures)[:, None], torch.tensor(labels))


@pytest.fixture(scope="module")
def trained(stripes):
    return train_identifier(stripes, seed=0, device=CPU, steps=40)


def test_it_learns_who_is_who(stripes, trained):
    scores = trained.scores(stripes.inputs)
    torch.testing.assert_close(scores.sum(1), torch.ones(90))
    assert (scores.argmax(1) == stripes.labels).double().mean() > 0.8


def test_the_same_seed_gives_the_same_classifier_and_leaves_the_callers_randomness_alone(stripes):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = train_identifier(stripes, seed=5, device=CPU, steps=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    second = train_identifier(stripes, seed=5, device=CPU, steps=2)
    assert torch.equal(first.scores(stripes.inputs), second.scores(stripes.inputs))
    other = train_identifier(stripes, seed=6, device=CPU, steps=2)
    assert not torch.equal(first.scores(stripes.inputs), other.scores(stripes.inputs))


def test_brightness_and_contrast_do_not_matter_and_a_blank_picture_is_no_mishap(stripes, trained):
    dim = trained.scores(0.3 * stripes.inputs + 0.2)
    torch.testing.assert_close(dim, trained.scores(stripes.inputs), atol=0.05, rtol=0)
    assert torch.isfinite(trained.scores(torch.zeros(1, 1, 16, 16))).all()


def test_a_picture_is_judged_without_its_neighbours(stripes, trained):
    torch.testing.assert_close(trained.scores(stripes.inputs[4:5])[0], trained.scores(stripes.inputs)[4])


def test_every_picture_is_brought_to_one_size():
    assert Standardize()(torch.rand(2, 3, 64, 48)).shape == (2, 3, 32, 32)


def test_tables_and_no_steps_are_refused(stripes):
    with pytest.raises(BadInput, match="pictures"):
        train_identifier(load("breast-cancer", "train"), 0, CPU, 1)
    with pytest.raises(BadInput, match="steps"):
        train_identifier(stripes, 0, CPU, 0)

"""The cells of `ren2022fedboosting`: what they measure, and that small ones stand for the large."""

import dataclasses

import pytest

from leakgauge.lab.recipes.ren2022fedboosting._exchange import ExchangeCost
from leakgauge.lab.recipes.ren2022fedboosting._reading import ReaderFederation
from leakgauge.lab.recipes.ren2022fedboosting._toy import PublishedToy, ToyFederations
from leakgauge.lab.reproduce.figures import compute_figure
from leakgauge.lab.words.training import Reading

TINY = Reading(rounds=2, words=20, tested=4, batch_size=10, longest=3, image_width=48, width=2)


def test_the_toy_gives_a_sample_for_each_seed():
    toy = ToyFederations(case="narrow", aggregator="fedboosting", rounds=1, samples=40).resized(2)
    found = toy.figures("cpu", None, lambda *_: None)
    assert {name: len(sample) for name, sample in found.items()} == {
        "accuracy": 2,
        "accuracy_gained": 2,
        "weight_ratio": 2,
    }
    assert "2 federations" in toy.title


def test_fedavg_gains_nothing_over_itself():
    toy = ToyFederations(case="alike", aggregator="fedavg:validation=0.1", rounds=1, samples=40, federations=1)
    assert toy.figures("cpu", None, lambda *_: None)["accuracy_gained"] == (0.0,)


def test_words_are_counted_one_by_one(tmp_path):
    reader = ReaderFederation(aggregator="fedavg", training=dataclasses.replace(TINY, rounds=9)).resized(2)
    assert reader.size == 2
    found = reader.figures("cpu", tmp_path, lambda *_: None)
    assert len(found["words_rendered"]) == 8
    assert set(found["words_rendered"]) <= {0.0, 1.0}
    assert "words_iiit5k" not in found  # not there: the cell says that there was nothing to average
    assert compute_figure("words_iiit5k", found).value is None


def test_a_share_has_the_exact_interval():
    found = compute_figure("words_rendered", {"words_rendered": (1.0,) * 5 + (0.0,) * 5})
    assert found.value == 0.5
    assert (found.low, found.high) == (pytest.approx(0.187, abs=1e-3), pytest.approx(0.813, abs=1e-3))


@pytest.mark.parametrize("encryption", ["none", "ckks"])
def test_an_exchange_takes_time_and_bytes(encryption):
    if encryption == "ckks":
        pytest.importorskip("tenseal")
    found = ExchangeCost(width=2, encryption=encryption).resized(2).figures("cpu", None, lambda *_: None)
    assert len(found["exchange_cpu_ms"]) == 2
    assert found["bytes_up"][0] > 10_000


def test_the_published_toy_is_held_against_fedavg_and_the_centralised_model():
    toy = PublishedToy(case="alike", aggregator="centralised", rounds=1, samples=40).resized(2)
    found = toy.figures("cpu", None, lambda *_: None)
    assert found["as_centralised"] == (1.0, 1.0)
    assert {name: len(sample) for name, sample in found.items()} == {
        "accuracy": 2,
        "accuracy_gained": 2,
        "weight_ratio": 2,
        "as_centralised": 2,
    }
    usual = PublishedToy(case="alike", aggregator="fedavg:validation=0.1", rounds=1, samples=40).resized(1)
    assert usual.figures("cpu", None, lambda *_: None)["accuracy_gained"] == (0.0,)

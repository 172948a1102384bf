"""Aggregators side by side: the same seeds, paired differences, weights of a poisoned client."""

import json

import pytest

from leakgauge.errors import BadInput
from leakgauge.lab.two_gaussians.comparing import compare

TWO = ("fedavg:validation=0.1", "fedboosting")


@pytest.fixture(scope="module")
def study():
    return compare(("flipped",), TWO, seeds=3)


def test_a_poisoned_client_weighs_less_than_a_third(study):
    plain, boosted = study.rows
    assert plain.ratio.value == pytest.approx(1)
    assert boosted.ratio.high < 1 / 3
    assert boosted.gain.high > -0.01
    assert plain.gain.value == 0


def test_both_train_on_the_same_samples_from_the_same_start(study):
    again = compare(("flipped",), TWO[::-1], seeds=1)
    first = {r.aggregator: r.accuracy for r in study.runs if r.seed == 0}
    assert {r.aggregator: r.accuracy for r in again.runs} == first
    assert json.loads(json.dumps(study.as_dict()))["rounds"] == 10


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="flipped"):
        compare(("fliped",))
    with pytest.raises(BadInput, match="at least 20"):
        compare(samples=3)

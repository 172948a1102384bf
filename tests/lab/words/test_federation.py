"""Rounds: equal weights are a mean, encryption changes nothing but the last digits, mixing and boosting run."""

import copy

import pytest
import torch

from leakgauge import catalog
from leakgauge.lab.words.federation import Readers
from leakgauge.lab.words.network import build
from leakgauge.lab.words.rendering import rendered
from leakgauge.lab.words.training import Reading, samples_of

HOW = Reading(words=40, batch_size=10, longest=3, image_width=48, width=2, lr=0.003)


def readers(aggregator: str, encryption: str | None = None) -> Readers:
    clients = [samples_of(rendered(name, 40, 48, 3, 0), 3, torch.device("cpu")) for name in ("flat", "scene")]
    scheme = None if encryption is None else catalog.build("encryptions", encryption)
    return Readers(build(HOW.width, 0), clients, HOW, catalog.build("aggregators", aggregator), scheme, 0)


def test_the_mean_of_both_clients():
    one = readers("fedavg")
    before = copy.deepcopy(one.model.state_dict())
    one.run_round(1)
    after, local = one.model.state_dict(), [w.state_dict() for w in one._workers]
    for name in after:
        if after[name].is_floating_point():
            torch.testing.assert_close(after[name], (local[0][name] + local[1][name]) / 2, rtol=1e-4, atol=1e-5)
    assert not torch.equal(before["scores.weight"], after["scores.weight"])
    assert one.weights[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "aggregator",
    ["fedboosting", "fedboosting:mix=0.9", "fedboosting:metric=accuracy", "fedadam", "learned-proportions:every=2"],
)
def test_every_aggregator_runs_and_weights_add_up_to_one(aggregator):
    one = readers(aggregator)
    for number in (1, 2):
        assert one.run_round(number) > 0
    assert all(float(w.sum()) == pytest.approx(1) for w in one.weights)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedboosting:mix=0.9"])
def test_encrypted_sums_give_the_same_model(aggregator):
    pytest.importorskip("tenseal")
    plain, hidden = readers(aggregator), readers(aggregator, "ckks")
    plain.run_round(1)
    hidden.run_round(1)
    pairs = zip(plain.model.parameters(), hidden.model.parameters(), strict=True)
    assert max(float((a - b).detach().abs().max()) for a, b in pairs) < 1e-4

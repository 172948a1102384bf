"""What aggregators promise: equal clients weigh the same, a worse one less, and their steps are those of the papers."""

from dataclasses import replace

import pytest
import torch

from leakgauge import catalog
from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.aggregator import Reported
from leakgauge.federation.aggregators.fedadam import FedAdam
from leakgauge.federation.aggregators.fedavg import FedAvg
from leakgauge.federation.aggregators.fedboosting import FedBoosting
from leakgauge.federation.aggregators.learned_proportions import LearnedProportions
from leakgauge.types import SharedUpdate

FORMS = [
    FedBoosting(),
    FedBoosting(over="median"),
    FedBoosting(metric="accuracy"),
    FedBoosting(form="softmax", metric="accuracy"),
    FedBoosting(form="softmax"),
]
FOUR = Reported(torch.ones(4), "equal")
EVERY = [cls() for cls in catalog.find("aggregators").values()]


def reports(own, tried, weighting="equal") -> Reported:
    return Reported(
        torch.tensor([1.0, 2.0, 7.0], dtype=torch.float64), weighting, torch.tensor(own), torch.tensor(tried)
    )


def test_all_are_found_and_show_an_example():
    found = catalog.find("aggregators")
    assert list(found) == ["fedadam", "fedavg", "fedboosting", "learned-proportions"]
    for name, cls in found.items():
        assert f"leakgauge train --aggregator {name}" in cls.__doc__
        assert catalog.build("aggregators", name) == cls()


@pytest.mark.parametrize("aggregator", [FedAvg(), FedAdam()])
def test_plain_weights_are_equal_or_by_samples(aggregator):
    assert aggregator.weights(reports([1.0] * 3, [[1.0] * 3] * 3)).tolist() == pytest.approx([1 / 3] * 3)
    assert aggregator.weights(reports([1.0] * 3, [[1.0] * 3] * 3, "samples")).tolist() == pytest.approx([0.1, 0.2, 0.7])


@pytest.mark.parametrize("aggregator", EVERY, ids=lambda a: a.name)
def test_weights_are_shares_and_weighing_leaves_its_input_alone(aggregator):
    """Whatever it remembers: two rounds, the second with other clients; memories are tensors, so that they are kept."""
    reported, memory = reports([0.2, 0.9, 2.0], [[0.2, 0.3, 0.4], [0.9] * 3, [2.0, 1.0, 3.0]]), {}
    for clients in ([0, 1, 2], [4, 0, 3]):
        before = {n: t.clone() for n, t in memory.items()}
        weights, after = aggregator.weigh(replace(reported, clients=torch.tensor(clients)), memory)
        assert weights.shape == (3,)
        assert bool((weights >= 0).all())
        assert weights.sum().item() == pytest.approx(1)
        assert all(torch.equal(t, before[n]) for n, t in memory.items())
        assert all(isinstance(t, torch.Tensor) for t in after.values())
        if not memory:
            torch.testing.assert_close(weights, aggregator.weights(reported))
        memory = after


@pytest.mark.parametrize("aggregator", [*FORMS, LearnedProportions()], ids=lambda a: a.spec)
def test_equal_clients_weigh_the_same(aggregator):
    weights = aggregator.weights(reports([0.5] * 3, [[0.4, 0.6, 0.5]] * 3))
    assert weights.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("aggregator", [*FORMS[:4], LearnedProportions()], ids=lambda a: a.spec)
def test_a_worse_client_weighs_less(aggregator):
    good, bad = (0.2, 2.0) if aggregator.metric == "loss" else (0.9, 0.1)
    weights = aggregator.weights(reports([good] * 3, [[good] * 3, [good] * 3, [bad] * 3]))
    assert weights.sum().item() == pytest.approx(1)
    assert weights[2] < weights[0] == weights[1]


@pytest.mark.parametrize("aggregator", FORMS[:4], ids=lambda a: a.spec)
def test_a_client_that_learned_worse_weighs_less(aggregator):
    good, bad = (0.2, 2.0) if aggregator.metric == "loss" else (0.9, 0.1)
    own = aggregator.weights(reports([good, good, bad], [[good] * 3] * 3))
    assert own[2] < own[0]


def test_the_softmax_of_losses_favours_the_worse_as_the_text_has_it():
    weights = FORMS[4].weights(reports([0.2] * 3, [[0.2] * 3, [0.2] * 3, [2.0] * 3]))
    assert weights[2] > weights[0]


def test_released_scores_by_hand():
    """(1 / mean V)(1 / T) over its sum: V means 1, 2, 4 and T 1, 1, 2 give 1, 1/2, 1/8."""
    weights = FedBoosting().weights(reports([1.0, 1.0, 2.0], [[1.0] * 3, [2.0] * 3, [4.0] * 3]))
    assert weights.tolist() == pytest.approx([v / 1.625 for v in (1, 0.5, 0.125)])


def test_the_text_by_hand():
    own, tried = torch.tensor([0.5, 0.7, 0.9]).double(), torch.tensor([[0.5] * 3, [0.6] * 3, [0.9] * 3])
    expected = torch.softmax(torch.softmax(own, 0) * tried.double().sum(1), 0)
    found = FORMS[3].weights(reports(own.tolist(), tried.tolist()))
    torch.testing.assert_close(found, expected)


def test_a_model_that_is_broken_or_perfect_leaves_finite_weights():
    nan = float("nan")
    weights = FedBoosting().weights(reports([1.0, 1.0, nan], [[1.0] * 3, [1.0] * 3, [nan] * 3]))
    assert weights[2] < 1e-9
    assert torch.isfinite(FedBoosting().weights(reports([0.0] * 3, [[0.0] * 3] * 3))).all()
    none = FedBoosting(metric="accuracy").weights(reports([0.0] * 3, [[0.0] * 3] * 3))
    assert none.tolist() == pytest.approx([1 / 3] * 3)


def test_what_one_liar_says_moves_the_median_less_than_the_mean():
    """Ten honest models; the last client says all others are terrible and its own, which is bad, is perfect."""
    tried = torch.full((10, 10), 0.2)
    tried[9] = 2.0
    tried[:, 9] = 100.0
    tried[9, 9] = 0.0
    reported = Reported(torch.ones(10), "equal", torch.full((10,), 0.2), tried)
    mean, median = (FedBoosting(over=o).weights(reported) for o in ("mean", "median"))
    assert mean[9] > mean[0]
    assert median[9] < median[0] / 3


@pytest.mark.parametrize("kind", ["weight_delta", "gradient"])
def test_fedadam_is_adam_without_bias_correction(kind):
    rule = FedAdam(lr=0.1, beta1=0.8, beta2=0.9, tau=0.01)
    memory: dict[str, torch.Tensor] = {}
    m, v = torch.zeros(1, 2), torch.full((1, 2), 1e-4)
    for d in (torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 0.0]])):
        sent = d if kind == "weight_delta" else -d
        step, memory = rule.step(SharedUpdate(kind, {"w": sent}, {"mean": torch.ones(1, 2)}), memory)
        m, v = 0.8 * m + 0.2 * d, 0.9 * v + 0.1 * d**2
        assert step.kind == "weight_delta"
        torch.testing.assert_close(step.tensors["w"], 0.1 * m / (v.sqrt() + 0.01))
        assert torch.equal(step.buffers["mean"], torch.ones(1, 2))
    assert memory.keys() == {"m/w", "v/w"}


def test_others_hand_the_mean_on():
    mean = SharedUpdate("gradient", {"w": torch.ones(1, 2)})
    assert FedBoosting().step(mean, {}) == (mean, {})


def test_what_is_kept_back():
    assert FedAdam().validation == 0
    assert FedAdam(validation=0.1).validation == 0.1
    assert (FedAvg().validation, FedAvg(validation=0.1).validation, FedBoosting().validation) == (0.0, 0.1, 0.1)
    with pytest.raises(BadInput, match="above 0"):
        FedBoosting(validation=0.0)


def test_fedboosting_draws_new_weights_each_round_and_the_released_ones_are_fixed():
    drawn = [FedBoosting(mix=0.9).mixing_weights(FOUR, {}, torch.Generator().manual_seed(s)) for s in (1, 2)]
    assert not torch.equal(*drawn)
    assert all((w.diagonal() >= 0.9).all() for w in drawn)
    released = FedBoosting(mix=0.9, fusing="fixed").mixing_weights(FOUR, {}, torch.Generator())
    assert released.diagonal().tolist() == pytest.approx([0.9] * 4)
    assert FedBoosting().mixing_weights(FOUR, {}, torch.Generator()) is None
    assert FedAvg().mixing_weights(FOUR, {}, torch.Generator()) is None
    with pytest.raises(BadInput, match="own one is the largest"):
        FedBoosting(mix=0.4)
    assert FedBoosting(mix=0.4, fusing="fixed").mixing == 0.4


def test_validation_alone_by_hand():
    """V means 1, 2, 4: released 1, 1/2, 1/4 over their sum; in the text's form softmax of the sums."""
    reported = reports([9.0, 1.0, 5.0], [[1.0] * 3, [2.0] * 3, [4.0] * 3])
    released = FedBoosting(results="validation").weights(reported)
    assert released.tolist() == pytest.approx([v / 1.75 for v in (1, 0.5, 0.25)])
    text = FedBoosting(results="validation", form="softmax").weights(reported)
    torch.testing.assert_close(text, torch.softmax(torch.tensor([3.0, 6.0, 12.0], dtype=torch.float64), 0))
    with pytest.raises(BadInput, match="fedboosting: results"):
        FedBoosting(results="training")

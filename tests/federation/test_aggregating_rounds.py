"""Aggregators, encryption and poisoned clients inside a federation."""

import copy

import pytest
import torch

from leakgauge.data import load
from leakgauge.defenses.secure_aggregation import SecureAggregation
from leakgauge.defenses.sensitivity import Sensitivity
from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.fedadam import FedAdam
from leakgauge.federation.aggregators.fedavg import FedAvg
from leakgauge.federation.aggregators.fedboosting import FedBoosting
from leakgauge.federation.aggregators.learned_proportions import LearnedProportions
from leakgauge.federation.encryption.ckks import Ckks
from leakgauge.federation.encryption.paillier import Paillier
from leakgauge.federation.federation import Federated, clients_of
from leakgauge.federation.poisoning import Poison
from leakgauge.models import load_model
from leakgauge.types import Client, Federation, Partition

SAMPLES = load("digits", "train")
LOCAL = Client(kind="fedavg", epochs=3, batch_size=20, lr=0.3)
EVEN = clients_of(SAMPLES, Partition(kind="iid", clients=6), 0, 0)
DEMO = Paillier(bits=256, insecure_demo=True)


def federated(*defenses, local=LOCAL, weighting="equal", **more) -> Federated:
    settings = Federation(rounds=3, per_round=6, weighting=weighting)
    model = load_model("mlp:hidden=8", SAMPLES.spec, seed=0)
    return Federated(model, SAMPLES, EVEN, settings, local, defenses, 0, **more)


def after(running: Federated, rounds: int = 2) -> torch.Tensor:
    for number in range(1, rounds + 1):
        running.run_round(number)
    return torch.cat([p.detach().flatten() for p in running.model.parameters()])


@pytest.mark.parametrize("local", [LOCAL, Client()], ids=["fedavg", "fedsgd"])
@pytest.mark.parametrize(
    "aggregator", [FedAvg(), FedBoosting(mix=0.9), FedAdam(), LearnedProportions()], ids=lambda a: a.name
)
def test_an_encrypted_federation_ends_where_the_plain_one_ends(aggregator, local):
    plain = after(federated(aggregator=aggregator, local=local))
    hidden = after(federated(aggregator=aggregator, local=local, encryption=DEMO))
    torch.testing.assert_close(hidden, plain, rtol=0, atol=2e-3 if aggregator.name == "fedadam" else 1e-4)


def test_ckks_does_the_same():
    torch.testing.assert_close(after(federated(encryption=Ckks())), after(federated()), rtol=0, atol=1e-4)


def test_boosting_keeps_samples_back_and_fedavg_trains_on_all():
    boosted, plain = federated(aggregator=FedBoosting(validation=0.2)), federated()
    assert [len(c) for c in plain.trained_on] == [len(c) for c in EVEN]
    for mine, kept, all_of_it in zip(boosted.trained_on, boosted.kept_back, EVEN, strict=True):
        assert len(mine) + len(kept) == len(all_of_it)
        assert len(kept) == round(0.2 * len(all_of_it))


@pytest.mark.parametrize("poison", [Poison(kind="flip"), Poison(kind="noise", scale=3.0)], ids=lambda p: p.kind)
def test_a_poisoned_client_weighs_less_than_a_third_of_an_honest_one(poison):
    """Once models have learned something: before, all are equally bad."""
    running = federated(aggregator=FedBoosting(), poison=poison)
    after(running, 5)
    running.ledger.zero_()
    for number in (6, 7, 8):
        running.run_round(number)
    mean = running.ledger[:, 0] / running.ledger[:, 1]
    assert mean[0] < mean[1:].mean() / 3
    assert mean.sum().item() == pytest.approx(1)
    equal = federated(poison=poison)
    after(equal, 1)
    assert equal.ledger[:, 0].tolist() == pytest.approx([1 / 6] * 6)


def test_a_liar_moves_the_mean_and_not_the_median():
    assumed, doubted = (
        federated(aggregator=FedBoosting(over=over), poison=Poison(lies=True)) for over in ("mean", "median")
    )
    after(assumed)
    after(doubted)
    assert assumed.ledger[0, 0] > assumed.ledger[1:, 0].mean()
    assert doubted.ledger[0, 0] < doubted.ledger[1:, 0].mean()


def test_adam_remembers_between_rounds():
    running = federated(aggregator=FedAdam())
    running.run_round(1)
    first = copy.deepcopy(running.server)
    running.run_round(2)
    assert first.keys() == running.server.keys()
    assert not torch.equal(first["m/fc1.weight"], running.server["m/fc1.weight"])


@pytest.mark.parametrize(
    "poison", [Poison(kind="flip"), Poison(kind="noise", scale=3.0), Poison(lies=True)], ids=["flip", "noise", "liar"]
)
def test_the_learned_share_of_a_poisoned_client_falls_over_rounds(poison):
    running, shares = federated(aggregator=LearnedProportions(lr=0.3), poison=poison), []
    for number in range(1, 9):
        before = running.ledger.clone()
        running.run_round(number)
        shares.append((running.ledger - before)[:, 0])
    assert shares[-1][0] < shares[3][0] < 1 / 6
    assert shares[-1][0] < shares[-1][1:].mean() / 3
    assert all(s.sum().item() == pytest.approx(1) for s in shares)


def test_a_client_that_is_not_drawn_keeps_what_was_learned_of_it():
    model = load_model("mlp:hidden=8", SAMPLES.spec, seed=0)
    running = Federated(
        model, SAMPLES, EVEN, Federation(rounds=4, per_round=2), LOCAL, (), 0, aggregator=LearnedProportions()
    )
    drawn = set[int]()
    for number in range(1, 5):
        before = dict(running.server)
        running.run_round(number)
        now = running.drawn(number)
        for name, kept in before.items():
            rest = [c for c in range(len(kept)) if c not in now]
            assert torch.equal(running.server[name][rest], kept[rest])
        drawn |= set(now)
    steps = running.server["steps"]
    assert steps.sum() == 8
    assert {c for c in range(len(steps)) if steps[c]} == drawn


def test_models_are_tried_in_every_so_many_rounds_and_shares_stay_in_between():
    running = federated(aggregator=LearnedProportions(every=3))
    for number in range(1, 5):
        running.run_round(number)
        assert running.server["steps"].tolist() == [1.0 if number < 4 else 2.0] * 6
        assert (running.server["learned"] != 0).any()
    sums = running.ledger[:, 0]
    assert sums.max() > sums.min()


def test_what_does_not_go_together_is_refused():
    with pytest.raises(BadInput, match="which aggregates itself"):
        federated(Sensitivity(), aggregator=FedBoosting())
    with pytest.raises(BadInput, match="which aggregates itself"):
        federated(Sensitivity(), encryption=DEMO)
    with pytest.raises(BadInput, match="weighs clients by itself"):
        federated(aggregator=FedBoosting(), weighting="samples")
    with pytest.raises(BadInput, match="weighs clients by itself"):
        federated(aggregator=LearnedProportions(), weighting="samples")
    with pytest.raises(BadInput, match="which aggregates itself"):
        federated(SecureAggregation(), aggregator=LearnedProportions())
    with pytest.raises(BadInput, match="fewer than the 6 clients"):
        federated(poison=Poison(clients=6))


@pytest.mark.parametrize("aggregator", [FedAvg(), LearnedProportions()], ids=lambda a: a.name)
def test_an_update_beyond_the_guard_is_named_and_nothing_is_applied(aggregator):
    running = federated(encryption=Paillier(bits=256, insecure_demo=True, largest=1e-4), aggregator=aggregator)
    before = copy.deepcopy(running.model.state_dict())
    with pytest.raises(BadInput, match="overflow guard"):
        running.run_round(1)
    assert all(torch.equal(t, before[n]) for n, t in running.model.state_dict().items())
    assert not running.server

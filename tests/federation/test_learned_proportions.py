"""Shares that Adam learns: its steps are torch's, the gradient is autograd's, and it is the loss of linear models."""

import itertools
from dataclasses import replace

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.federation.aggregators.aggregator import Reported
from leakgauge.federation.aggregators.learned_proportions import LearnedProportions, slopes_of_logits

SAMPLES = torch.tensor([1.0, 2.0, 7.0], dtype=torch.float64)
LOGITS = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)


def losses(seed: int, clients: int = 3) -> torch.Tensor:
    return 0.5 + torch.rand(clients, clients, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(shares: torch.Tensor, own: float) -> torch.Tensor:
    return (1 - own) * shares.expand(3, 3) + own * torch.eye(3, dtype=torch.float64)


def reports(validation, clients=(0, 1, 2), samples=SAMPLES) -> Reported:
    return Reported(samples, "equal", torch.zeros(len(samples)), validation, torch.tensor(clients))


@pytest.mark.parametrize("start", ["equal", "samples"])
def test_steps_are_those_of_torchs_adam_on_the_loss_that_is_linear_in_the_shares(start):
    rule = LearnedProportions(lr=0.2, beta1=0.8, beta2=0.95, eps=1e-4, own=1.0, start=start)
    first = SAMPLES.log() if start == "samples" else torch.zeros(3, dtype=torch.float64)
    logits = first.clone().requires_grad_()
    adam = torch.optim.Adam([logits], lr=0.2, betas=(0.8, 0.95), eps=1e-4)
    memory: dict[str, torch.Tensor] = {}
    for seed in range(6):
        adam.zero_grad()
        (torch.softmax(logits, 0) @ losses(seed)).mean().backward()
        adam.step()
        weights, memory = rule.weigh(reports(losses(seed)), memory)
        torch.testing.assert_close(weights, torch.softmax(logits.detach(), 0))


@pytest.mark.parametrize("own", [0.1, 1.0])
def test_the_gradient_is_that_of_the_fused_model_where_losses_are_linear(own):
    """Three linear models of updates U and a loss <U_i, a_j> at client j: fused first, then measured, by autograd."""
    g = torch.Generator().manual_seed(1)
    updates, tastes = torch.randn(3, 5, generator=g).double(), torch.randn(4, 5, generator=g).double()[:3]
    logits = LOGITS.clone().requires_grad_()
    fused = torch.softmax(logits, 0) @ updates
    (tastes @ fused + 10).mean().backward()
    tried = moved(torch.softmax(LOGITS, 0), own) @ updates
    torch.testing.assert_close(slopes_of_logits(tried @ tastes.T + 10, torch.softmax(LOGITS, 0), own), logits.grad)


def test_the_gradient_is_that_of_a_curved_loss_where_own_is_small_and_not_where_it_is_one():
    """Squared distances of the model to a target of each client; updates are as large as the distances."""
    g = torch.Generator().manual_seed(2)
    updates, targets = torch.randn(3, 5, generator=g).double(), torch.randn(3, 5, generator=g).double()

    def loss(models):
        return ((models[..., None, :] - targets) ** 2).sum(-1)  # (..., 3)

    logits = LOGITS.clone().requires_grad_()
    loss(torch.softmax(logits, 0) @ updates).mean().backward()
    shares = torch.softmax(LOGITS, 0)
    near, far = (slopes_of_logits(loss(moved(shares, own) @ updates), shares, own) for own in (1e-4, 1.0))
    torch.testing.assert_close(near, logits.grad, rtol=1e-3, atol=1e-3)
    assert (far - logits.grad).abs().max() > 0.1


def test_shares_stay_where_the_fused_loss_is_least_although_one_model_alone_is_better():
    """Losses a straight line cannot see: at the best mixture of two updates nothing pulls, and `own=1` leaves it."""
    updates, targets = torch.eye(2).double(), torch.tensor([[0.6, 0.4], [0.6, 0.4]]).double()
    best, ends = torch.tensor([0.6, 0.4]).log(), {}
    for own in (0.01, 1.0):
        rule, memory = LearnedProportions(lr=0.02, own=own), {}
        reported = Reported(torch.ones(2), "equal")
        for _ in range(400):
            rows = rule.mixing_weights(reported, memory, torch.Generator())
            models = updates if rows is None else rows @ updates
            tried = ((models[:, None] - targets) ** 2).sum(-1)
            weights, memory = rule.weigh(replace(reported, validation=tried), memory)
        ends[own] = weights
    torch.testing.assert_close(ends[0.01], best.exp().double(), rtol=0, atol=0.02)
    assert ends[1.0][0] > 0.95


def test_equal_clients_keep_equal_shares_and_a_worse_one_goes_down_round_by_round():
    rule, memory, equal = LearnedProportions(), {}, {}
    worse, seen = torch.full((3, 3), 0.4), []
    worse[2] = 0.5
    for _ in range(20):
        weights, memory = rule.weigh(reports(worse), memory)
        seen.append(weights[2].item())
        same, equal = rule.weigh(reports(torch.full((3, 3), 0.4)), equal)
        assert same.tolist() == pytest.approx([1 / 3] * 3)
    assert all(a > b for a, b in itertools.pairwise(seen))
    assert weights[0].item() == pytest.approx(weights[1].item())


def test_learning_starts_at_equal_shares_or_by_samples():
    untried = reports(None)
    assert LearnedProportions().weights(untried).tolist() == pytest.approx([1 / 3] * 3)
    assert LearnedProportions(start="samples").weights(untried).tolist() == pytest.approx([0.1, 0.2, 0.7])


def test_memory_goes_by_the_clients_number_and_not_by_its_place_in_the_round():
    rule = LearnedProportions()
    bad = losses(0)
    bad[2] += 1
    _, memory = rule.weigh(reports(bad, (5, 2, 9)), {})
    weights, again = rule.weigh(reports(None, (9, 5, 0)), memory)
    assert weights[0] < weights[2] < weights[1]  # a client that is new lies between
    assert all(torch.equal(again[n], t) for n, t in memory.items())
    assert memory["steps"].tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]
    assert memory["learned"].sum().item() == pytest.approx(0)


def test_who_stands_where_in_a_round_changes_nothing():
    order = torch.tensor([2, 0, 1])
    straight, _ = LearnedProportions().weigh(reports(losses(3)), {})
    turned, _ = LearnedProportions().weigh(reports(losses(3)[order][:, order], order.tolist()), {})
    torch.testing.assert_close(turned, straight[order])


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_model_loses_share_and_leaves_numbers_finite(broken):
    tried = torch.full((3, 3), 0.4)
    tried[2] = broken
    weights, memory = LearnedProportions().weigh(reports(tried), {})
    assert weights[2] < weights[0]
    assert all(torch.isfinite(t).all() for t in (weights, *memory.values()))
    nothing = LearnedProportions().weights(reports(torch.full((3, 3), broken)))
    assert nothing.tolist() == pytest.approx([1 / 3] * 3)


def test_one_liar_does_not_drown_ten_others():
    """It says that all other models are terrible and its own, which is bad, is perfect."""
    tried = torch.full((11, 11), 0.2)
    tried[10] = 2.0
    tried[:, 10], tried[10, 10] = 100.0, 0.0
    weights = LearnedProportions().weights(reports(tried, range(11), torch.ones(11)))
    assert weights[10] < weights[0]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("lr", 0.0, "above 0"),
        ("beta1", 1.0, "0.9999"),
        ("beta1", -0.1, "0"),
        ("beta2", 1.0, "0.9999"),
        ("beta2", -0.1, "0"),
        ("eps", 0.0, "above 0"),
        ("own", 0.0, "above 0"),
        ("own", 1.1, "1"),
        ("start", "half", "samples"),
        ("every", 0, "1"),
        ("validation", 0.0, "above 0"),
        ("validation", 0.6, "0.5"),
    ],
)
def test_fields_out_of_range_are_named(field, value, said):
    with pytest.raises(BadInput, match=f"learned-proportions: {field}") as error:
        LearnedProportions(**{field: value})
    assert said in str(error.value)


def test_what_the_fields_mean_to_a_federation():
    rule = LearnedProportions(every=5, validation=0.2)
    assert (rule.validation, rule.every, rule.metric, rule.mixing) == (0.2, 5, "loss", 0.1)
    assert not rule.remembers  # what it keeps is of the weights, and the server's


def test_what_clients_try_is_the_fused_model_moved_a_tenth_to_each_client():
    rule, memory = LearnedProportions(own=0.1), {}
    first = rule.mixing_weights(reports(None), memory, torch.Generator())
    torch.testing.assert_close(first, moved(torch.full((3,), 1 / 3, dtype=torch.float64), 0.1))
    weights, memory = rule.weigh(reports(losses(0)), memory)
    torch.testing.assert_close(rule.mixing_weights(reports(None), memory, torch.Generator()), moved(weights, 0.1))
    assert LearnedProportions(own=1.0).mixing_weights(reports(None), memory, torch.Generator()) is None

"""The defense is read off the update, and at the true sample its repetition changes nothing."""

import pytest
import torch

from leakgauge.attacks._latent_search import Guess, guess, largest, norms
from leakgauge.defenses.prune import Prune, drop_smallest

ALL = torch.arange(2)


def gradients(seed=0):
    g = torch.Generator().manual_seed(seed)
    return {"conv.weight": torch.randn(2, 3, 4, generator=g), "fc.weight": torch.randn(2, 5, 6, generator=g)}


def clipped(update, bound):
    scale = (bound / norms(update)).clamp(max=1.0)
    return {n: t * scale[:, None, None] for n, t in update.items()}


def soteria(update):
    """The first and third feature are not sent."""
    return update | {"fc.weight": update["fc.weight"] * torch.tensor([0.0, 1, 0, 1, 1, 1])}


def pruned(update, share=0.5):
    return {n: drop_smallest(t.flatten(1), share).view_as(t) for n, t in update.items()}


def test_the_largest_entries_stay_as_the_defense_keeps_them():
    rows = torch.tensor([[3.0, -1.0, 2.0, -4.0], [0.0, 5.0, -6.0, 1.0]])
    assert largest(rows, torch.tensor([2, 3])).tolist() == [[3, 0, 0, -4], [0, 5, -6, 1]]
    assert torch.equal(largest(rows, torch.tensor([4, 4])), rows)
    assert torch.equal(largest(rows, torch.tensor([2, 2])), drop_smallest(rows, 0.5))
    assert (largest(rows, torch.tensor([0, 0])) == 0).all()


@pytest.mark.parametrize(
    ("transform", "defend"),
    [("clip", lambda u: clipped(u, 1.5)), ("compress", pruned), ("columns", soteria), ("none", dict)],
)
def test_at_the_truth_the_guess_repeats_the_defense(transform, defend):
    true = gradients()
    sent = defend(true)
    again = guess(sent, transform, "fc.weight").applied(true, ALL)
    for name, tensor in sent.items():
        torch.testing.assert_close(again[name], tensor, rtol=1e-6, atol=0)
    if transform != "clip":
        assert all(torch.equal(again[n], sent[n]) for n in sent)


@pytest.mark.parametrize("scope", ["tensor", "global"])
def test_pruning_of_each_tensor_or_of_the_whole_is_repeated_bit_for_bit(scope, scene):
    plain, sent = scene().seen, scene(defenses=(Prune(share=0.8, scope=scope),)).seen
    observed = dict(sent.update.tensors)
    again = guess(observed, "auto", "fc.weight").applied(dict(plain.update.tensors), ALL)
    assert all(torch.equal(again[n], observed[n]) for n in observed)


@pytest.mark.parametrize(
    "defend",
    [pruned, soteria, lambda u: clipped(u, 1.5), lambda u: clipped(pruned(u), 1.0), dict],
    ids=["prune", "soteria", "clip", "prune+clip", "none"],
)
def test_auto_finds_what_is_visible(defend):
    true = gradients()
    sent = defend(true)
    usual = norms(true)[:, None] * torch.tensor([1.0, 1.2, 1.5])
    found = guess(sent, "auto", "fc.weight", usual)
    again = found.applied(true, ALL)
    for name, tensor in sent.items():
        torch.testing.assert_close(again[name], tensor, rtol=1e-5, atol=1e-6)


def test_auto_sees_nothing_where_there_is_nothing():
    found = guess(gradients(), "auto", "fc.weight", norms(gradients())[:, None])
    assert found == Guess()


def test_only_the_trial_that_was_clipped_gets_a_bound():
    true = gradients()
    sent = {n: t * torch.tensor([0.1, 1.0])[:, None, None] for n, t in true.items()}
    found = guess(sent, "auto", "fc.weight", norms(true)[:, None])
    assert found.bound[0] == norms(sent)[0]
    assert found.bound[1] == torch.inf


def test_rows_take_the_guess_of_their_own_trial():
    true = gradients()
    found = guess(clipped(true, 1.5) | {}, "clip", "fc.weight")
    rows = torch.tensor([1, 0, 1])
    apart = found.applied({n: t[rows] for n, t in true.items()}, rows)
    together = found.applied(true, ALL)
    assert all(torch.equal(apart[n], together[n][rows]) for n in true)


def test_slopes_pass_through():
    true = {n: t.requires_grad_() for n, t in gradients().items()}
    sent = {n: t.detach() for n, t in clipped(pruned(true), 1.0).items()}
    again = guess(sent, "auto", "fc.weight", norms(gradients())[:, None]).applied(true, ALL)
    sum(t.square().sum() for t in again.values()).backward()
    assert all(torch.isfinite(t.grad).all() and (t.grad != 0).any() for t in true.values())

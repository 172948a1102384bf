"""Distances between gradients, by hand, and what each is blind to."""

import math

import pytest
import torch

from leakgauge.matching.distance import gradient_distance

OBSERVED = {"a": torch.tensor([[3.0, 0.0], [0.0, 2.0]]).double(), "b": torch.tensor([[[4.0]], [[-1.0]]]).double()}
MINE = {"a": torch.tensor([[3.0, 2.0], [1.0, 2.0]]).double(), "b": torch.tensor([[[0.0]], [[-1.0]]]).double()}


@pytest.mark.parametrize(
    ("distance", "expected"),
    [("l2", [4 + 16, 1]), ("l1", [2 + 4, 1]), ("cosine", [1 - 9 / (5 * math.sqrt(13)), 1 - 5 / math.sqrt(5 * 6)])],
)
def test_by_hand(distance, expected):
    found = gradient_distance(MINE, OBSERVED, distance)
    torch.testing.assert_close(found, torch.tensor(expected).double(), rtol=1e-6, atol=3e-4)


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine", "entropy"])
def test_it_is_zero_for_the_same_and_trials_do_not_mix(distance):
    assert gradient_distance(OBSERVED, OBSERVED, distance).abs().max() < 1e-12
    both = gradient_distance(MINE, OBSERVED, distance)
    for t in range(2):
        alone = gradient_distance(*({n: v[t : t + 1] for n, v in g.items()} for g in (MINE, OBSERVED)), distance)
        torch.testing.assert_close(alone[0], both[t])


def test_the_cosine_is_blind_to_scale_and_the_others_are_not():
    scaled = {name: 7 * g for name, g in OBSERVED.items()}
    assert gradient_distance(scaled, OBSERVED, "cosine").abs().max() < 1e-12
    assert all((gradient_distance(scaled, OBSERVED, d) > 1).all() for d in ("l1", "l2"))
    opposite = {name: -g for name, g in OBSERVED.items()}
    torch.testing.assert_close(gradient_distance(opposite, OBSERVED, "cosine"), torch.tensor([2.0, 2.0]).double())


def test_a_gradient_of_zeros_is_at_a_cosine_distance_of_one_and_has_a_slope():
    zero = {name: torch.zeros_like(g).requires_grad_() for name, g in OBSERVED.items()}
    found = gradient_distance(zero, OBSERVED, "cosine")
    assert found.tolist() == [1, 1]
    assert all(torch.isfinite(s).all() for s in torch.autograd.grad(found.sum(), list(zero.values())))


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine", "entropy"])
def test_what_is_not_known_does_not_count_whatever_it_is(distance):
    known = {name: g != 0 for name, g in OBSERVED.items()}
    wild = {name: torch.where(known[name], g, 1e3) for name, g in OBSERVED.items()}
    assert gradient_distance(wild, OBSERVED, distance, known).abs().max() < 1e-12


def test_only_the_tensors_that_were_observed_are_compared():
    more = {**MINE, "c": torch.full((2, 1), 1e3).double()}
    for distance in ("l2", "l1", "cosine"):
        assert torch.equal(gradient_distance(more, OBSERVED, distance), gradient_distance(MINE, OBSERVED, distance))


def test_l1_has_a_slope_at_its_corner():
    at = {name: g.clone().requires_grad_() for name, g in OBSERVED.items()}
    slopes = torch.autograd.grad(gradient_distance(at, OBSERVED, "l1").sum(), list(at.values()))
    assert all((s == 0).all() for s in slopes)


@pytest.mark.parametrize("distance", ["scaled", "scaled-each", "cosine-each"])
def test_a_scale_is_left_open_and_what_is_left_is_least_squares(distance):
    alike = {n: 7.0 * v for n, v in OBSERVED.items()}
    assert gradient_distance(alike, OBSERVED, distance).abs().max() < 1e-12
    apart = {n: (k + 1.0) * v for k, (n, v) in enumerate(OBSERVED.items())}
    each = gradient_distance(apart, OBSERVED, distance)
    assert (each > 1e-3).all() if distance == "scaled" else each.abs().max() < 1e-12


def test_the_best_scale_is_that_of_a_slow_fit():
    for t in range(2):
        a, b = (torch.cat([g[n][t].flatten() for n in OBSERVED])[:, None] for g in (MINE, OBSERVED))
        fit = torch.linalg.lstsq(a, b).solution
        residual = ((b - a * fit) ** 2).sum() if fit > 0 else (b**2).sum() + (a.T @ b)[0, 0] ** 2 / (a**2).sum()
        found = gradient_distance(MINE, OBSERVED, "scaled")[t]
        torch.testing.assert_close(found, residual)


def test_an_opposite_direction_is_no_fit_and_leads_back():
    back = {n: (-v).requires_grad_() for n, v in OBSERVED.items()}
    for distance in ("scaled", "scaled-each"):
        found = gradient_distance(back, OBSERVED, distance)
        assert (found > gradient_distance(OBSERVED, OBSERVED, distance)).all()
        turned = {n: v + 0.1 * torch.flip(v, (0,)) for n, v in back.items()}
        slopes = torch.autograd.grad(gradient_distance(turned, OBSERVED, distance).sum(), list(back.values()))
        assert any(s.abs().max() > 0 for s in slopes)
    torch.testing.assert_close(gradient_distance(back, OBSERVED, "cosine-each"), torch.tensor([2.0, 2.0]).double())


def test_the_entropy_is_that_of_a_loop_over_entries_and_signs():
    corner = 1e-2
    for t in range(2):
        shares = []
        for gradients in (OBSERVED, MINE):
            entries = [float(v) for g in gradients.values() for v in g[t].flatten()]
            e = corner * sum(map(abs, entries)) / len(entries)
            parts = [(math.hypot(v, e) + sign * v) / 2 for v in entries for sign in (1, -1)]
            shares.append([part / sum(parts) for part in parts])
        expected = sum(p * math.log(p / q) for p, q in zip(*shares, strict=True))
        assert float(gradient_distance(MINE, OBSERVED, "entropy")[t]) == pytest.approx(expected, rel=1e-9)


def test_the_entropy_is_blind_to_scale_but_not_to_sign_and_finite_for_zeros():
    scaled = {name: 7 * g for name, g in OBSERVED.items()}
    assert gradient_distance(scaled, OBSERVED, "entropy").abs().max() < 1e-12
    opposite = {name: -g for name, g in OBSERVED.items()}
    assert (gradient_distance(opposite, OBSERVED, "entropy") > 1).all()
    zero = {name: torch.zeros_like(g).float().requires_grad_() for name, g in OBSERVED.items()}
    found = gradient_distance(zero, {n: g.float() for n, g in OBSERVED.items()}, "entropy")
    assert (found > 0.1).all()
    assert all(torch.isfinite(s).all() for s in torch.autograd.grad(found.sum(), list(zero.values())))


def test_the_entropy_keeps_its_digits_near_the_solution():
    near = {name: (g * (1 + 1e-4 * torch.arange(g.numel()).reshape(g.shape))) for name, g in OBSERVED.items()}
    exact = gradient_distance(near, OBSERVED, "entropy")
    single = gradient_distance(
        {n: g.float() for n, g in near.items()}, {n: g.float() for n, g in OBSERVED.items()}, "entropy"
    )
    torch.testing.assert_close(single.double(), exact, rtol=1e-2, atol=1e-12)


def test_the_slope_of_the_entropy_is_that_of_differences():
    at = {name: g.clone().requires_grad_() for name, g in MINE.items()}
    assert torch.autograd.gradcheck(
        lambda *rows: gradient_distance(dict(zip(at, rows, strict=True)), OBSERVED, "entropy"),
        tuple((g + 0.05).detach().requires_grad_() for g in at.values()),
    )

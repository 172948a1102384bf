"""The same seed gives the same numbers, alone or among others; roles and seeds never share a stream."""

import torch

from leakgauge.engine.randomness import generator, normal, per_trial, uniform


def test_a_trial_draws_the_same_alone_and_among_others():
    together = normal([5, 6, 7], "noise", (4, 3))
    assert together.shape == (3, 4, 3)
    for row, seed in enumerate((5, 6, 7)):
        assert torch.equal(normal([seed], "noise", (4, 3))[0], together[row])


def test_seeds_and_roles_give_different_numbers():
    drawn = [normal([seed], role, (50,)) for seed in (0, 1) for role in ("noise", "start")]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert not torch.equal(one, other)
            assert abs(torch.corrcoef(torch.cat((one, other)))[0, 1]) < 0.5


def test_seed_and_role_are_not_confused_by_their_spelling():
    assert not torch.equal(normal([1], "1/a", (8,)), normal([11], "/a", (8,)))


def test_normal_has_mean_0_and_variance_1():
    drawn = normal(range(10), "moments", (2000,))
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.var() - 1) < 0.03


def test_uniform_fills_0_to_1():
    drawn = uniform(range(10), "moments", (2000,))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(drawn.var() - 1 / 12) < 0.005


def test_the_callers_random_stream_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    normal([0], "noise", (10,))
    per_trial([0], "label", lambda g: torch.randint(10, (2,), generator=g))
    assert torch.equal(torch.rand(3), expected)


def test_a_generator_starts_afresh_each_time():
    assert torch.equal(torch.rand(3, generator=generator(4, "a")), torch.rand(3, generator=generator(4, "a")))


def test_large_seeds_are_welcome():
    assert torch.isfinite(normal([2**80], "noise", (2,))).all()

"""GRNN: the loss at the truth, the released term, the plain loop that it must equal, and what it recovers (A5, G6)."""

import dataclasses

import pytest
import torch
from torch.func import functional_call

from leakgauge.attacks.grnn import GRNN, _order, released_distance, sorted_distance, squared_variation
from leakgauge.engine.gradients import cross_entropy
from leakgauge.errors import NotApplicable
from leakgauge.fl.fedsgd import fedsgd
from leakgauge.metrics.wasserstein import wasserstein
from leakgauge.types import Batch


def rows(seed, trials=2, sizes=(6, 4)):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(trials, size, generator=g, dtype=torch.float64) for size in sizes]


def joined(parts):
    return torch.cat(parts, 1)


def test_the_sorted_term_is_the_wasserstein_distance_of_all_tensors_together():
    mine, theirs = rows(0), rows(1)
    squares = (joined(mine) - joined(theirs)).square().sum(1)
    added = sorted_distance(theirs, None)(mine) - squares
    torch.testing.assert_close(added, wasserstein(joined(mine), joined(theirs)))


def test_the_sorted_term_does_not_see_the_order_and_the_released_one_does():
    theirs = rows(1, sizes=(10,))
    mine = [theirs[0].flip(1)]
    squares = (mine[0] - theirs[0]).square().sum(1)
    torch.testing.assert_close(sorted_distance(theirs, None)(mine), squares)
    assert (released_distance(theirs, None)(mine) > squares).all()


def test_the_released_term_is_the_root_of_the_squared_one():
    mine, theirs = rows(0), rows(1)
    squares = (joined(mine) - joined(theirs)).square().sum(1)
    torch.testing.assert_close(released_distance(theirs, None)(mine), squares + squares.sqrt())


@pytest.mark.parametrize("distance", [sorted_distance, released_distance])
def test_entries_that_do_not_count_change_nothing(distance):
    mine, theirs = rows(0), rows(1)
    known = [torch.rand(part.shape, generator=torch.Generator().manual_seed(2)) > 0.5 for part in theirs]
    other = [part + 5 * ~mask for part, mask in zip(mine, known, strict=True)]
    torch.testing.assert_close(distance(theirs, known)(other), distance(theirs, known)(mine))


def test_squared_variation_of_a_board_is_four_and_of_a_plain_picture_zero():
    board = ((torch.arange(6)[:, None] + torch.arange(8)) % 2).float().expand(1, 3, 2, 6, 8)
    assert squared_variation(board).tolist() == [4.0]
    assert squared_variation(torch.full((1, 1, 3, 6, 8), 0.3)).tolist() == [0.0]
    assert squared_variation(torch.full((1, 1, 1, 1, 8), 0.3)).tolist() == [0.0]


@pytest.mark.parametrize("as_released", [False, True])
def test_where_the_gradients_agree_only_the_variation_is_left(scene, as_released):
    """The private pictures are what the generator starts with."""
    made = scene("lenet-dlg", told="honest-but-curious+labels", dtype=torch.float64)
    attack = GRNN(as_released=as_released, tv=0.5)
    generator = attack._generator(made.seen, (0, 1))
    z = generator.start((0, 1), "generator/0").double()
    batch = Batch(generator(z)[0], made.batch.labels)
    seen = dataclasses.replace(made.seen, update=fedsgd()(made.seen.model, batch, (0, 1)))
    value, slope = attack._puzzle(seen, generator).evaluator(torch.arange(2))(z)
    torch.testing.assert_close(value, 0.5 * squared_variation(batch.inputs), rtol=1e-6, atol=1e-9)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("samples", [1, 2])
def test_it_takes_the_steps_of_the_plain_loop(scene, samples):
    """torch.optim.RMSprop on one trial's weights, the loss written out again; labels from the generator."""
    made = scene("lenet-dlg", samples=samples, dtype=torch.float64)
    steps = 6
    attack = GRNN(steps=steps, as_released=True, lr=1e-3)
    found = attack(made.seen, (0, 1))
    for t in range(2):
        generator = attack._generator(made.seen.take([t]), (t,))
        z = generator.start((t,), "generator/0").double().requires_grad_()
        weights = {n: p.detach().requires_grad_() for n, p in made.seen.model.named_parameters()}
        optimiser = torch.optim.RMSprop([z], lr=1e-3, alpha=0.99, momentum=0.99)
        values = []
        for _ in range(steps + 1):
            pictures, logits = generator(z)
            outputs = functional_call(made.seen.model, weights, (pictures[0],))
            loss = cross_entropy(outputs, torch.softmax(logits[0], -1))
            mine = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            theirs = [made.seen.update.tensors[n][t] for n in weights]
            squares = torch.stack([(a - b).square().sum() for a, b in zip(mine, theirs, strict=True)]).sum()
            value = squares + squares.sqrt() + 1e-3 * squared_variation(pictures)[0]
            values.append(float(value.detach()))
            (z.grad,) = torch.autograd.grad(value, z)
            optimiser.step()
        assert float(found.objective[t]) == pytest.approx(min(values), rel=1e-6)


def test_a_digit_appears_and_its_label_is_found(scene):
    made = scene("lenet-dlg", trials=2)
    begun, later = (GRNN(steps=steps, lr=1e-3, momentum=0.9)(made.seen, (0, 1)) for steps in (1, 200))
    assert (made.psnr(later) > made.psnr(begun) + 4).all()
    assert torch.equal(later.labels, made.batch.labels)


def test_known_labels_are_used(scene):
    made = scene("lenet-dlg", samples=3, told="honest-but-curious+labels")
    result = GRNN(steps=1)(made.seen, (0, 1))
    assert torch.equal(result.labels, made.batch.labels)
    assert result.inputs.shape == made.batch.inputs.shape


@pytest.mark.parametrize("schedule", ["in-turn", "halving"])
def test_the_better_of_two_generators_is_kept(scene, schedule):
    made = scene("lenet-dlg")
    one, two = (GRNN(steps=4, restarts=n, schedule=schedule)(made.seen, (0, 1)) for n in (1, 2))
    assert (two.objective <= one.objective + 1e-6).all()
    assert (two.evaluations > one.evaluations).all()


def test_tables_are_refused(scene):
    made = scene(data="breast-cancer")
    with pytest.raises(NotApplicable, match="pictures"):
        GRNN(steps=1)(made.seen, (0, 1))


def test_the_defaults_are_the_papers():
    attack = GRNN()
    assert (attack.lr, attack.momentum, attack.tv, attack.noise_width) == (1e-4, 0.99, 1e-3, 128)
    assert attack.decay == "none"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_those_of_a_sort(dtype):
    values = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    values[:, ::3] = 0.0  # many alike
    values[0, :5] = torch.tensor([-0.0, 1e-40, -1e-40, 3e38, -3e38])
    order = _order(values)
    assert torch.equal(values.gather(1, order), values.sort(1).values)
    assert torch.equal(order.sort(1).values, torch.arange(1000).expand(3, -1))

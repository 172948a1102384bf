"""The distance, and that it is zero at the truth (METHODS A1 and G4)."""

import math

import pytest
import torch

from leakgauge.attacks.cpl import CPL
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.idlg import IDLG
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.matching.distance import gradient_distance
from leakgauge.matching.gradient_matching import with_likelihood
from leakgauge.matching.noise import UPDATE, Noise
from leakgauge.matching.problem import matching_of
from leakgauge.types import no_progress

OBSERVED = {"a": torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "b": torch.tensor([[[3.0]], [[-1.0]]])}
BOTH = (0, 1)  # the seeds of two trials
MINE = {"a": torch.tensor([[1.0, 2.0], [1.0, 2.0]]), "b": torch.tensor([[[0.0]], [[-1.0]]])}


def told(attack, seen, **changes):
    """What the attack makes of its own problem with these changes, which a defense could have made."""
    return attack.solve(attack.problem(seen, BOTH).replace(**changes), BOTH, no_progress)


def bare(made, distance):
    """The problem without a prior, its labels known."""
    return matching_of(
        made.seen, made.batch.labels, distance=distance, prior=lambda _, inputs, __: inputs.new_zeros(len(inputs))
    )


def test_l2_is_the_sum_of_squares_over_all_tensors_per_trial():
    assert gradient_distance(MINE, OBSERVED, "l2").tolist() == [4 + 9, 1]


def test_l1_is_the_sum_of_magnitudes_up_to_its_rounded_corner():
    torch.testing.assert_close(gradient_distance(MINE, OBSERVED, "l1"), torch.tensor([5.0, 1.0]), rtol=0, atol=1e-3)
    assert gradient_distance(OBSERVED, OBSERVED, "l1").max() < 1e-9


def test_entries_that_are_not_known_are_left_out():
    known = {n: g != 0 for n, g in OBSERVED.items()}
    assert gradient_distance(MINE, OBSERVED, "l2", known).tolist() == [9, 0]
    torch.testing.assert_close(
        gradient_distance(MINE, OBSERVED, "l1", known), torch.tensor([3.0, 0.0]), rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("distance", ["l2", "l1"])
@pytest.mark.parametrize("samples", [1, 3])
def test_it_is_zero_at_the_truth_and_only_there(scene, distance, samples):
    made = scene("lenet-dlg:filters=3", samples=samples, dtype=torch.float64)
    model, observed = working_model(made.seen.model, "eval"), made.seen.update.tensors
    at_truth = gradient_distance(trial_gradients(model, made.batch.inputs, made.batch.labels), observed, distance)
    assert (at_truth.abs() < 1e-12).all()
    beside = trial_gradients(model, made.batch.inputs + 0.1, made.batch.labels)
    assert (gradient_distance(beside, observed, distance) > 1e-6).all()


def test_it_is_zero_at_the_truth_with_a_label_far_out(scene):
    """METHODS A1 (i): one-hot logits with a large margin."""
    made = scene("lenet-dlg:filters=3", dtype=torch.float64)
    logits = 60 * torch.nn.functional.one_hot(made.batch.labels, 10).double()
    mine = trial_gradients(working_model(made.seen.model, "eval"), made.batch.inputs, torch.softmax(logits, -1))
    assert (gradient_distance(mine, made.seen.update.tensors) < 1e-12).all()


def test_l1_forgives_an_outlier_that_l2_does_not(scene):
    def outlier(update):
        def change(name, t):
            if name != "fc.bias":
                return t
            t = t.clone()
            t[:, 0] += 3.0
            return t

        return update.map(change)

    made = scene("lenet-dlg:filters=6", trials=2, change=outlier, told="honest-but-curious+labels")
    l2, l1 = (made.psnr(DLG(steps=5, restarts=1, distance=d)(made.seen, (0, 1))) for d in ("l2", "l1"))
    assert (l1 > l2 + 3).all()


def test_known_noise_ends_the_attempt_where_noise_explains_the_rest(scene):
    from leakgauge.defenses.gaussian import Gaussian

    made = scene("lenet-dlg:filters=3", trials=2, defenses=(Gaussian(std=0.05),))
    attack = DLG(steps=3, restarts=1)
    unaware, aware = told(attack, made.seen), told(attack, made.seen, noise=Noise(0.05, UPDATE, "l2"))
    entries = sum(t[0].numel() for t in made.seen.update.tensors.values())
    assert (aware.evaluations <= unaware.evaluations).all()
    assert (aware.objective < 2 * entries * 0.05**2).all()


def test_match_nonzero_ignores_what_was_zeroed(scene):
    def silence(update):
        return update.map(lambda n, t: torch.zeros_like(t) if n == "conv1.weight" else t)

    made = scene("lenet-dlg:filters=8", trials=2, change=silence)
    naive, informed = (told(DLG(steps=6, restarts=1), made.seen, match_nonzero=m) for m in (False, True))
    assert (informed.objective < 1e-5).all()
    assert (naive.objective > 1e-3).all()
    assert (made.psnr(informed) > made.psnr(naive)).all()


def test_total_variation_smooths(scene):
    from leakgauge.matching.priors import total_variation

    made = scene("lenet-dlg:filters=3", trials=2)
    rough, smooth = (DLG(steps=2, restarts=1, tv=tv)(made.seen, (0, 1)) for tv in (0.0, 1.0))
    assert (total_variation(smooth.inputs) < total_variation(rough.inputs)).all()


def test_nothing_left_to_compare_is_no_crash(scene):
    made = scene("lenet-dlg:filters=2", change=lambda u: u.map(lambda _, t: torch.zeros_like(t)))
    result = told(DLG(steps=1, restarts=1), made.seen, match_nonzero=True)
    assert result.objective.tolist() == [0.0, 0.0]
    assert not math.isnan(result.inputs.sum().item())


def test_the_cosine_does_not_mind_the_scale_of_the_update(scene):
    """As L-BFGS on a direction, the setting of Geiping et al. that some studies use; squares are led astray by it."""

    def doubled(update):
        return update.map(lambda _, t: 2 * t)

    made = scene("lenet-dlg:filters=3", change=doubled, told="honest-but-curious+labels", dtype=torch.float64)
    fields = {"steps": 25, "restarts": 1, "threshold": 1e-9}
    direction, squares = (CPL(distance=d, **fields)(made.seen, (0, 1)) for d in ("cosine", "l2"))
    assert (made.psnr(direction) > made.psnr(squares) + 5).all()
    assert (direction.objective < 1e-4).all()


def scaled(factor):
    return lambda update: update.map(lambda _, t: factor * t)


@pytest.mark.parametrize("distance", ["l2", "l1", "cosine", "scaled"])
def test_an_update_of_any_size_is_solved_at_the_same_relative_distance(scene, distance):
    """Thirty times the loss, thirty times the gradient: what counts as solved is measured beside it."""
    sizes = []
    for factor in (1.0, 30.0):
        made = scene("lenet-dlg:filters=3", change=scaled(factor), dtype=torch.float64)
        goal, share = DLG(distance=distance, threshold=1e-5)._solved_below(bare(made, distance))
        sizes.append(goal)
        assert (share == 1e-4).all()
    power = {"l2": 2, "l1": 1, "cosine": 0, "scaled": 2}[distance]
    torch.testing.assert_close(sizes[1], 30.0**power * sizes[0], rtol=1e-2, atol=0)
    expected = {
        "l2": sum((t.flatten(1) ** 2).sum(1) for t in made.seen.update.tensors.values()),
        "cosine": torch.ones(2),
    }
    if distance in expected:
        torch.testing.assert_close(sizes[1], 1e-5 * expected[distance].double())


def test_papers_thresholds_are_of_the_distance_itself(scene):
    made = scene("lenet-dlg:filters=3", change=scaled(30.0))
    goal, share = DLG(absolute_threshold=1e-4)._solved_below(bare(made, "l2"))
    torch.testing.assert_close(goal, torch.full((2,), 1e-4))
    assert (share == math.inf).all()
    assert CPL(steps=3, absolute_threshold=1e9)(made.seen, (0, 1)).steps.tolist() == [0, 0]


def test_a_start_below_the_threshold_is_not_solved_and_a_search_that_gets_there_is(scene):
    made = scene("lenet-dlg:filters=3")
    assert CPL(steps=3, absolute_threshold=1e9)(made.seen, (0, 1)).solved.tolist() == [False, False]
    searched = CPL(steps=60)(made.seen, (0, 1))
    relative = searched.objective / sum((t.flatten(1) ** 2).sum(1) for t in made.seen.update.tensors.values())
    assert searched.solved.tolist() == (relative < 1e-7).tolist()
    assert searched.solved.any()
    assert not CPL(steps=1, threshold=1e-12)(made.seen, (0, 1)).solved.any()


def test_noise_that_explains_more_than_the_threshold_is_not_fitted(scene):
    made = scene("lenet-dlg:filters=3")
    likely, scale = with_likelihood(bare(made, "l2").replace(noise=Noise(0.5, UPDATE, "l2")))
    goal, share = DLG()._solved_below(likely.replace(noise_scale=scale))
    entries = sum(t[0].numel() for t in made.seen.update.tensors.values())
    torch.testing.assert_close(goal, torch.full((2,), 0.25 * entries))
    assert (share == math.inf).all()


def test_a_sigmoid_network_at_its_default_start_is_not_solved_before_the_first_step(scene):
    """Its gradient hardly depends on the picture: any start is within 1e-7 of the observed one."""
    made = scene("lenet-cpl:init=default")
    result = CPL(steps=10)(made.seen, (0, 1))
    size = sum((t.flatten(1) ** 2).sum(1) for t in made.seen.update.tensors.values())
    assert (result.trace[:, 0] < CPL().threshold * size).all()
    assert (result.steps > 0).all()
    assert (made.psnr(result) > 25).all()


def test_a_batch_of_a_hundred_is_not_solved_before_the_first_step(scene):
    made = scene("lenet-dlg:init=default", trials=1, samples=100)
    result = IDLG(steps=2, restarts=1)(made.seen, (0,))
    assert result.steps.item() == 2
    assert result.objective.item() < 0.01 * result.trace[0, 0].item()


@pytest.mark.parametrize("schedule", ["in-turn", "halving"])
def test_a_film_is_that_of_the_attempt_that_is_kept_and_ends_with_what_is_reported(scene, schedule):
    made = scene("lenet-dlg:filters=3")
    found = DLG(steps=8, restarts=3, film=4, schedule=schedule)(made.seen, (0, 1))
    assert found.film_steps == (0, 1, 3, 8)
    assert found.film.shape == (2, 4, *found.inputs.shape[1:])
    assert torch.equal(found.film[:, -1], found.inputs)
    assert not torch.equal(found.film[:, 0], found.inputs)

"""Of several answers the closest counts, record by record, and the control is treated alike."""

import torch

from leakgauge.metrics.scoring import score
from leakgauge.metrics.worst_case import answers_in, with_answers, worst_case
from leakgauge.types import Batch, DataSpec, Reconstruction
from leakgauge.verdict.closeness import Candidates, closeness, judge, nearest_of

SPEC = DataSpec("made up", (1, 8, 8), 2, "image")


def batch(trials=3, samples=2):
    inputs = torch.rand(trials, samples, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Batch(inputs, torch.zeros(trials, samples, dtype=torch.int64))


def told(truth, *answers, names=("a", "b")):
    zero = torch.zeros(truth.trials)
    return Reconstruction(
        answers[0], None, zero, zero, zero, answers=torch.stack(answers, 1), answer_names=names[: len(answers)]
    )


def test_an_attack_with_one_answer_stays_as_it_is():
    truth = batch()
    zero = torch.zeros(3)
    assert worst_case(truth, Reconstruction(truth.inputs, None, zero, zero, zero), SPEC) is None


def test_each_record_is_taken_from_the_answer_that_comes_closest():
    truth = batch()
    first, second = torch.full_like(truth.inputs, 0.5), torch.full_like(truth.inputs, 0.5)
    first[:, 0], second[:, 0] = truth.inputs[:, 1], truth.inputs[:, 0]  # in whatever order
    found = worst_case(truth, told(truth, first, second), SPEC)
    torch.testing.assert_close(found.result.inputs, truth.inputs)
    assert found.result.notes == ("closest of 2 answers: a (1), b (1)",) * 3
    assert found.matched.shape == (3, 2, 2, 1, 8, 8)


def test_a_record_that_meets_the_criterion_goes_before_a_nearer_one_that_does_not():
    truth = batch(samples=1)
    brighter = (truth.inputs * 0.35).clamp(0, 1)  # the same structure, far off in brightness
    blurred = 0.5 * truth.inputs + 0.5 * truth.inputs.mean((3, 4), keepdim=True)
    blurred = torch.nn.functional.avg_pool2d(blurred.flatten(0, 1), 3, 1, 1).view_as(blurred)
    found = worst_case(truth, told(truth, blurred, brighter), SPEC)
    records = score(truth, found.result, SPEC).records
    alone = [score(truth, told(truth, a), SPEC).records["ssim"] for a in (blurred, brighter)]
    best = torch.stack(alone).amax(0)
    met = best >= 0.6
    assert (records["ssim"][met] >= 0.6).all()


def test_an_answer_that_diverged_does_not_hide_one_that_did_not():
    truth = batch()
    lost = torch.full_like(truth.inputs, torch.nan)
    found = worst_case(truth, told(truth, lost, truth.inputs), SPEC)
    torch.testing.assert_close(found.result.inputs, truth.inputs)
    assert not score(truth, found.result, SPEC).failed.any()


def test_what_is_kept_of_a_trial_can_be_taken_apart_again():
    recovered, answers = torch.rand(2, 3, 1, 8, 8), torch.rand(2, 5, 3, 1, 8, 8)
    kept = with_answers(recovered, answers)
    assert torch.equal(kept[:, :3], recovered)
    assert torch.equal(answers_in(kept, 3), answers)
    assert torch.equal(answers_in(recovered, 3), recovered[:, None])


def test_the_best_of_many_random_answers_is_no_evidence_of_a_leak():
    """Without the same choice for rivals the truth would be nearest of all far too often."""
    g = torch.Generator().manual_seed(1)
    trials, rivals, answers = 200, 39, 10
    truth, pool = (torch.rand(n, 1, 1, 8, 8, generator=g) for n in (trials, 400))
    places = torch.stack([torch.randperm(400, generator=g)[:rivals] for _ in range(trials)])[..., None]
    candidates = Candidates(pool[:, 0], places, True)
    guesses = torch.rand(trials, answers, 1, 1, 8, 8, generator=g)
    close = nearest_of([closeness(guess, truth, candidates) for guess in guesses.unbind(1)])
    assert judge(close, True).convincing is False
    wrong = closeness(guesses[:, 0], truth, candidates)  # the truth's best answer against one answer for the rivals
    best = torch.cat((close.matched[:, :1], wrong.matched[:, 1:]), 1)
    rigged = judge(type(close)(best, best, close.claimed), True)
    assert rigged.convincing is True

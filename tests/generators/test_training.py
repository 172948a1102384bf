"""Training lowers the error, is the same for the same seed, and an interrupt keeps what was learnt."""

import pytest
import torch

from leakgauge.data import load
from leakgauge.errors import BadInput
from leakgauge.generators.architecture import Architecture
from leakgauge.generators.training import Schedule, train

PLAN = Architecture((1, 8, 8), 10, latent=4, width=4)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return load("digits", "train")


def run(digits, steps, watch=lambda *_: None, seed=0):
    return train(PLAN, digits.take, len(digits), Schedule(steps=steps, batch_size=32, lr=3e-3, seed=seed), CPU, watch)


def test_the_error_falls_and_labels_come_out_different(digits):
    errors = []
    decoder, done = run(digits, 120, lambda step, error, kl: errors.append(error))
    assert done == len(errors) == 120
    assert sum(errors[-10:]) < 0.6 * sum(errors[:10])
    zero, one = decoder(torch.zeros(2, 4), torch.tensor([0, 1]))
    means = [digits.take(torch.nonzero(digits.labels == label)[:, 0])[0].mean(0) for label in (0, 1)]
    assert (zero - means[0]).square().mean() < (zero - means[1]).square().mean()
    assert (one - means[1]).square().mean() < (one - means[0]).square().mean()
    assert not any(p.requires_grad for p in decoder.parameters())


def test_the_same_seed_gives_the_same_weights_and_leaves_global_randomness_alone(digits):
    before = torch.get_rng_state()
    first, second, other = (run(digits, 3, seed=seed)[0].state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert not all(torch.equal(first[n], other[n]) for n in first)


def test_an_interrupt_keeps_what_was_learnt(digits):
    def stop(step, error, kl):
        if step == 2:
            raise KeyboardInterrupt

    decoder, done = run(digits, 50, stop)
    assert done == 2
    assert torch.isfinite(decoder(torch.zeros(1, 4), torch.tensor([0]))).all()


def test_an_interrupt_before_the_first_step_is_passed_on(digits):
    def halt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(PLAN, halt, 10, Schedule(steps=5), CPU, lambda *_: None)


def test_one_sample_is_too_few(digits):
    with pytest.raises(BadInput, match="at least 2"):
        train(PLAN, digits.take, 1, Schedule(steps=1), CPU, lambda *_: None)


def test_latents_are_moved_to_where_each_labels_codes_lie(digits):
    """N(0, 1) must give the codes' own mean and covariance, or samples are no pictures."""
    from leakgauge.generators.architecture import Decoder, Encoder
    from leakgauge.generators.training import _fit_codes

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        encoder, decoder = Encoder(PLAN), Decoder(PLAN).requires_grad_(False)
    encoder.gather.bias.data[4:] = -20  # no spread of their own: the codes are the means
    _fit_codes(encoder, decoder, digits.take, len(digits), CPU)
    pictures, labels = digits.take(torch.nonzero(digits.labels == 6)[:, 0])
    codes = encoder(pictures, labels)[0].detach()
    torch.testing.assert_close(decoder.centre[6], codes.mean(0), rtol=1e-3, atol=1e-4)
    fitted = decoder.stretch[6] @ decoder.stretch[6].T
    assert torch.linalg.norm(fitted - codes.T.cov()) < 0.3 * torch.linalg.norm(codes.T.cov())

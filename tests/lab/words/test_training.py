"""CTC by hand, a network that learns a few words by heart, and settings that cannot work."""

import math

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.lab.words.alphabet import encoded
from leakgauge.lab.words.network import build
from leakgauge.lab.words.rendering import rendered
from leakgauge.lab.words.training import Reading, Samples, ctc, optimizer_of, results, samples_of, train_locally

CPU = torch.device("cpu")


def test_loss_of_one_letter_in_two_steps_by_hand():
    """With equal chances, A is read from A-, -A and AA: three of 37 x 37 ways."""
    codes, lengths = encoded(["A"], 1)
    samples = Samples(torch.zeros(1, 3, 32, 8, dtype=torch.uint8), codes, lengths)
    loss = ctc(torch.zeros(1, 2, 37), samples)
    assert loss.item() == pytest.approx(-math.log(3 / 37**2), rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
def test_the_loss_falls(optimizer):
    how = Reading(
        words=32,
        batch_size=8,
        longest=4,
        image_width=48,
        width=4,
        optimizer=optimizer,
        lr=0.01 if optimizer == "adam" else 1.0,
        epochs=6,
    )
    samples = samples_of(rendered("flat", 32, 48, 4, 0), 4, CPU)
    model = build(how.width, 0)
    before, _ = results(model, samples)
    train_locally(model, optimizer_of(model, how), samples, how, torch.Generator().manual_seed(0))
    after, _ = results(model, samples)
    assert after < 0.7 * before


def test_a_handful_of_words_is_learned_by_heart():
    how = Reading(words=20, batch_size=6, longest=3, image_width=48, width=6, lr=0.005, epochs=250)
    some = samples_of(rendered("flat", 20, 48, 3, 0), 3, CPU).take(torch.arange(6))
    model = build(how.width, 0)
    train_locally(model, optimizer_of(model, how), some, how, torch.Generator().manual_seed(0))
    assert results(model, some)[1] >= 0.8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("longest=12,image_width=64", "at least 96"),
        ("words=3", "words"),
        ("optimizer=sgd", "adadelta"),
        ("image_widht=64", "image_width"),
    ],
)
def test_sizes_that_cannot_work_are_refused(text, says):
    with pytest.raises(BadInput, match=says):
        Reading.from_text(text)

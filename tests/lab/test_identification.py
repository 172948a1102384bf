"""The classifier of people: learns what can be learnt, repeats, and takes pictures of any size."""

import pytest
import torch

from leakgauge.data import Dataset, load
from leakgauge.errors import BadInput
from leakgauge.lab.identification import Standardize, train_identifier
from leakgauge.types import DataSpec

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """The same network with few channels, so that it learns in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leakgauge.lab.identification.WIDTH", 6)
        yield


@pytest.fixture(scope="module")
def stripes():
    """Three people who differ in the direction of their stripes; every picture at another phase."""
    spec = DataSpec("stripes", (1, 16, 16), 3, "image")
    source = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    pictures, labels = [], []
    for number in range(90):
        across = (x, y, x + y)[number % 3]
        phase = 6.3 * torch.rand((), generator=source)
        pictures.append(0.5 + 0.4 * torch.sin(across + phase))
        labels.append(number % 3)
    return Dataset(spec, torch.stack(pictures)[:, None], torch.tensor(labels))


@pytest.fixture(scope="module")
def trained(stripes):
    return train_identifier(stripes, seed=0, device=CPU, steps=40)


def test_it_learns_who_is_who(stripes, trained):
    scores = trained.scores(stripes.inputs)
    torch.testing.assert_close(scores.sum(1), torch.ones(90))
    assert (scores.argmax(1) == stripes.labels).double().mean() > 0.8


def test_the_same_seed_gives_the_same_classifier_and_leaves_the_callers_randomness_alone(stripes):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = train_identifier(stripes, seed=5, device=CPU, steps=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    second = train_identifier(stripes, seed=5, device=CPU, steps=2)
    assert torch.equal(first.scores(stripes.inputs), second.scores(stripes.inputs))
    other = train_identifier(stripes, seed=6, device=CPU, steps=2)
    assert not torch.equal(first.scores(stripes.inputs), other.scores(stripes.inputs))


def test_brightness_and_contrast_do_not_matter_and_a_blank_picture_is_no_mishap(stripes, trained):
    dim = trained.scores(0.3 * stripes.inputs + 0.2)
    torch.testing.assert_close(dim, trained.scores(stripes.inputs), atol=0.05, rtol=0)
    assert torch.isfinite(trained.scores(torch.zeros(1, 1, 16, 16))).all()


def test_a_picture_is_judged_without_its_neighbours(stripes, trained):
    torch.testing.assert_close(trained.scores(stripes.inputs[4:5])[0], trained.scores(stripes.inputs)[4])


def test_every_picture_is_brought_to_one_size():
    assert Standardize()(torch.rand(2, 3, 64, 48)).shape == (2, 3, 32, 32)


def test_tables_and_no_steps_are_refused(stripes):
    with pytest.raises(BadInput, match="pictures"):
        train_identifier(load("breast-cancer", "train"), 0, CPU, 1)
    with pytest.raises(BadInput, match="steps"):
        train_identifier(stripes, 0, CPU, 0)

"""Targets that are no single class, read off the last bias: against the targets themselves."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.labels import Labels
from leakgauge.attacks.rank_one import RankOne
from leakgauge.client.fedsgd import fedsgd
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import inferred_labels, labels_can_be_read, searched_labels
from leakgauge.matching.targets import read_targets
from leakgauge.types import (
    QUANTITIES,
    SEQUENCE,
    SEVERAL_CLASSES,
    Batch,
    Client,
    DataSpec,
    Fact,
    Observation,
    threat_model,
)

WIDTH, OUTPUTS = 12, 4


def seen(target, loss, samples=1, model=None, shape=(), bias=True, classes=OUTPUTS):
    """Two clients' gradients of a small network, and their batch."""
    torch.manual_seed(0)
    data = DataSpec("t", (WIDTH,), classes, "tabular", target=target, target_shape=shape)
    model = model or nn.Sequential(nn.Linear(WIDTH, 9, bias=bias), nn.Tanh(), nn.Linear(9, classes))
    g = torch.Generator().manual_seed(1)
    batch = Batch(torch.rand(2, samples, WIDTH, generator=g), data.draw_targets((2, samples), g))
    public = Batch(torch.rand(1, 256, WIDTH, generator=g), data.draw_targets((1, 256), g))
    local = Client(loss=loss)
    facts = {Fact.INPUT_SPEC: data, Fact.NUM_SAMPLES: samples, Fact.LOCAL_TRAINING: local, Fact.PUBLIC_DATA: public}
    shared = fedsgd(local)(model.eval(), batch, (0, 1))
    return Observation(model, shared, threat_model("honest-but-curious"), facts), batch


def test_of_one_sample_bce_shows_exactly_which_classes_it_has():
    observation, batch = seen(SEVERAL_CLASSES, "bce", shape=(OUTPUTS,))
    read = read_targets(observation)
    torch.testing.assert_close(read.exact, batch.labels.double())
    assert read.words[0].endswith(", ".join(str(k) for k in batch.labels[0, 0].nonzero()[:, 0].tolist()) or "none")
    torch.testing.assert_close(searched_labels(observation, "infer"), batch.labels)
    assert labels_can_be_read(observation)


def test_of_a_batch_bce_shows_the_expected_count_of_each_class():
    observation, batch = seen(SEVERAL_CLASSES, "bce", samples=8, shape=(OUTPUTS,))
    read, true = read_targets(observation), batch.labels.sum(1)
    assert read.exact is None
    assert searched_labels(observation, "infer") is None
    assert (true[read.sure] > 0).all()
    assert (read.values - true).abs().max() < 0.5


def test_mse_shows_the_mean_target():
    observation, batch = seen(QUANTITIES, "mse", samples=8, shape=(OUTPUTS,))
    assert (read_targets(observation).values - batch.labels.mean(1)).abs().max() < 0.15


def test_a_row_of_labels_shows_which_occur():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.head = nn.Linear(WIDTH, 6 * 9), nn.Linear(9, 30)

        def forward(self, x):
            return self.head(torch.tanh(self.net(x)).unflatten(1, (6, 9)))

    observation, batch = seen(SEQUENCE, "cross-entropy", model=Rows(), shape=(6,), classes=30)
    read = read_targets(observation)
    for sure, labels in zip(read.sure, batch.labels, strict=True):
        assert set(sure.nonzero()[:, 0].tolist()) == set(labels.flatten().tolist())
    with pytest.raises(NotApplicable, match="labels cannot be read here as one class"):
        inferred_labels(observation)


@pytest.mark.parametrize(("target", "loss"), [(QUANTITIES, "l1"), (QUANTITIES, "huber"), (SEVERAL_CLASSES, "mse")])
def test_where_no_rule_is_known_that_is_said(target, loss):
    observation, _ = seen(target, loss, shape=(OUTPUTS,))
    with pytest.raises(NotApplicable, match="labels cannot be read here: no rule is known"):
        read_targets(observation)
    with pytest.raises(NotApplicable, match="labels cannot be read here"):
        Labels()(observation, (0, 1))


def test_the_attack_says_what_was_read_in_words():
    observation, _ = seen(QUANTITIES, "mse", shape=(OUTPUTS,))
    result = Labels()(observation, (0, 1))
    assert result.labels is None
    assert "the mean target is about" in result.notes[0]


@pytest.mark.parametrize(("target", "loss"), [(QUANTITIES, "mse"), (SEVERAL_CLASSES, "bce")])
@pytest.mark.parametrize("bias", [True, False])
def test_one_sample_is_proven_whatever_its_target_is(target, loss, bias):
    observation, batch = seen(target, loss, shape=(OUTPUTS,), bias=bias)
    result = RankOne()(observation, (0, 1))
    torch.testing.assert_close(result.inputs, batch.inputs, rtol=0, atol=2e-3)
    assert result.certified.tolist() == [1, 1]
    assert result.labels is None

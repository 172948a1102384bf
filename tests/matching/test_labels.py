"""The label rule on its own: which entry is negative, with and without a bias."""

import pytest
import torch

from leakgauge.attacks.labels import Labels
from leakgauge.attacks.linear import Linear
from leakgauge.attacks.rgap import RGAP
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import inferred_labels, searched_labels, single_label
from leakgauge.matching.last_layer import proven_labels
from leakgauge.models import load_model
from leakgauge.types import Client, Fact, threat_model

WEIGHT = torch.tensor([[[0.2, 0.1], [-0.5, -0.3], [0.3, 0.2]], [[-0.4, -0.1], [0.1, 0.0], [0.3, 0.1]]])  # (T, C, d)
BIAS = torch.tensor([[0.3, 0.3, -0.6], [0.2, -0.4, 0.2]])  # disagrees with the rows on purpose


def test_the_bias_is_preferred_and_the_rows_can_be_asked_for():
    gradient = {"fc.weight": WEIGHT, "fc.bias": BIAS}
    assert single_label(gradient, "fc").tolist() == [2, 1]
    assert single_label(gradient, "fc", "bias").tolist() == [2, 1]
    assert single_label(gradient, "fc", "row-sum").tolist() == [1, 0]


def test_without_a_bias_the_rows_decide():
    assert single_label({"fc.weight": WEIGHT}, "fc").tolist() == [1, 0]


# --- other losses than plain cross-entropy --------------------------------------------------------------------------


def seen(model, batch, local):
    data = load("digits").spec
    update = client_step(local)(model, batch, range(batch.trials))
    return observe(model, update, threat_model("honest-but-curious"), facts_about(model, batch, data, local, None))


@pytest.fixture
def scene():
    digits = load("digits")

    def made(text, trials=20, samples=1, **more):
        model = load_model("mlp:hidden=16", digits.spec, seed=0)
        batch = draw_victims(digits, trials, samples, 0, **more)
        return seen(model, batch, Client.from_text(text)), batch, model

    return made


@pytest.mark.parametrize("text", ["label_smoothing=0.1", "label_smoothing=0.5", "class_weights=1+2+3+1+2+3+1+2+3+9"])
def test_a_single_label_is_read_under_smoothing_and_weights(scene, text):
    observation, batch, _ = scene(text)
    assert torch.equal(inferred_labels(observation), batch.labels)
    assert proven_labels(observation).tolist() == [1] * 20


def test_where_the_model_is_surer_than_smoothing_lets_it_be_nothing_is_proven(scene):
    _, batch, model = scene("")
    with torch.no_grad():
        own = batch.labels[0, 0]
        model.get_submodule("fc2").bias[own] += 8.0  # p of this label is nearly 1, above 1 - s
    one = seen(model, batch.take([0]), Client.from_text("label_smoothing=0.3"))
    assert proven_labels(one).tolist() == [0]
    assert proven_labels(seen(model, batch.take([0]), Client())).tolist() == [1]


def test_no_absent_label_is_proven_under_smoothing(scene):
    observation, batch, _ = scene("label_smoothing=0.3", samples=8)
    found = proven_labels(observation)
    there = torch.tensor([len(set(row.tolist())) for row in batch.labels])
    assert bool((found <= there).all())
    assert float(found.double().mean()) > 0.5 * float(there.double().mean())


def test_most_counts_are_read_under_smoothing(scene):
    """The mean prediction is guessed, and smoothing makes its error larger: 14 of 20 batches where 20 were right."""
    right = []
    for text in ("", "label_smoothing=0.2"):
        observation, batch, _ = scene(text, samples=8)
        found = inferred_labels(observation)
        right.append(int((found == batch.labels.sort(1).values).all(1).sum()))
    assert right[0] >= 18
    assert right[1] >= 12


@pytest.mark.parametrize(("text", "samples"), [("class_weights=1+2+3+1+2+3+1+2+3+9", 4), ("loss=huber", 1)])
def test_what_the_last_layer_does_not_show_is_refused(scene, text, samples):
    observation, _, _ = scene("", samples=samples)
    facts = dict(observation.revealed) | {Fact.LOCAL_TRAINING: Client.from_text(text)}
    told = observe(observation.model, observation.update, observation.threat_model, facts)
    with pytest.raises(NotApplicable, match=r"label rules hold for|weights of classes"):
        inferred_labels(told)
    assert searched_labels(told, "infer") is None


def test_attacks_that_rest_on_plain_cross_entropy_say_so(scene):
    observation, batch, _ = scene("label_smoothing=0.1")
    with pytest.raises(NotApplicable, match=r"rests on cross-entropy as it is, .* smoothed labels"):
        RGAP()(observation, range(20))
    found = Linear()(observation, range(20))
    assert float((found.inputs - batch.inputs).abs().max()) < 1e-4
    assert torch.equal(Labels()(observation, range(20)).labels, batch.labels)

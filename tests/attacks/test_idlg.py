"""METHODS G2: the label of one sample stands in the last layer's gradient."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.idlg import IDLG
from leakgauge.engine.gradients import trial_gradients
from leakgauge.errors import NotApplicable
from leakgauge.matching.labels import single_label
from leakgauge.types import Client

QUICK = IDLG(steps=1, restarts=1)


def random_pairs(activation: str, pairs: int):
    """Gradients of `pairs` (net, sample) pairs side by side, each net with weights of its own; (gradient, labels)."""
    g = torch.Generator().manual_seed(7)
    acts = {"relu": nn.ReLU(), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh()}
    net = nn.Sequential(nn.Linear(6, 9), acts[activation], nn.Linear(9, 5)).double()
    weights = {n: 2 * torch.randn(pairs, *p.shape, generator=g, dtype=torch.float64) for n, p in net.named_parameters()}
    inputs = torch.randn(pairs, 1, 6, generator=g, dtype=torch.float64)
    labels = torch.randint(5, (pairs, 1), generator=g)
    return trial_gradients(net, inputs, labels, weights), labels[:, 0]


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_bias_rule_reads_every_label_of_1000_random_pairs(activation):
    gradient, labels = random_pairs(activation, 1000)
    assert torch.equal(single_label(gradient, "2", "bias"), labels)
    assert torch.equal(single_label(gradient, "2", "auto"), labels)
    assert ((gradient["2.bias"] < 0).sum(1) <= 1).all()  # the only negative entry


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_both_rules_agree_while_features_are_not_negative(activation):
    gradient, labels = random_pairs(activation, 1000)
    alive = gradient["2.weight"].abs().sum((1, 2)) > 0  # a net whose features are all zero says nothing in its rows
    assert alive.float().mean() > 0.95
    assert torch.equal(single_label(gradient, "2", "row-sum")[alive], labels[alive])


def test_row_sums_fail_for_centred_features_where_the_bias_does_not():
    gradient, labels = random_pairs("tanh", 1000)
    assert (single_label(gradient, "2", "row-sum") == labels).float().mean() < 0.9


def test_auto_falls_back_on_row_sums_without_a_bias():
    gradient, labels = random_pairs("sigmoid", 50)
    del gradient["2.bias"]
    assert torch.equal(single_label(gradient, "2", "auto"), labels)


@pytest.mark.parametrize("rule", ["auto", "bias", "row-sum"])
@pytest.mark.parametrize("model", ["lenet-dlg:filters=3", "mlp:hidden=12", "lenet-cpl:filters=3"])
def test_the_attack_reads_the_label_through_a_whole_model(scene, model, rule):
    made = scene(model, trials=12)
    result = IDLG(steps=1, restarts=1, rule=rule)(made.seen, range(12))
    assert torch.equal(result.labels, made.batch.labels)


def test_the_label_is_read_from_a_weight_difference_too(scene):
    made = scene("lenet-dlg:filters=3", trials=8, local=Client(kind="fedavg", lr=0.1))
    assert torch.equal(QUICK(made.seen, range(8)).labels, made.batch.labels)


def test_pictures_are_recovered(scene):
    made = scene("lenet-dlg", trials=3)
    result = IDLG(steps=15, restarts=1)(made.seen, range(3))
    assert (made.psnr(result) > 25).all()
    assert (made.score(result).label_accuracy == 1).all()
    assert (result.objective < 1e-6).all()


def test_the_labels_of_a_batch_are_counted_and_then_kept(scene):
    made = scene("lenet-dlg:filters=3,init=default", samples=6, trials=3)
    result = QUICK(made.seen, range(3))
    assert torch.equal(result.labels, made.batch.labels.sort(1).values)
    assert result.inputs.shape == made.batch.inputs.shape


def test_labels_can_be_left_to_the_search(scene):
    made = scene("mlp:hidden=12", samples=2)
    assert IDLG(steps=1, restarts=1, labels="optimise")(made.seen, (0, 1)).labels.shape == (2, 2)


def test_a_batch_whose_labels_cannot_be_read_is_left_to_the_search(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 10), nn.Tanh())
    assert QUICK(scene(net, samples=2).seen, (0, 1)).labels.shape == (2, 2)


def test_several_samples_are_fine_with_given_labels(scene):
    made = scene("lenet-dlg:filters=2", samples=3, told="honest-but-curious+labels")
    assert torch.equal(QUICK(made.seen, (0, 1)).labels, made.batch.labels)


def test_a_model_that_does_not_end_in_a_linear_layer_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10), nn.Tanh())
    with pytest.raises(NotApplicable, match=r"ends in one nn\.Linear"):
        QUICK(scene(net).seen, (0, 1))


def test_a_frozen_classifier_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[3].requires_grad_(False)
    with pytest.raises(NotApplicable, match="'3', which is frozen"):
        QUICK(scene(net).seen, (0, 1))

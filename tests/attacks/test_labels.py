"""METHODS A14 and G3: a batch's labels stand in the last layer's gradient, often enough to count them exactly."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge.attacks.labels import Labels
from leakgauge.errors import NotApplicable
from leakgauge.matching.label_counts import RULES
from leakgauge.types import Client, Fact

EXACT = ("auto", "exact")


def accuracy(made, result):
    return made.score(result).label_accuracy


@pytest.mark.parametrize("rule", ["auto", *RULES])
def test_every_rule_claims_as_many_labels_as_there_are_samples_and_no_inputs(scene, rule):
    made = scene("mlp:hidden=16", samples=12, trials=3)
    result = Labels(rule=rule)(made.seen, range(3))
    assert result.inputs is None
    assert result.labels.shape == (3, 12)
    assert torch.equal(result.labels, result.labels.sort(1).values)
    assert (result.objective >= 0).all()
    assert (accuracy(made, result) > 0.1).all()


@pytest.mark.parametrize("rule", EXACT)
@pytest.mark.parametrize("samples", [1, 2, 9, 64, 256])
def test_an_untrained_network_gives_every_label_away(scene, rule, samples):
    made = scene("lenet-dlg:init=default", samples=samples, trials=1 if samples == 256 else 3)
    assert (accuracy(made, Labels(rule=rule)(made.seen, range(made.seen.trials))) == 1).all()


def test_4096_samples_are_counted_exactly(scene):
    """The digits are too few for such a batch: samples are drawn again and again."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 10))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.1)
    made = scene(net, samples=1, trials=1)
    g = torch.Generator().manual_seed(3)
    inputs, labels = torch.rand(4096, 1, 8, 8, generator=g), torch.randint(10, (4096,), generator=g)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    gradient = torch.autograd.grad(loss, list(net.parameters()))
    names = [name for name, _ in net.named_parameters()]
    update = dataclasses.replace(made.seen.update, tensors={n: t[None] for n, t in zip(names, gradient, strict=True)})
    seen = dataclasses.replace(made.seen, update=update, revealed=made.seen.revealed | {Fact.NUM_SAMPLES: 4096})
    assert torch.equal(Labels()(seen, (0,)).labels[0], labels.sort().values)


@pytest.mark.parametrize("rule", ["auto", "exact", "llg-star", "least-squares"])
def test_without_public_data_dummy_inputs_or_none_do(scene, rule):
    made = scene("lenet-dlg:init=default", samples=32, trials=3, told="eavesdropper")
    assert (accuracy(made, Labels(rule=rule)(made.seen, range(3))) > 0.9).all()


def test_llg_plus_needs_public_data(scene):
    made = scene("mlp:hidden=16", samples=4, told="eavesdropper")
    with pytest.raises(NotApplicable, match=r"llg-plus learns from public data.*use llg-star"):
        Labels(rule="llg-plus")(made.seen, (0, 1))


def test_labels_are_read_from_a_weight_difference_too(scene):
    local = Client(kind="fedavg", lr=0.01)
    made = scene("lenet-dlg:init=default", samples=16, trials=3, local=local)
    assert (accuracy(made, Labels()(made.seen, range(3))) == 1).all()


def test_a_last_layer_without_bias_is_read_through_its_features(scene):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10, bias=False))
    made = scene(net, samples=8, trials=4)
    assert accuracy(made, Labels()(made.seen, range(4))).mean() > 0.9


def test_a_frozen_weight_leaves_the_bias_to_read(scene):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[3].weight.requires_grad_(False)
    made = scene(net, samples=8, trials=4)
    assert accuracy(made, Labels()(made.seen, range(4))).mean() > 0.9


def test_a_frozen_last_layer_is_not_applicable(scene):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[3].requires_grad_(False)
    with pytest.raises(NotApplicable, match="'3', which is frozen"):
        Labels()(scene(net, samples=3).seen, (0, 1))


def test_more_samples_than_measured_are_refused(scene):
    made = scene("mlp:hidden=16")
    seen = dataclasses.replace(made.seen, revealed=made.seen.revealed | {Fact.NUM_SAMPLES: 4097})
    with pytest.raises(NotApplicable, match="up to 4096 samples"):
        Labels()(seen, (0, 1))


def test_a_batch_alone_is_counted_as_among_others(scene):
    made = scene("lenet-dlg", samples=24, trials=4)
    noisy = made.seen.update.map(
        lambda _, t: t + 1e-3 * torch.arange(4).view(-1, *[1] * (t.dim() - 1)) * torch.randn_like(t)
    )
    seen = dataclasses.replace(made.seen, update=noisy)
    together = Labels()(seen, range(4)).labels
    for t in range(4):
        assert torch.equal(Labels()(seen.take([t]), [t]).labels[0], together[t])


def test_the_result_says_which_rule_auto_came_to(scene):
    made = scene("lenet-dlg:init=default", samples=8, trials=3)
    result = Labels()(made.seen, range(3))
    assert result.notes == ("counted by exact",) * 3
    assert result.take([1]).notes == ("counted by exact",)
    assert Labels(rule="yin")(made.seen, range(3)).notes == ("counted by yin",) * 3


# --- labels that need no statistics -----------------------------------------------------------------


@pytest.mark.parametrize("half", [torch.float32, torch.bfloat16])
def test_one_negative_entry_proves_one_label(scene, half):
    made = scene("lenet-dlg", samples=1, trials=4)
    shared = made.seen.update.map(lambda _, t: t.to(half).to(t))
    seen = dataclasses.replace(made.seen, update=shared)
    assert Labels()(seen, range(4)).labels_proven.tolist() == [1] * 4


def test_a_batch_proves_no_more_labels_than_it_holds(scene):
    made = scene("lenet-dlg:init=default", samples=6, trials=5)
    proven = Labels()(made.seen, range(5)).labels_proven
    distinct = torch.tensor([len(set(row)) for row in made.batch.labels.tolist()])
    assert (proven <= distinct).all()
    assert (proven >= 1).all()


@pytest.mark.parametrize("std", [0.01, 0.1, 1.0])
def test_noise_proves_nothing(scene, std):
    made = scene("lenet-dlg:init=default", samples=1, trials=50)
    g = torch.Generator().manual_seed(5)
    only_noise = made.seen.update.map(lambda _, t: std * torch.randn(t.shape, generator=g))
    assert Labels()(dataclasses.replace(made.seen, update=only_noise), range(50)).labels_proven.sum() == 0

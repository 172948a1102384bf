"""METHODS G9 and A10: exact where every layer can be solved, refused by name where one cannot, ranks said before."""

import pytest
import torch
from torch import nn

from leakgauge.attacks.rgap import (
    RGAP,
    chain_of,
    choose_reading,
    forward_passes,
    logistic_outputs,
    rank_report,
    walk_back,
)
from leakgauge.client.chain import client_step
from leakgauge.client.observe import facts_about, observe
from leakgauge.data import draw_victims, load
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import NotApplicable
from leakgauge.metrics.scoring import score
from leakgauge.models import load_model
from leakgauge.types import Batch, Client, threat_model


def photo(model, dtype, data="photos32"):
    """(scores, claim) of the attack on one real photo."""
    pictures = load(data)
    net = load_model(model, pictures.spec, seed=0).to(dtype)
    drawn = draw_victims(pictures, 1, 1, seed=0)
    batch = Batch(drawn.inputs.to(dtype), drawn.labels)
    facts = facts_about(net, batch, pictures.spec, Client(), None)
    update = client_step(Client())(net, batch, (0,))
    result = RGAP()(observe(net, update, threat_model("honest-but-curious"), facts), (0,))
    return score(batch, result, pictures.spec), result


def test_a_photo_is_exact_through_cnn6():
    scores, result = photo("cnn6", torch.float64)
    assert scores.records["psnr"].min() > 80
    assert scores.label_accuracy.tolist() == [1.0]
    assert (result.objective < 1e-9).all()


def test_a_cifar_picture_is_exact_through_cnn6_with_a_bias(real_data):
    real_data("cifar10")
    scores, _ = photo("cnn6:bias=true", torch.float64, "cifar10")
    assert scores.records["psnr"].min() > 80


def test_ranks_of_both_networks():
    """Of what enters the second convolution of cnn6-d, 12 (20 + 40 + 40 + 64) + 1620 - 20 x 20 is determined."""
    data = load("photos32").spec
    whole = rank_report(load_model("cnn6", data, seed=0), data)
    assert [r.layer for r in whole] == ["conv1", "conv2", "conv3", "conv4", "conv5", "conv6", "fc"]
    assert [r.unknowns for r in whole] == [3072, 3468, 2916, 2916, 2916, 1600, 3200]
    assert [r.rank for r in whole] == [r.unknowns for r in whole]
    less = rank_report(load_model("cnn6-d", data, seed=0), data)
    assert [r.layer for r in less if r.deficient] == ["conv2"]
    assert (less[1].unknowns, less[1].rank) == (3468, 3188)


NETS = [
    "lenet-dlg:filters=4",
    "lenet-cpl:filters=4,activation=tanh",
    "cnn6",
    "cnn6:bias=true",
    "cnn6-d:slope=0.5",
    "cnn6:normalize=data",
    "mlp:activation=leaky_relu",
    "mlp:activation=sigmoid",
    "mlp:activation=tanh",
    "mlp:activation=elu",
    "mlp:activation=softplus",
]


@pytest.mark.parametrize("model", NETS)
def test_one_digit_is_exact(scene, model):
    made = scene(model, trials=3, dtype=torch.float64)
    result = RGAP()(made.seen, range(3))
    torch.testing.assert_close(result.inputs, made.batch.inputs, rtol=0, atol=1e-6)
    assert torch.equal(result.labels, made.batch.labels)
    assert (result.objective < 1e-8).all()


def test_float32_updates_are_enough(scene):
    for model in ("cnn6", "lenet-dlg:filters=4"):
        made = scene(model, trials=4)
        assert (made.psnr(RGAP()(made.seen, range(4))) > 60).all()


def test_a_weight_difference_of_one_step_is_as_good_as_a_gradient(scene):
    made = scene("cnn6", local=Client(kind="fedavg", lr=0.1), dtype=torch.float64)
    torch.testing.assert_close(RGAP()(made.seen, (0, 1)).inputs, made.batch.inputs, rtol=0, atol=1e-5)


def test_a_table_of_two_classes_without_any_bias(scene):
    """The gradient does not say which class: the wrong one contradicts the layers further in."""
    net = nn.Sequential(
        nn.Linear(30, 64, bias=False),
        nn.LeakyReLU(0.2),
        nn.Linear(64, 16, bias=False),
        nn.LeakyReLU(0.2),
        nn.Linear(16, 2, bias=False),
    )
    made = scene(net, data="breast-cancer", trials=6, dtype=torch.float64)
    result = RGAP()(made.seen, range(6))
    assert torch.equal(result.labels, made.batch.labels)
    found, truth = result.inputs[:, 0], made.batch.inputs[:, 0]
    scale = (found * truth).sum(1, keepdim=True) / (truth * truth).sum(1, keepdim=True)
    torch.testing.assert_close(found, scale * truth, rtol=0, atol=1e-6)  # a twin at worst: the very same gradient
    assert ((scale - 1).abs() < 1e-6).sum() >= 3
    assert (result.objective < 1e-8).all()


@pytest.mark.parametrize("label", [0, 1])
def test_the_papers_own_setting_of_one_logit(label):
    """cnn6 with one logit and the logistic loss; the margin has one root where the network is wrong."""
    data = load("digits").spec
    one = type(data)("one", data.shape, 1, "image")
    net = load_model("cnn6", one, seed=1).double()
    x = draw_victims(load("digits"), 1, 1, seed=0).inputs[0].double()
    y = 2 * label - 1
    loss = nn.functional.softplus(-y * net(x)).sum()
    gradient = dict(zip(dict(net.named_parameters()), torch.autograd.grad(loss, list(net.parameters())), strict=True))
    chain = chain_of(net, x)
    outputs = logistic_outputs(gradient["fc.weight"], net.fc.weight.detach())
    walks = [(*walk_back(chain, gradient, forward_passes(chain), out), out.label) for out in outputs]
    found, told, miss = choose_reading(walks)
    assert told == label
    assert miss < 1e-8
    torch.testing.assert_close(found, x[0], rtol=0, atol=1e-6)


def test_a_deficient_layer_is_flagged_and_still_answered(scene):
    narrow = nn.Sequential(
        nn.Conv2d(1, 2, 3, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32, 10)
    ).double()
    made = scene(narrow, dtype=torch.float64)
    (rank, _) = rank_report(narrow, made.data)
    assert rank.deficient
    assert RGAP().concerns(made.seen) == ("rank-deficient",)
    assert RGAP().concerns(scene("cnn6").seen) == ()
    result = RGAP()(made.seen, (0, 1))
    assert (result.objective < 1e-8).all()  # every equation holds, and yet the answer is another
    assert (result.inputs - made.batch.inputs).abs().max() > 0.1
    assert (result.inputs.flatten(1).norm(dim=1) < made.batch.inputs.flatten(1).norm(dim=1)).all()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.act = nn.Linear(64, 64), nn.Linear(64, 10), nn.Sigmoid()

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x + self.act(self.first(x)))


class Twice(Residual):
    def forward(self, x):
        return self.last(self.act(self.first(self.act(self.first(x.flatten(1))))))


class Functional(Residual):
    def forward(self, x):
        return self.last(torch.sin(self.first(x.flatten(1))))


class Branching(Residual):
    def forward(self, x):
        return self.last(self.first(x.flatten(1))) if x.sum() > -1 else x


def chained(*layers):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), *layers, nn.Linear(16, 10))


@pytest.mark.parametrize(
    ("net", "said"),
    [
        ("mlp", r"'act1' \(ReLU\) is an activation without an inverse"),
        ("mlp:activation=gelu", r"'act1' \(GELU\) is an activation without an inverse"),
        ("lenet-dlg:filters=2,pooling=avg", r"'pool1' \(AvgPool2d\) pools"),
        ("resnet20:width=2", r"'bn1' \(BatchNorm2d\) is BatchNorm"),
        (chained(nn.BatchNorm1d(16)), r"'2' \(BatchNorm1d\) is BatchNorm"),
        (chained(nn.LeakyReLU(0.0)), r"'2' \(LeakyReLU\) is an activation without an inverse"),
        (chained(nn.LayerNorm(16)), r"'2' \(LayerNorm\) has no rule"),
        (nn.Sequential(chained(), nn.Tanh()), r"ends in '1' \(Tanh\)"),
        (Residual(), "'Residual' adds two paths"),
        (Twice(), "'first' runs twice"),
        (Functional(), "no rule for 'sin' in 'Functional'"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(128, 10)), "convolution '0' has"),
    ],
)
def test_a_layer_that_cannot_be_walked_back_is_named(scene, net, said):
    with pytest.raises(NotApplicable, match=said):
        RGAP()(scene(net).seen, (0, 1))


def test_a_forward_that_branches_on_its_data_is_not_applicable():
    with pytest.raises(NotApplicable, match="cannot follow this network's own forward"):
        chain_of(Branching(), torch.zeros(1, 64))


def test_more_than_one_sample_is_not_applicable(scene):
    with pytest.raises(NotApplicable, match="one sample, the update holds 2"):
        RGAP()(scene("cnn6", samples=2).seen, (0, 1))


def test_a_frozen_layer_is_not_applicable(scene):
    net = chained(nn.Tanh())
    net[1].requires_grad_(False)
    with pytest.raises(NotApplicable, match="gradient of '1', which is frozen"):
        RGAP()(scene(net).seen, (0, 1))


def test_a_frozen_last_bias_is_no_obstacle(scene):
    net = chained(nn.Tanh())
    net[-1].bias.requires_grad_(False)
    made = scene(net, dtype=torch.float64)
    torch.testing.assert_close(RGAP()(made.seen, (0, 1)).inputs, made.batch.inputs, rtol=0, atol=1e-6)


def test_noise_costs_quality_and_shows_in_the_objective(scene):
    clean, noisy = (scene("cnn6", defenses=d) for d in ((), (Gaussian(std=1e-3),)))
    exact, blurred = RGAP()(clean.seen, (0, 1)), RGAP()(noisy.seen, (0, 1))
    assert torch.isfinite(blurred.inputs).all()
    assert (noisy.psnr(blurred) < clean.psnr(exact)).all()
    assert (blurred.objective > 10 * exact.objective).all()


def test_an_update_of_zeros_gives_no_nan(scene):
    for model in ("cnn6", "cnn6:bias=true", "lenet-dlg:filters=2"):
        made = scene(model, change=lambda u: u.map(lambda _, t: torch.zeros_like(t)))
        result = RGAP()(made.seen, (0, 1))
        assert torch.isfinite(result.inputs).all()
        assert torch.isfinite(result.objective).all()

"""Gradients of many trials against the slow loop, and a client's own in parts."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import leakgauge.engine.gradients as module
from leakgauge import catalog
from leakgauge.engine.gradients import (
    client_gradients,
    kept_bytes,
    one_by_one,
    parameters_of,
    run_one_by_one,
    trial_gradients,
    working_model,
)
from leakgauge.engine.losses import cross_entropy, loss_of, nll_on_logits
from leakgauge.engine.ways import second_derivatives
from leakgauge.models import load_model
from leakgauge.types import Client, DataSpec

GREY8 = DataSpec("grey", (1, 8, 8), 4, "image")
COLOUR32 = DataSpec("colour", (3, 32, 32), 3, "image")
TABLE = DataSpec("table", (7,), 3, "tabular")
SMALL = {  # every model of the zoo, as small as it goes; a new one must be added here
    "cnn-melis": ("cnn-melis:width=2,hidden=5", COLOUR32),
    "cnn6": ("cnn6", COLOUR32),
    "cnn6-d": ("cnn6-d", COLOUR32),
    "convnet": ("convnet:width=2", DataSpec("tiny", (3, 9, 9), 3, "image")),
    "convnet9": ("convnet9:width=2", DataSpec("tiny", (3, 9, 9), 3, "image")),
    "lenet-cpl": ("lenet-cpl:filters=3", GREY8),
    "lenet-dlg": ("lenet-dlg:filters=3", GREY8),
    "lenet5-grnn": ("lenet5-grnn", COLOUR32),
    "lenet5-mkor": ("lenet5-mkor", COLOUR32),
    "mkor-modified": ("mkor-modified", COLOUR32),
    "mlp": ("mlp:hidden=5", TABLE),
    "mlp-precode": ("mlp-precode:hidden=5", TABLE),
    "resnet18": ("resnet18:width=2", COLOUR32),
    "resnet18-grnn": ("resnet18-grnn:width=2", COLOUR32),
    "resnet20": ("resnet20:width=2", GREY8),
    "resnet20-4": ("resnet20-4:width=2", GREY8),
    "resnet32": ("resnet32:width=2", GREY8),
    "resnet34": ("resnet34:width=2", COLOUR32),
    "vgg16-bn": ("vgg16-bn:width=2,hidden=8", COLOUR32),
    "vgg16-mkor": ("vgg16-mkor:width=2,hidden=8", COLOUR32),
    "vit": ("vit:patch=4,embedding=4,depth=1,heads=2", GREY8),
}
BATCHNORM = ["convnet", "resnet18-grnn", "resnet20", "resnet20-4", "resnet32"]


def private(data: DataSpec, trials: int, samples: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(11)
    inputs = torch.rand(trials, samples, *data.shape, generator=g, dtype=torch.float64).to(dtype)
    return inputs, torch.randint(data.classes, (trials, samples), generator=g)


def slow_loop(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """One trial after the other, with torch's own loss and autograd."""
    names = [n for n, _ in model.named_parameters()]
    rows = [
        torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for x, y in zip(inputs, targets, strict=True)
    ]
    return {n: torch.stack([row[i] for row in rows]) for i, n in enumerate(names)}


def assert_same(ours: dict[str, Tensor], slow: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() == slow.keys()
    whole = max(expected.norm() for expected in slow.values())
    for name, expected in slow.items():
        assert ours[name].shape == expected.shape, name
        # A bias in front of BatchNorm has no gradient: what stands there is rounding, which differs between machines.
        error = (ours[name] - expected).norm() / expected.norm().clamp_min(1e-5 * whole)
        assert error < tolerance, f"{name}: {error:.1e}"


def test_every_model_of_the_zoo_is_checked_here():
    assert set(SMALL) == set(catalog.find("models"))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_equals_the_slow_loop_in_float64(name):
    spec, data = SMALL[name]
    model = load_model(spec, data, seed=1).double()
    inputs, labels = private(data, 3, 2, torch.float64)
    ours = trial_gradients(working_model(model, "eval"), inputs, labels)
    assert_same(ours, slow_loop(model, inputs, labels), 1e-10)


@pytest.mark.parametrize("name", ["convnet", "lenet-dlg", "mlp", "vgg16-mkor"])
def test_equals_the_slow_loop_in_float32(name):
    spec, data = SMALL[name]
    model = load_model(spec, data, seed=1)
    inputs, labels = private(data, 3, 1, torch.float32)
    ours, slow = trial_gradients(working_model(model, "eval"), inputs, labels), slow_loop(model, inputs, labels)
    assert all(ours[n].dtype == torch.float32 for n in slow)
    error = sum((ours[n] - g).square().sum() for n, g in slow.items()).sqrt()  # VGG's first layers lie near rounding
    assert error < 1e-5 * sum(g.square().sum() for g in slow.values()).sqrt()


@pytest.mark.parametrize("name", BATCHNORM)
def test_batchnorm_in_train_mode_uses_the_statistics_of_each_trials_own_batch(name):
    spec, data = SMALL[name]
    model = load_model(spec, data, seed=1).double()
    inputs, labels = private(data, 2, 2, torch.float64)
    ours = trial_gradients(working_model(model, "train"), inputs, labels)
    as_eval = trial_gradients(working_model(model, "eval"), inputs, labels)
    model.train()
    assert_same(ours, slow_loop(model, inputs, labels), 1e-9)
    assert any((ours[n] - as_eval[n]).norm() > 0.01 * as_eval[n].norm() for n in ours)


@pytest.mark.parametrize("batchnorm", ["eval", "train"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_second_derivatives_equal_those_of_the_slow_loop(name, batchnorm):
    """Built-in models are not tried before they run."""
    spec, data = SMALL[name]
    if batchnorm == "train" and name not in BATCHNORM:
        return
    torch.manual_seed(7)
    model = working_model(load_model(spec, data, seed=3), batchnorm).double()
    inputs, targets = private(data, trials=2, samples=2, dtype=torch.float64)
    found = second_derivatives(lambda x: trial_gradients(model, x, targets), inputs)
    slow = second_derivatives(lambda x: one_by_one(model, x, targets), inputs)
    assert float((found - slow).norm()) <= 1e-7 * float(slow.norm())


def test_each_trial_may_have_weights_of_its_own():
    model = load_model("lenet-dlg:filters=3", GREY8, seed=0).double()
    inputs, labels = private(GREY8, 3, 2, torch.float64)
    others = [load_model("lenet-dlg:filters=3", GREY8, seed=s).double() for s in (4, 5, 6)]
    weights = {n: torch.stack([dict(o.named_parameters())[n].detach() for o in others]) for n in parameters_of(model)}
    ours = trial_gradients(working_model(model, "eval"), inputs, labels, weights)
    for t, other in enumerate(others):
        slow = slow_loop(other, inputs[t : t + 1], labels[t : t + 1])
        assert_same({n: g[t : t + 1] for n, g in ours.items()}, slow, 1e-10)


def test_soft_labels_equal_torchs_probability_targets():
    model = load_model("mlp:hidden=5", TABLE, seed=0).double()
    inputs, _ = private(TABLE, 2, 3, torch.float64)
    soft = torch.softmax(torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), -1)
    ours = trial_gradients(working_model(model, "eval"), inputs, soft)
    assert_same(ours, slow_loop(model, inputs, soft), 1e-10)


def test_one_hot_soft_labels_equal_hard_labels():
    model = working_model(load_model("mlp:hidden=5", TABLE, seed=0).double(), "eval")
    inputs, labels = private(TABLE, 2, 3, torch.float64)
    hard = trial_gradients(model, inputs, labels)
    assert_same(trial_gradients(model, inputs, F.one_hot(labels, 3).double()), hard, 1e-12)


def test_cross_entropy_is_torchs():
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 3, 1, 1, 2])
    torch.testing.assert_close(cross_entropy(logits, labels), F.cross_entropy(logits, labels))
    soft = torch.softmax(logits.flip(0), -1)
    torch.testing.assert_close(cross_entropy(logits, soft), F.cross_entropy(logits, soft))


@pytest.mark.parametrize("spec", ["lenet-dlg:filters=2", "resnet20:width=2,activation=softplus"])
def test_distance_is_differentiable_in_inputs_and_soft_labels(spec):
    """Central differences of D = sum (g' - g)^2 in float64."""
    model = working_model(load_model(spec, GREY8, seed=1).double(), "eval")
    inputs, labels = private(GREY8, 2, 1, torch.float64)
    observed = {n: g.detach() for n, g in trial_gradients(model, inputs, labels).items()}
    g = torch.Generator().manual_seed(2)
    x = torch.rand(inputs.shape, generator=g, dtype=torch.float64).requires_grad_()
    logits = torch.randn(2, 1, 4, generator=g, dtype=torch.float64).requires_grad_()

    def distance(x: Tensor, logits: Tensor) -> Tensor:
        mine = trial_gradients(model, x, torch.softmax(logits, -1))
        return sum(((mine[n] - observed[n]) ** 2).sum() for n in observed)

    slopes = torch.autograd.grad(distance(x, logits), (x, logits))
    for which, slope in enumerate(slopes):
        direction = torch.randn(slope.shape, generator=g, dtype=torch.float64)
        step = 1e-5
        moved = [
            [v.detach() + sign * step * direction if i == which else v.detach() for i, v in enumerate((x, logits))]
            for sign in (1, -1)
        ]
        measured = (distance(*moved[0]) - distance(*moved[1])) / (2 * step)
        torch.testing.assert_close((slope * direction).sum(), measured.detach(), rtol=1e-5, atol=1e-9)


def test_a_trials_inputs_do_not_touch_its_neighbours_gradient():
    model = working_model(load_model("lenet-dlg:filters=3", GREY8, seed=1).double(), "eval")
    inputs, labels = private(GREY8, 3, 1, torch.float64)
    inputs.requires_grad_()
    gradients = trial_gradients(model, inputs, labels)
    (slope,) = torch.autograd.grad(sum(g[1].square().sum() for g in gradients.values()), inputs)
    assert slope[1].abs().sum() > 0
    assert slope[0].abs().sum() == slope[2].abs().sum() == 0


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_working_model_leaves_the_given_model_untouched(mode):
    model = load_model("resnet20:width=2", GREY8, seed=0).train()
    before = {n: v.clone() for n, v in model.state_dict().items()}
    worker = working_model(model, mode)
    inputs, labels = private(GREY8, 2, 2, torch.float32)
    trial_gradients(worker, inputs, labels)
    assert model.training
    assert all(m.track_running_stats for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(a is not b for a, b in zip(model.parameters(), worker.parameters(), strict=True))


def test_dropout_is_off_in_a_working_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Dropout(0.9)).train()
    inputs, labels = private(GREY8, 2, 1, torch.float32)
    worker = working_model(model, "train")
    first, second = (trial_gradients(worker, inputs, labels) for _ in range(2))
    assert all(torch.equal(first[n], second[n]) for n in first)


def test_frozen_parameters_have_no_gradient_in_the_update():
    model = load_model("mlp:hidden=5", TABLE, seed=0)
    model.fc1.weight.requires_grad_(False)
    inputs, labels = private(TABLE, 2, 1, torch.float32)
    gradients = trial_gradients(working_model(model, "eval"), inputs, labels)
    assert set(gradients) == {"fc1.bias", "fc2.weight", "fc2.bias"}


def test_soft_labels_leave_outputs_alone_that_are_no_class():
    logits, targets = torch.randn(3, 5), torch.softmax(torch.randn(3, 4), -1)
    padded = torch.cat((targets, torch.zeros(3, 1)), -1)
    torch.testing.assert_close(cross_entropy(logits, targets), F.cross_entropy(logits, padded))


COLOUR = DataSpec("colour", (3, 16, 16), 4, "image")


def samples(trials: int = 2, count: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    inputs = torch.rand(trials, count, *COLOUR.shape, generator=g, dtype=torch.float64)
    return inputs, torch.randint(4, (trials, count), generator=g)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_parts_add_up(monkeypatch, looped, at_once):
    worker = working_model(load_model("lenet-dlg:filters=3", COLOUR, seed=0).double(), "eval")
    if looped:
        run_one_by_one(worker)
    monkeypatch.setattr(module, "fitting", lambda *_: at_once)
    inputs, labels = samples()
    whole = trial_gradients(worker, inputs, labels)
    for name, part in client_gradients(worker, inputs, labels).items():
        assert not part.requires_grad
        torch.testing.assert_close(part, whole[name].detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("at_once", [2, 3])
@pytest.mark.parametrize("text", ["class_weights=1+2+0.5+3", "label_smoothing=0.2,class_weights=1+2+3+4", ""])
def test_parts_of_sequences_and_under_weights_count_for_what_is_in_them(monkeypatch, text, at_once):
    worker = working_model(nn.Sequential(nn.Linear(5, 4)).double(), "eval")
    monkeypatch.setattr(module, "fitting", lambda *_: at_once)
    g = torch.Generator().manual_seed(5)
    inputs = torch.rand(2, 7, 3, 5, generator=g, dtype=torch.float64)
    labels = torch.randint(4, (2, 7, 3), generator=g)
    labels[0, :4] = -100  # whole parts in which nothing counts
    labels[1, ::2, 1:] = -100
    loss = loss_of(Client.from_text(text))
    whole = trial_gradients(worker, inputs, labels, loss_of=loss)
    for name, part in client_gradients(worker, inputs, labels, loss).items():
        torch.testing.assert_close(part, whole[name].detach(), rtol=1e-10, atol=1e-12)


def test_batch_statistics_keep_the_batch_whole(monkeypatch):
    worker = working_model(load_model("convnet:width=2", COLOUR, seed=0).double(), "train")
    monkeypatch.setattr(module, "fitting", lambda *_: 1)
    inputs, labels = samples()
    whole = trial_gradients(worker, inputs, labels)
    for name, part in client_gradients(worker, inputs, labels).items():
        torch.testing.assert_close(part, whole[name].detach(), rtol=1e-10, atol=1e-12)


def test_nll_on_logits_has_the_same_gradient_for_every_right_logit():
    worker = working_model(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)).double(), "eval")
    inputs, labels = samples()
    bias = client_gradients(worker, inputs, labels, nll_on_logits)["1.bias"]
    counts = torch.stack([row.bincount(minlength=4) for row in labels])
    torch.testing.assert_close(bias, -counts.double() / 7)


def test_what_is_kept_grows_with_the_activations():
    small, wide = (nn.Sequential(nn.Conv2d(3, c, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)) for c in (4, 40))
    x = torch.rand(1, *COLOUR.shape)
    for model in (small, wide):
        model(x)
    assert kept_bytes(wide, x) > 5 * kept_bytes(small, x)


def test_what_is_kept_of_one_sample_does_not_depend_on_the_samples_beside_it():
    worker = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    many = torch.rand(100, *COLOUR.shape)
    assert kept_bytes(worker, many[:1]) == kept_bytes(worker, many[:1].clone())


def test_counting_leaves_nothing_behind():
    model = load_model("lenet-dlg:filters=3", COLOUR, seed=0)
    parameter = weakref.ref(next(model.parameters()))
    kept_bytes(model, torch.rand(1, *COLOUR.shape))
    del model
    gc.collect()
    assert parameter() is None

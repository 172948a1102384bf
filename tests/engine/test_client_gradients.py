"""A client's gradient in parts equals the gradient of the whole batch."""

import gc
import weakref

import pytest
import torch
from torch import nn

import leakgauge.engine.client_gradients as module
from leakgauge.engine.client_gradients import client_gradients, kept_bytes
from leakgauge.engine.gradients import run_one_by_one, trial_gradients, working_model
from leakgauge.engine.losses import nll_on_logits
from leakgauge.models import load_model
from leakgauge.types import DataSpec

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

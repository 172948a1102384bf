"""Which way a model's trials run: what cannot run side by side is named and still gives the right gradients."""

import pytest
import torch
from torch import nn

from leakgauge.engine.gradients import one_by_one, trial_gradients, working_model
from leakgauge.engine.ways import choose_way, usual_way
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec

ROW = DataSpec("rows", (12,), 4, "tabular")


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else 2 * x


class Outer(nn.Module):
    """A network with the layer under test deep inside."""

    def __init__(self, odd: nn.Module):
        super().__init__()
        self.first = nn.Linear(12, 6)
        self.middle = nn.ModuleDict({"odd": odd})
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.middle["odd"](torch.sigmoid(self.first(x.flatten(1)))))


class RefusesTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivative here")
        return g


class OnlyOnce(nn.Module):
    def forward(self, x):
        return RefusesTwice.apply(x)


def test_an_ordinary_model_runs_side_by_side():
    assert choose_way(Outer(nn.Identity()), ROW) == "side by side"


def test_a_layer_that_branches_is_named_and_the_trials_run_one_after_another():
    model = Outer(Branching())
    said = choose_way(model, ROW)
    assert said.startswith("one after another, because layer 'middle.odd' (Branching) cannot run side by side")
    worker = working_model(model, "eval")  # copies made later know it too
    x, y = torch.randn(3, 1, 12), torch.tensor([[0], [1], [3]])
    found, slow = trial_gradients(worker, x, y), one_by_one(worker, x, y)
    for name in slow:
        torch.testing.assert_close(found[name], slow[name])


def test_trials_with_their_own_weights_run_one_after_another_too():
    model = Outer(Branching())
    choose_way(model, ROW)
    worker = working_model(model, "eval")
    x, y = torch.randn(2, 1, 12), torch.tensor([[0], [1]])
    weights = {n: torch.stack([p.detach(), p.detach() + 0.1]) for n, p in worker.named_parameters()}
    found = trial_gradients(worker, x, y, weights)
    plain = Outer(nn.Identity())
    for t in range(2):
        plain.load_state_dict({n: w[t] for n, w in weights.items()})
        branch = 1.0 if torch.sigmoid(plain.first(x[t])).sum() > 0 else 2.0
        loss = nn.functional.cross_entropy(plain.fc(branch * torch.sigmoid(plain.first(x[t]))), y[t])
        slow = torch.autograd.grad(loss, list(plain.parameters()))
        for (name, _), g in zip(plain.named_parameters(), slow, strict=True):
            torch.testing.assert_close(found[name][t], g)


def test_a_layer_without_a_second_derivative_is_refused_by_its_path():
    with pytest.raises(BadInput, match=r"layer 'middle.odd' \(OnlyOnce\).*no second derivative here"):
        choose_way(Outer(OnlyOnce()), ROW)


def test_attention_can_be_differentiated_twice():
    class Attends(nn.Module):
        def forward(self, x):
            rows = x.reshape(-1, 1, 3, 2)
            return nn.functional.scaled_dot_product_attention(rows, rows, rows).reshape(x.shape)

    assert choose_way(Outer(Attends()), ROW) == "side by side"


def test_wide_convolutions_on_the_cpu_run_one_after_another():
    assert usual_way(nn.Sequential(nn.Conv2d(64, 64, 3))).startswith("one after another: wide convolutions")

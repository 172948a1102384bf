"""Tensors of wrapped, half-used and whole models find their places in the model at hand."""

import torch
from torch import nn

from leakgauge.client.naming import by_own_names, plain_name, shared_as
from leakgauge.models.loading import freeze_unused


class Half(nn.Module):
    """One layer is never used."""

    def __init__(self):
        super().__init__()
        self.norm, self.used, self.never = nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Linear(4, 4)

    def forward(self, x):
        return self.used(self.norm(x))


def half():
    model = Half().eval()
    freeze_unused(model, (4,))
    return model


def test_names_lose_what_wrappers_put_before_them():
    assert plain_name("module._orig_mod.fc.weight") == "fc.weight"
    net = nn.Linear(2, 2)
    wrapped = {f"module.{n}": p for n, p in net.named_parameters()}
    assert by_own_names(net, wrapped).keys() == {"weight", "bias"}
    assert by_own_names(nn.DataParallel(net), wrapped).keys() == wrapped.keys()  # there they are its own
    assert by_own_names(net, {"module.other": net.bias}).keys() == {"module.other"}


def test_what_the_logits_do_not_depend_on_is_frozen():
    assert {n for n, p in half().named_parameters() if not p.requires_grad} == {"never.weight", "never.bias"}


def test_zeros_for_what_is_never_used_are_left_out_and_anything_else_is_not():
    model = half()
    zeros = {n: torch.zeros(1, *p.shape) for n, p in model.named_parameters()}
    assert "never.weight" not in shared_as("gradient", model, zeros).tensors
    moved = zeros | {"never.weight": torch.ones(1, 4, 4)}
    assert "never.weight" in shared_as("gradient", model, moved).tensors


def test_buffers_of_a_weight_difference_are_kept_as_they_stand_afterwards():
    model = half()
    difference = {n: torch.full((1, *t.shape), 0.5) for n, t in model.state_dict().items() if t.is_floating_point()}
    difference["norm.num_batches_tracked"] = torch.tensor([2])
    update = shared_as("weight_delta", model, {n: t for n, t in difference.items() if not n.startswith("never")})
    assert update.buffers.keys() == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    torch.testing.assert_close(update.buffers["norm.running_var"], torch.full((1, 4), 1.5))
    assert update.tensors.keys() == {"norm.weight", "norm.bias", "used.weight", "used.bias"}


def test_a_gradient_has_no_buffers():
    assert "norm.running_mean" in shared_as("gradient", half(), {"norm.running_mean": torch.ones(1, 4)}).tensors

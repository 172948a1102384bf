"""Units that fire for one class of the client's samples."""

from __future__ import annotations

import torch

from leakgauge.types import Batch, DataSpec

SPEC = DataSpec("table", (6,), 6, "tabular")
ONE_EACH = Batch(torch.eye(6)[None], torch.arange(6)[None])


def test_is_the_share_of_active_units_that_one_class_activates(score, dense):
    model = dense(6, 20, 6)
    with torch.no_grad():
        model[0].bias.zero_()
        model[0].weight[:] = -1.0
        model[0].weight[:9, 0] = 1.0  # fire for sample 0 alone
        model[0].weight[9:12, :2] = 1.0  # fire for two; the others never do
    assert score("selective-units", model, SPEC, ONE_EACH)["0"] == 9 / 12


def test_needs_samples_and_a_linear_layer_that_sees_them(score, dense, built, grey):
    assert score("selective-units", dense(6, 20, 6), SPEC) == {}
    pictures = Batch(torch.rand(1, 6, *grey.shape), torch.arange(6)[None])
    assert score("selective-units", built("lenet-dlg"), grey, pictures) == {}

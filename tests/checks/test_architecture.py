"""Layers that see the raw input, and wide ones."""

from __future__ import annotations

import torch

from leakgauge.checks import inspect_model, scores
from leakgauge.types import Batch, DataSpec


def test_units_per_input_for_a_dense_network_with_and_without_its_data(score, dense):
    model = dense(20, 60, 5)
    table = DataSpec("table", (20,), 5, "tabular")
    assert score("linear-first", model) == score("linear-first", model, table) == {"0": 3.0}
    (said,) = (s for s in inspect_model(model, table) if s.id == "linear-first")
    assert said.severity == "caution"
    assert "far more than a task asks for" in said.evidence


def test_convolutions_in_front_end_it(score, built, grey):
    assert score("linear-first", built("lenet-dlg")) == score("linear-first", built("lenet-dlg"), grey) == {}


def test_units_are_counted_for_each_value_of_a_sample(dense):
    model = dense(6, 12, 3)
    data = DataSpec("table", (6,), 3, "tabular")
    assert scores(model, data)["oversized-dense"] == {"0": 2.0}
    samples = Batch(torch.rand(1, 4, 6), torch.zeros(1, 4, dtype=torch.long))
    assert scores(model, samples=samples)["oversized-dense"] == {"0": 2.0}


def test_nothing_is_said_where_the_data_are_unknown(dense):
    assert scores(dense(6, 12, 3).state_dict())["oversized-dense"] == {}

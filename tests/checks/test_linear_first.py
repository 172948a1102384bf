"""A linear layer that sees the raw input is a caution, never proof."""

from __future__ import annotations

from leakgauge.checks import inspect_model
from leakgauge.types import DataSpec


def test_units_per_input_for_a_dense_network_with_and_without_its_data(score, dense):
    model = dense(20, 60, 5)
    table = DataSpec("table", (20,), 5, "tabular")
    assert score("linear-first", model) == score("linear-first", model, table) == {"0": 3.0}
    (said,) = (s for s in inspect_model(model, table) if s.id == "linear-first")
    assert said.severity == "caution"
    assert "far more than a task asks for" in said.evidence


def test_convolutions_in_front_end_it(score, built, grey):
    assert score("linear-first", built("lenet-dlg")) == score("linear-first", built("lenet-dlg"), grey) == {}

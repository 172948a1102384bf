"""Hidden linear layers are held against the size of a sample."""

import torch

from leakgauge.checks import scores
from leakgauge.types import Batch, DataSpec


def test_units_are_counted_for_each_value_of_a_sample(dense):
    model = dense(6, 12, 3)
    data = DataSpec("table", (6,), 3, "tabular")
    assert scores(model, data)["oversized-dense"] == {"0": 2.0}
    samples = Batch(torch.rand(1, 4, 6), torch.zeros(1, 4, dtype=torch.long))
    assert scores(model, samples=samples)["oversized-dense"] == {"0": 2.0}


def test_nothing_is_said_where_the_data_are_unknown(dense):
    assert scores(dense(6, 12, 3).state_dict())["oversized-dense"] == {}

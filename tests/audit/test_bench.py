"""The benchmark does the same work both ways, and says so in victim-steps per second."""

import pytest
import torch

from leakgauge.audit.bench import CASES, Case, engine_step, loop_step, measure
from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.errors import BadInput
from leakgauge.matching.distance import rows_of
from leakgauge.models import load_model
from leakgauge.types import DataSpec

CPU = torch.device("cpu")
SMALL = Case("lenet-dlg:filters=2", 8, 3, 3)


def test_both_ways_give_the_same_derivative():
    data = DataSpec("bench", (3, 8, 8), 10, "image")
    model = working_model(load_model("lenet-dlg", data, 0), "eval").double()
    samples, dummies = torch.rand(2, 3, 1, 3, 8, 8, dtype=torch.float64)
    labels = torch.tensor([[1], [2], [3]])
    observed = {n: t.detach() for n, t in trial_gradients(model, samples, labels).items()}
    together = engine_step(model, dummies, labels, rows_of(observed, observed))
    for victim in range(3):
        alone = loop_step(model, dummies, labels, observed, victim)
        torch.testing.assert_close(alone, together[victim], rtol=1e-8, atol=1e-12)


def test_a_row_has_both_rates_and_their_ratio():
    row = measure(SMALL, CPU, seconds=0.02)
    assert row.victims == 3
    assert row.loop > 0
    assert row.ratio == pytest.approx(row.engine / row.loop)
    assert list(row.as_dict()) == ["model", "victims", "device", "precision", "loop", "engine", "ratio"]


def test_every_case_of_the_table_builds_its_model():
    assert [case.model for case in CASES] == ["lenet-dlg", "convnet", "resnet20-4", "resnet18"]
    for case in CASES:
        load_model(case.model, DataSpec("bench", (3, case.side, case.side), 10, "image", (0.5,) * 3, (0.25,) * 3), 0)


@pytest.mark.parametrize(("seconds", "victims"), [(0, 1), (-1, 1), (0.1, 0)])
def test_nothing_to_time_is_refused(seconds, victims):
    with pytest.raises(BadInput):
        measure(SMALL, CPU, seconds, victims)

"""Zeros are counted layer by layer."""

import torch

from leakgauge.checks import Thresholds, scores
from leakgauge.checks.inspection import judge, measure


def test_the_score_is_the_share_of_zeros(dense):
    model = dense(6, 8, 3)
    with torch.no_grad():
        model[0].weight[:6] = 0
    found = scores(model)["mostly-zeros"]
    assert found["0"] == 0.75
    assert max(v for name, v in found.items() if name != "0") == 0


def test_from_one_half_it_is_a_caution_and_no_proof(dense):
    model = dense(6, 8, 3)
    with torch.no_grad():
        model[0].weight[:4] = 0
    (said,) = (s for s in judge(measure(model)) if s.id == "mostly-zeros")
    assert (said.layer, said.severity) == ("0", "caution")
    assert "50.0% of its 48 weights" in said.evidence
    assert not [s for s in judge(measure(model), Thresholds(mostly_zeros=0.51)) if s.id == "mostly-zeros"]

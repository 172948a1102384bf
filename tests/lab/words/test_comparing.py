"""Aggregators side by side from the same start; real words only where there are any."""

import json

import pytest

from leakgauge.errors import BadInput
from leakgauge.lab.words.comparing import compare
from leakgauge.lab.words.training import Reading

HOW = Reading(rounds=2, words=30, tested=10, batch_size=10, longest=3, image_width=48, width=2)


def test_a_run_for_each_and_what_stands_behind_it(tmp_path):
    seen = []
    study = compare(
        ("fedavg", "fedboosting"), how=HOW, device="cpu", data_root=tmp_path, watch=lambda *at: seen.append(at)
    )
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert [r.aggregator for r in study.runs] == ["fedavg", "fedboosting"]
    first = study.runs[0]
    assert first.words == {"flat": 10, "scene": 10, "rendered": 20}
    assert first.interval("rendered").low <= first.read["rendered"] <= first.interval("rendered").high
    assert len(first.round_seconds) == 2
    assert "nothing there" in study.left_out
    assert "DejaVuSans.ttf" in study.fonts["flat"]
    assert json.loads(json.dumps(study.as_dict()))["training"]["rounds"] == 2


def test_a_mistake_is_found_before_anything_is_trained(tmp_path):
    with pytest.raises(BadInput, match="fedboosting"):
        compare(("fedavg", "fedbosting"), how=HOW, data_root=tmp_path)
    with pytest.raises(BadInput, match="families"):
        compare(("fedavg",), how=HOW, data_root=tmp_path, fonts=tmp_path)

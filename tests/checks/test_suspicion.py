"""A suspicion is plain data with stable keys."""

from __future__ import annotations

import json

from leakgauge.checks import Suspicion


def test_becomes_json_under_its_stable_keys():
    said = Suspicion("huge-bias", "fc", "the bias of unit 0 is 1000", "high", "do not train on it", 1000.0, 50.0)
    assert json.loads(json.dumps(said.as_dict())) == {
        "id": "huge-bias",
        "layer": "fc",
        "evidence": "the bias of unit 0 is 1000",
        "severity": "high",
        "do": "do not train on it",
        "score": 1000.0,
        "threshold": 50.0,
    }

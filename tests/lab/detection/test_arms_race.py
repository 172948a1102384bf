"""What hides the server and what that costs it, on a network small enough for a test."""

import pytest

from leakgauge.lab.detection import arms_race
from leakgauge.servers.mkor import MKOR


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(arms_race, "_MODEL", "vgg16-mkor:width=8,hidden=32")
    monkeypatch.setattr(arms_race, "_DATA", "photos32")
    monkeypatch.setattr(arms_race, "_RECORDS", 4)


def test_plain_copies_are_found_by_their_kernels():
    margin, check = arms_race.margin_of(MKOR(parameters="inconspicuous", link=0), None)
    assert margin > 1
    assert check


def test_every_strength_is_a_point():
    points = arms_race.race([0], noises=(0.0, 0.1), links=(300.0,))
    assert [(p.noise, p.link, p.seed) for p in points] == [(0.0, 300.0, 0), (0.1, 300.0, 0)]
    assert points[0].psnr > points[1].psnr

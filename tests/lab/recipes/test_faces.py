"""Every recovery is shown to the classifier, with the true pictures as the ceiling."""

import pytest

from leakgauge.lab.recipes.ren2022grnn import _faces
from leakgauge.lab.recipes.ren2022grnn._faces import Recognised
from leakgauge.lab.reidentification import CEILING


@pytest.mark.parametrize("attack", ["linear", CEILING])
def test_hits_are_counted_over_all_victims(attack, monkeypatch):
    whole = _faces.reidentify
    monkeypatch.setattr(_faces, "reidentify", lambda runs, **more: whole(runs, steps=30, **more))
    measured = Recognised(model="mlp", attack=attack, data="digits", victims=5)
    figures = measured.figures("cpu", None, lambda *_: None)
    assert {len(figures[f"top_{k}"]) for k in (1, 3, 5)} == {5}
    assert sum(figures["top_1"]) <= sum(figures["top_3"]) <= sum(figures["top_5"])
    assert len(figures["classifier_right"]) > 100


def test_it_names_itself_and_can_be_made_smaller():
    measured = Recognised(model="mlp", attack="linear").resized(7)
    assert measured.size == 7
    assert "7 faces" in measured.title


def test_faces_come_in_updates_of_a_size():
    measured = Recognised(model="mlp", attack="linear", victims=10, batch_size=4)
    assert measured.size == 8
    assert "8 faces, 4 in an update" in measured.title

"""The page of an audit without the private samples: proofs, pictures, and no markup of others."""

from __future__ import annotations

import torch

from leakgauge.report.blind_page import to_blind_page
from leakgauge.types import Reconstruction, Scenario

CLUE = {"id": "norm", "what": "norm", "value": "2", "meaning": "no sign of clipping", "severity": "exposed"}


def finding(trial, certified=None, labels=(1, 2), objective=0.5, labels_proven=None):
    return {
        "attack": "peeling",
        "adaptive": False,
        "trial": trial,
        "certified": certified,
        "labels_proven": labels_proven,
        "labels": None if labels is None else list(labels),
        "objective": objective,
    }


def page(findings, clients=("a", "b"), drawn=None):
    document = {
        "findings": findings,
        "triage": [CLUE],
        "skipped": [{"attack": "dlg", "why": "<settled>"}],
        "flags": ["no-ground-truth"],
        "environment": {"device": "cpu"},
    }
    return to_blind_page(document, Scenario(batch_size=2, update="recorded"), clients, drawn or {})


def claims(*shape, claimed=None):
    zero = torch.zeros(shape[0])
    return Reconstruction(torch.rand(shape), None, zero, zero, zero, claimed=claimed)


def test_what_is_proven_counts_each_record_once():
    said = page([finding(0, 2), finding(0, 1), finding(1, 1)])
    assert "3 of 4 private records were recovered from the updates alone, each with a proof." in said
    assert 'class="banner bad"' in said


def test_without_a_proof_nothing_is_called_right():
    said = page([finding(0), finding(1, 0, None, None)])
    assert "Nothing is proven" in said
    assert 'class="banner warn"' in said
    assert "no-ground-truth" in said


def test_labels_that_the_updates_prove_are_not_called_nothing():
    said = page([finding(0, labels_proven=2), finding(0, labels_proven=1), finding(1, labels_proven=1)])
    assert "Labels are proven, no record is" in said
    assert "The updates prove 3 of 4 labels. No attack proved a recovered record right" in said
    assert "Nothing is proven" not in said
    both = page([finding(0, 1, labels_proven=2)], clients=("a",))
    assert "1 of 2 private records was recovered from the update alone, with a proof." in both
    assert "The update also proves 2 of 2 labels." in both


def test_pictures_are_named_by_client_and_record():
    assert "client b, record 2" in page([finding(0)], drawn={"dlg": claims(2, 2, 1, 4, 4)})


def test_pictures_sit_in_the_page_and_what_does_not_fit_is_counted():
    said = page([finding(0)], drawn={"dlg": claims(2, 40, 1, 4, 4)})
    assert said.count("data:image/png;base64,") == 64
    assert "16 more are in the run directory" in said
    assert said.count("http") == said.count("http-equiv"), "it asks nothing of any network"


def test_what_is_not_claimed_is_not_drawn():
    claimed = torch.tensor([[True, False, False], [False, True, True]])
    said = page([finding(0, labels=(1, None))], drawn={"peeling": claims(2, 3, 1, 4, 4, claimed=claimed)})
    assert said.count("data:image/png;base64,") == 3
    assert "1 –" in said


def test_names_of_clients_are_text():
    said = page([finding(0)], clients=("<script>alert(1)</script>", "b"), drawn={"dlg": claims(2, 2, 3, 4, 4)})
    assert "<script" not in said
    assert "&lt;script&gt;" in said
    assert "&lt;settled&gt;" in said

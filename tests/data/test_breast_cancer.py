import torch

from leakgauge.data import load


def test_splits_are_disjoint_and_complete():
    train, test = load("breast-cancer", "train"), load("breast-cancer", "test")
    assert (len(train), len(test)) == (455, 114)
    assert test.spec.kind == "tabular"
    assert test.labels.unique().tolist() == [0, 1]
    rows = {tuple(r) for r in train.inputs.tolist()}
    assert not rows & {tuple(r) for r in test.inputs.tolist()}


def test_public_rows_span_0_to_1_in_every_feature():
    train = load("breast-cancer", "train")
    assert torch.equal(train.inputs.min(0).values, torch.zeros(30))
    assert torch.equal(train.inputs.max(0).values, torch.ones(30))

import torch

from leakgauge.data import load


def test_digits_splits_cover_the_data_set_once_with_all_ten_digits():
    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1347, 450)
    assert train.spec == test.spec
    assert test.labels.unique().tolist() == list(range(10))


def test_digits_are_grey_levels_between_0_and_1():
    inputs, _ = load("digits").take([0, 1])
    assert inputs.shape == (2, 1, 8, 8)
    levels = inputs * 16
    assert torch.equal(levels, levels.round())
    assert levels.max() == 16


def test_hard_coded_channel_constants_are_those_of_the_public_split():
    train = load("digits", "train")
    assert abs(float(train.inputs.mean()) - train.spec.mean[0]) < 1e-4
    assert abs(float(train.inputs.std()) - train.spec.std[0]) < 1e-4


def test_breast_cancer_splits_are_disjoint_and_complete():
    train, test = load("breast-cancer", "train"), load("breast-cancer", "test")
    assert (len(train), len(test)) == (455, 114)
    assert test.spec.kind == "tabular"
    assert test.labels.unique().tolist() == [0, 1]
    rows = {tuple(r) for r in train.inputs.tolist()}
    assert not rows & {tuple(r) for r in test.inputs.tolist()}


def test_public_patients_span_0_to_1_in_every_feature():
    train = load("breast-cancer", "train")
    assert torch.equal(train.inputs.min(0).values, torch.zeros(30))
    assert torch.equal(train.inputs.max(0).values, torch.ones(30))

import torch

from leakgauge.data import load


def test_splits_cover_the_data_set_once_with_all_ten_digits():
    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1347, 450)
    assert train.spec == test.spec
    assert test.labels.unique().tolist() == list(range(10))


def test_values_are_grey_levels_between_0_and_1():
    inputs, _ = load("digits").take([0, 1])
    assert inputs.shape == (2, 1, 8, 8)
    levels = inputs * 16
    assert torch.equal(levels, levels.round())
    assert levels.max() == 16


def test_hard_coded_channel_constants_are_those_of_the_public_split():
    train = load("digits", "train")
    assert abs(float(train.inputs.mean()) - train.spec.mean[0]) < 1e-4
    assert abs(float(train.inputs.std()) - train.spec.std[0]) < 1e-4

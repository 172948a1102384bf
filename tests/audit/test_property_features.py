import pytest
import torch

from leakgauge.audit.property_features import candidates, update_features


def unit(*values):
    row = torch.tensor(values, dtype=torch.float32)
    return row / row.norm()


def test_small_matrices_are_kept_and_kernels_become_their_largest_tap():
    matrix = torch.tensor([[[1.0, -2], [0, 3]]])  # (T, outputs, inputs)
    kernel = torch.tensor([0.0, -4, 1, 2]).reshape(1, 1, 1, 2, 2)
    rows = update_features({"conv.weight": kernel, "conv.bias": torch.full((1, 1), 9.0), "fc.weight": matrix}, "both")
    torch.testing.assert_close(rows[0], unit(4, 1, 2, 0, 3))


@pytest.mark.parametrize(("pooling", "expected"), [("inputs", 100), ("both", 160)])
def test_large_matrices_are_pooled(pooling, expected):
    matrix = torch.zeros(1, 60, 100)
    matrix[0, 7, 3] = -5.0
    row = update_features({"fc.weight": matrix}, pooling)[0]
    assert row.shape == (expected,)
    assert row.nonzero().flatten().tolist() == ([3] if pooling == "inputs" else [3, 107])


def test_kernels_between_many_channels_are_left_out_as_published_and_pooled_otherwise():
    tensors = {"conv.weight": torch.ones(2, 80, 70, 3, 3), "fc.weight": torch.ones(2, 4, 5)}
    assert update_features(tensors, "inputs").shape == (2, 20)
    assert update_features(tensors, "both").shape == (2, 20 + 80 + 70)


@pytest.mark.parametrize("pooling", ["both", "inputs", "energy"])
def test_rows_have_length_one_and_their_scale_does_not_matter(pooling):
    tensors = {"fc.weight": torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))}
    rows = update_features(tensors, pooling)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(update_features({"fc.weight": -7 * tensors["fc.weight"]}, pooling), rows)
    assert torch.equal(update_features({"fc.weight": tensors["fc.weight"][1:2]}, pooling)[0], rows[1])


def test_an_update_of_zeros_and_one_without_matrices_have_features_too():
    assert torch.equal(update_features({"fc.weight": torch.zeros(1, 2, 2)}, "both"), torch.zeros(1, 4))
    torch.testing.assert_close(update_features({"norm.bias": torch.tensor([[3.0, -4]])}, "both")[0], unit(3, 4))


def test_energies_are_of_the_whole_each_column_and_each_row_and_biases_count():
    matrix = torch.tensor([[[3.0, 0], [0, 4]]])
    row = update_features({"fc.weight": matrix, "fc.bias": torch.tensor([[1.0, 7]])}, "energy")[0]
    torch.testing.assert_close(row, unit(2.5, 4.5**0.5, 8**0.5, 4.5**0.5, 8**0.5, 5))
    kernel = torch.full((1, 2, 3, 5, 5), -2.0)
    assert update_features({"conv.weight": kernel}, "energy").shape == (1, 1 + 3 + 2)


def test_best_is_a_choice_between_two():
    assert candidates("best") == ("both", "energy")
    assert candidates("inputs") == ("inputs",)

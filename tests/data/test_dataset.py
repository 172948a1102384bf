import pytest
import torch

from leakgauge.data import Dataset
from leakgauge.errors import BadInput
from leakgauge.types import DataSpec

IMAGES = DataSpec("toy", (1, 2, 2), 3, "image")
TABLE = DataSpec("toy", (2,), 2, "tabular")


def test_bytes_are_taken_as_floats_between_0_and_1():
    data = Dataset(IMAGES, torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8), torch.tensor([2]))
    inputs, labels = data.take([0])
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]]))
    assert labels.tolist() == [2]
    assert len(data) == 1


def test_take_follows_the_shape_of_its_indices():
    data = Dataset(TABLE, torch.rand(6, 2), torch.tensor([0, 1] * 3))
    inputs, labels = data.take(torch.tensor([[0, 1, 2], [3, 4, 5]]))
    assert inputs.shape == (2, 3, 2)
    assert labels.shape == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "labels", "words"),
    [
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "at least one sample"),
        (torch.zeros(1, 3), torch.tensor([0]), r"shape \(2,\)"),
        (torch.full((1, 2), float("nan")), torch.tensor([0]), "finite"),
        (torch.full((1, 2), 255.0), torch.tensor([0]), "divide by 255"),
        (torch.full((1, 2), -0.1), torch.tensor([0]), "between 0 and 1"),
        (torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]), "uint8 or float32"),
        (torch.zeros(1, 2), torch.tensor([2]), "between 0 and 1, got larger ones; number the classes from 0"),
        (torch.zeros(1, 2), torch.tensor([-1]), "number the classes"),
        (torch.zeros(2, 2), torch.tensor([0]), "2 whole numbers"),
        (torch.zeros(1, 2), torch.tensor([0.0]), "int64"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(inputs, labels, words):
    with pytest.raises(BadInput, match=words) as caught:
        Dataset(TABLE, inputs, labels)
    assert "\n" not in str(caught.value)

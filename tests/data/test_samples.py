"""What is said of samples of any form."""

import numpy as np
import pytest

from leakgauge.data._samples import from_samples


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [((-3.21, 61803.5), -5, 100_000), ((0.2, 1.7), 0, 2), ((-0.4, 0.9), -1, 1), ((-5.0, 50.0), -5, 50)],
)
def test_a_range_covers_the_samples_and_names_none_of_their_numbers(values, low, high):
    array = np.array([[values[0], values[1]], [values[1], values[0]]])
    made = from_samples("mine", {"": array}, np.array([0, 1]))
    (part,) = made.spec.parts
    assert (part.low, part.high) == (low, high)
    np.testing.assert_allclose(made.spec.decode(made.inputs)[""].numpy(), array, rtol=1e-5, atol=1e-2)


def test_fractions_need_no_part():
    assert from_samples("mine", {"": np.array([[0.1, 0.9]] * 4)}, np.array([0.5, 1.5, 2, 3])).spec.parts == ()

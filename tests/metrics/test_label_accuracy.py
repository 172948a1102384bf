from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.metrics.scoring import label_accuracy

labels = st.lists(st.integers(0, 4), min_size=5, max_size=5)


def test_by_hand():
    truth = torch.tensor([[3, 3, 1], [0, 1, 2], [7, 7, 7]])
    guess = torch.tensor([[1, 3, 3], [5, 5, 1], [7, 0, 0]])
    assert label_accuracy(truth, guess).tolist() == torch.tensor([1, 1 / 3, 1 / 3]).tolist()


@given(truth=st.lists(labels, min_size=3, max_size=3), guess=st.lists(labels, min_size=3, max_size=3))
def test_equals_counting(truth: list[list[int]], guess: list[list[int]]):
    expected = [(Counter(t) & Counter(g)).total() / 5 for t, g in zip(truth, guess, strict=True)]
    assert torch.allclose(label_accuracy(torch.tensor(truth), torch.tensor(guess)), torch.tensor(expected))


def test_an_unknown_label_never_counts():
    assert label_accuracy(torch.tensor([[0, 1]]), torch.tensor([[-1, -1]])).tolist() == [0.0]


def test_fewer_guesses_than_records_are_scored_on_all_records():
    assert label_accuracy(torch.tensor([[0, 1]]), torch.tensor([[1]])).tolist() == [0.5]

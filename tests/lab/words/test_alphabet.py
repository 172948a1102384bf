"""Words become numbers and come back; a reading is what CTC means by it."""

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.lab.words.alphabet import ALPHABET, BLANK, decoded, encoded, greedy


def scored(steps: str) -> torch.Tensor:
    """Logits whose best at each step is this character, `-` for the blank."""
    best = [BLANK if c == "-" else ALPHABET.index(c) for c in steps]
    return torch.nn.functional.one_hot(torch.tensor(best), BLANK + 1).float()[None]


def test_there_and_back_whatever_the_case():
    codes, lengths = encoded(["Bank", "7A"], 6)
    assert codes.shape == (2, 6)
    assert lengths.tolist() == [4, 2]
    assert decoded(codes) == ["BANK", "7A"]


@pytest.mark.parametrize(
    ("steps", "word"), [("--BB-AA-", "BA"), ("B-B", "BB"), ("BBB", "B"), ("---", ""), ("A-B-C-", "ABC")]
)
def test_repeats_and_blanks_are_taken_out(steps, word):
    assert decoded(greedy(scored(steps), 4)) == [word]


def test_a_reading_that_is_too_long_equals_no_word():
    read = greedy(scored("ABCDE"), 4)
    assert not torch.equal(read, encoded(["ABCD"], 4)[0])
    assert torch.equal(greedy(scored("ABCD"), 4), encoded(["ABCD"], 4)[0])


@pytest.mark.parametrize("word", ["", "TOOLONG", "A B", "Ä"])
def test_what_is_no_word_is_refused(word):
    with pytest.raises(BadInput, match="1 to 5 letters"):
        encoded([word], 5)

"""Words depend on the seed, fit, and those held out are never trained on."""

from leakgauge.lab.words.alphabet import encoded
from leakgauge.lab.words.words import made_up


def test_words_fit_and_repeat_with_the_seed():
    words = made_up(500, 8, 0, "flat", held_out=False)
    assert len(words) == 500
    encoded(words, 8)  # refuses what is no word
    assert made_up(500, 8, 0, "flat", held_out=False) == words
    assert made_up(500, 8, 1, "flat", held_out=False) != words
    assert {w.isupper() for w in words if w.isalpha()} == {True, False}
    assert any(w.isdigit() for w in words)


def test_held_out_words_are_never_trained_on():
    trained = {w.upper() for w in made_up(3000, 8, 0, "flat", held_out=False)}
    tested = {w.upper() for w in made_up(500, 8, 0, "scene", held_out=True)}
    assert not trained & tested

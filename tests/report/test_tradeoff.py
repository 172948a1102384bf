"""Nothing is drawn without costs; the rest is tested with real ones in tests/audit/test_costs.py."""

from leakgauge.report.tradeoff import FRAME, Choice, Tradeoff, _beats, _drawn
from leakgauge.types import Rate


def choice(name: str, recovered: float, accuracy: float) -> Choice:
    return Choice(name, "linear, plain", Rate(recovered, 0.0, 1.0, 1, 2, ""), "0.5", "0.9", accuracy, ("1 ms", "none"))


def best(choices: list[Choice]) -> list[Choice]:
    return [c for c in choices if not any(_beats(other, c) for other in choices)]


def test_the_front_is_what_nothing_beats_in_both():
    safe, good, bad, open_ = choice("a", 0.0, 0.5), choice("b", 0.5, 0.9), choice("c", 0.6, 0.8), choice("d", 1.0, 0.9)
    assert best([safe, good, bad, open_]) == [safe, good]
    assert best([good, choice("twin", 0.5, 0.9)]) == [good, choice("twin", 0.5, 0.9)]  # equals do not beat each other


def test_marks_lie_inside_and_less_leak_lies_lower():
    found = _drawn(Tradeoff((choice("a", 0.0, 0.5), choice("b", 1.0, 0.9)), (), "", "SSIM"))
    low, high = found.marks
    assert low.y > high.y
    assert low.x < high.x
    assert all(0 < m.x < FRAME.width and 0 < m.y < FRAME.height for m in found.marks)

"""Nothing is drawn without costs; the rest is tested with real ones in tests/audit/test_costs.py."""

from leakgauge.report.tradeoff import HEIGHT, WIDTH, Choice, Tradeoff, _best, _drawn


def choice(name: str, recovered: float, accuracy: float) -> Choice:
    return Choice(
        name, "linear, plain", recovered, 0.0, 1.0, "1 of 2", "0.5", "0.9", accuracy, "1 ms", "", "4", "none", False
    )


def test_the_front_is_what_nothing_beats_in_both():
    safe, good, bad, open_ = choice("a", 0.0, 0.5), choice("b", 0.5, 0.9), choice("c", 0.6, 0.8), choice("d", 1.0, 0.9)
    assert _best([safe, good, bad, open_]) == [safe, good]
    assert _best([good, choice("twin", 0.5, 0.9)]) == [good, choice("twin", 0.5, 0.9)]  # equals do not beat each other


def test_marks_lie_inside_and_less_leak_lies_lower():
    found = _drawn(Tradeoff((choice("a", 0.0, 0.5), choice("b", 1.0, 0.9)), (), "", "SSIM"))
    low, high = found.marks
    assert low.y > high.y
    assert low.x < high.x
    assert all(0 < m.x < WIDTH and 0 < m.y < HEIGHT for m in found.marks)

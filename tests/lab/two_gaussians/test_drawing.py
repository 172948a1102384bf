"""The picture has a panel for each case and aggregator, and is the same each time."""

from leakgauge.lab.two_gaussians.drawing import boundaries


def test_a_panel_each_and_the_same_each_time():
    asked = (["narrow"], ["fedavg", "fedboosting"], 0, 1, 40)
    drawn = boundaries(*asked)
    assert drawn.count(b'<g id="axes_') == 2
    assert b"fedboosting" in drawn or b"<use" in drawn
    assert boundaries(*asked) == drawn
    assert boundaries(*asked, form="png").startswith(b"\x89PNG")

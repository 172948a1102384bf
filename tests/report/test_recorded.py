"""The page of recorded updates says what was claimed, what failed, and lets no name of a client be markup."""

from __future__ import annotations

from typing import Any

from leakgauge.report.recorded import finding_row, recorded_page


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "attack": "linear",
        "adaptive": False,
        "client": "a",
        "update": "update-00000",
        "labels": [3],
        "objective": 0.5,
        "scores": {"psnr_mean_per_image": 31.25},
        "error": None,
        "flags": [],
    } | changes


def page(found: list[dict[str, Any]], left_out: int = 0) -> str:
    group = {
        "updates": [{"round": 2}],
        "unreadable": [{"name": "update-00001", "error": "zeros only"}],
        "findings": found,
        "clues": [{"severity": "exposed", "what": "labels", "value": "1", "meaning": "there"}],
    }
    told = {"device": "cpu", "leakgauge": "0", "torch": "2"}
    result = {"recorded": "DIR", "defense": "unknown", "left_out": left_out, "groups": [group], "environment": told}
    return recorded_page(result | {"seed": 4}, [["group1-linear.png"]])


def test_a_row_has_claim_objective_and_scores_or_the_error() -> None:
    assert finding_row(finding()) == ["linear", "a", "3", "0.5", "psnr_mean_per_image 31.2"]
    row = finding_row(finding(adaptive=True, client="", labels=None, objective=None, error="does not apply"))
    assert row == ["linear (knows the defence)", "update-00000", "", "", "does not apply"]


def test_the_page_shows_findings_failures_pictures_and_where_it_was_measured() -> None:
    text = page([finding()], left_out=7)
    for part in ("1 updates of round 2", "zeros only", "![group1-linear.png]", "left out 7 later", "Seed 4, cpu"):
        assert part in text
    assert "no-ground-truth" not in text
    assert "no-ground-truth" in page([finding(flags=["no-ground-truth"])])


def test_names_of_clients_are_no_markup() -> None:
    text = page([finding(client="<script>|[x](y)\n`")])
    assert "<script>" not in text
    assert "\\<script\\>\\|\\[x\\](y) \\`" in text

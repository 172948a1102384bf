"""The step summary of a GitHub workflow: appended where one is named, and never a reason to fail."""

from __future__ import annotations

from leakgauge.cli.step_summary import VARIABLE, append_step_summary


def test_nothing_happens_outside_a_workflow(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not append_step_summary("text")


def test_an_audit_is_appended_to_what_is_there(leakgauge, small, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n")
    monkeypatch.setenv(VARIABLE, str(page))
    assert leakgauge("audit", *small, "--attacks", "linear", "--defenses", "none", "--out", "run").code == 0
    text = page.read_text()
    assert text.startswith("before\n### Leakage audit: ")
    assert (tmp_path / "run" / "summary.md").read_text() in text


def test_a_single_attack_is_not(leakgauge, small, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "page.md"))
    leakgauge("attack", "linear", *small, "--out", "run")
    assert not (tmp_path / "page.md").exists()


def test_a_page_that_cannot_be_written_is_said_and_fails_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert not append_step_summary("text")
    assert f"{VARIABLE} could not be written" in capsys.readouterr().err

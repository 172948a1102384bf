"""Results on stdout, everything for the person on stderr, a progress bar only on a terminal."""

from __future__ import annotations

import json

import pytest

from leakgauge.cli.console import say, show, show_json, show_table, watching


def test_say_and_show_keep_their_streams_apart(capsys):
    say("for you")
    show("the result")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("the result\n", "for you\n")


def test_json_that_is_none_is_never_printed(capsys):
    with pytest.raises(ValueError, match="not JSON compliant"):
        show_json({"x": float("nan")})
    assert capsys.readouterr().out == ""
    show_json({"x": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"x": [1, None]}


def test_piped_table_is_not_wrapped_and_takes_text_literally(capsys):
    show_table(["name", "what"], [["[red]x[/red]", "word " * 30], ["y", ":smile:"]])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("[red]x[/red]")
    assert ":smile:" in lines[2]


def test_without_a_terminal_each_cell_is_one_line(capsys):
    with watching() as watch:
        for number, name in enumerate(("dlg | none | plain", "dlg | prune | plain")):
            for share in (0.0, 0.5, 1.0):
                watch(number, 2, name, share)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == ["[1/2] dlg | none | plain", "[2/2] dlg | prune | plain"]


def test_on_a_terminal_there_is_a_bar_with_time_left(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with watching() as watch:
        watch(0, 2, "dlg | none | plain", 0.5)
    told = capsys.readouterr()
    assert told.out == ""
    assert "left" in told.err
    assert "dlg" in told.err

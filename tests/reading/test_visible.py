"""Nothing from outside is obeyed by a terminal, turns a sentence round or hides in a page."""

import random
import sys
import unicodedata
from xml.etree import ElementTree as ET

import pytest
from jinja2 import DictLoader, Environment

from leakgauge.cli import console
from leakgauge.reading.visible import shortened, visible, visible_lines
from leakgauge.report import html, junit, markdown

UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
HIDDEN = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) in UNSEEN]
BARE = [c for c in HIDDEN if c not in "\n\t"]
TRICKS = (
    "\x1b[2J\x1b[Hno sign of tampering",
    "\x1b]0;title\x07",
    "\rno sign of tampering",
    "layer\u202egnp.exe",
    "a\x9b31mb",
    "</script><script>alert(1)</script>",
    "| a | b |\n|---|",
    "[link](javascript:x)",
    "&#27;[2J",
    "]]>",
    "\x00",
    "\ud800",
)


def names(count: int) -> list[str]:
    """Hostile ones: every unseen character, tricks, other scripts, very long ones."""
    g = random.Random(0)
    letters = [*"abc .:/\\\"'<>&|`*_[](){}#\n\t", "ü", "漢", "🙂", "\u0301"]
    found = list(HIDDEN) + list(TRICKS) + ["x" * 100_000, "\x1b" * 5_000]
    while len(found) < count:
        pool = g.choice((HIDDEN, letters, HIDDEN + letters))
        found.append(g.choice(TRICKS) * g.randint(0, 1) + "".join(g.choices(pool, k=g.randint(1, 60))))
    return found[-count:] if len(found) > count else found


NAMES = names(10_000)


def unseen(text: str, but: str = "\n") -> set[str]:
    return {c for c in set(text) if c not in but and unicodedata.category(c) in UNSEEN}


def test_every_character_that_is_not_seen_is_written_out():
    assert all(visible(c).startswith("\\u") or visible(c).startswith("\\U") for c in HIDDEN)
    assert all(visible_lines(c) != c for c in BARE)
    assert visible_lines("a\n\tb") == "a\n\tb"
    plain = "".join(chr(c) for c in range(0x20, 0x3000) if unicodedata.category(chr(c)) not in UNSEEN)
    assert visible(plain) == plain


def test_what_is_too_long_is_cut_with_a_word_about_it():
    assert shortened("x" * 100, 100) == "x" * 100
    assert shortened("a" * 50 + "b" * 60, 20) == "a" * 10 + " ... 90 more characters ... " + "b" * 10


@pytest.mark.parametrize("write", [console.say, console.show], ids=["stderr", "stdout"])
def test_a_line_of_the_terminal_stays_one_line(write, capsys):
    for name in NAMES:
        write(f"no sign of tampering in {name!s}")
    told = capsys.readouterr()
    lines = (told.out + told.err).splitlines()
    assert len(lines) == len(NAMES)
    assert not unseen("".join(lines))
    assert max(map(len, lines)) < 21_000


def test_a_table_of_the_terminal_keeps_its_rows(capsys):
    some = [n[:40] for n in NAMES]
    for begin in range(0, len(some), 500):
        console.show_table(["name"] * 5, [some[i : i + 5] for i in range(begin, begin + 500, 5)])
    assert not unseen(capsys.readouterr().out)


def test_pages_show_what_is_hidden_and_run_nothing(monkeypatch):
    every = "{% for n in names %}<p>{{ n }}</p>{% endfor %}"
    monkeypatch.setattr(html, "TEMPLATES", Environment(loader=DictLoader({"page": every}), autoescape=True))
    page = html.rendered("page", {"names": NAMES})
    assert not unseen(page, "\n\t")
    assert page.count("<p>") == page.count("<") / 2 == len(NAMES)


def test_markdown_reads_nothing_in_them():
    for name in NAMES:
        line = markdown.one_line(name)
        assert not unseen(line, "")
        assert "\n" not in line


def test_junit_can_hold_them_all():
    root = ET.Element("testsuite")
    for name in NAMES:
        ET.SubElement(root, "testcase", name=junit._clean(name))
    read = ET.fromstring(ET.tostring(root, encoding="unicode"))
    assert len(read) == len(NAMES)
    assert not unseen("".join(case.attrib["name"] for case in read), "\n\t")

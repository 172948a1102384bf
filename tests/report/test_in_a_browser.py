"""The page in a real browser: it fits, sorts, filters, enlarges and obeys the keyboard; nothing slipped in can run."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.report import to_comparison, to_html, to_officer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KEYS = {"Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Enter": 13, "Home": 36, "End": 35}
LAUNCH = """
import os, sys  # Chromium listens on descriptor 3 and answers on 4
ears, mouth = (os.dup(int(place)) for place in sys.argv[1:3])
while ears < 5: ears = os.dup(ears)
while mouth < 5: mouth = os.dup(mouth)
os.dup2(ears, 3), os.dup2(mouth, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60  # seconds


class Browser:
    """Headless Chromium, spoken to over a pipe in its DevTools protocol: JSON texts with a zero byte behind each."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        places = (str(theirs_in), str(theirs_out))
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *places, CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb", 0)
        self._left, self._number, self._session = b"", 0, {}
        self._guard = threading.Timer(PATIENCE, self._process.kill)  # a hanging browser ends the test, not the day
        self._guard.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._out.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            piece = self._in.read(1 << 20)
            assert piece, "the browser is gone"
            self._left += piece
        text, _, self._left = self._left.partition(b"\0")
        return json.loads(text)

    def open(self, page: Path, width: int = 1400, dark: bool = False, script: bool = True) -> None:
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700
        )
        self.media("", dark)
        self.call("Page.navigate", url=page.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def media(self, kind: str, dark: bool = False) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[feature])

    def ask(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def wait_for(self, expression: str) -> None:
        until = time.monotonic() + 5
        while not self.ask(expression):
            assert time.monotonic() < until, expression
            time.sleep(0.02)

    def close(self) -> None:
        self._guard.cancel()
        self._out.close()
        self._in.close()
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(made, tmp_path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(to_html(made.report, made.pictures), encoding="utf-8")
    return path


def shown_rows(browser: Browser, what: str) -> list[Any]:
    rows = "[...document.querySelectorAll('.results tr[data-attack]')].filter(r => r.getClientRects().length)"
    return browser.ask(f"{rows}.map(r => {what})")


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_wider_than_the_window(browser, page, width):
    browser.open(page, width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    wide = browser.ask("(b => b.scrollWidth - b.clientWidth)(document.querySelector('.wide .scroll'))")
    assert wide == 0 if width == 1400 else wide > 0, "on a telephone the table scrolls in its own box"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_film_strip_fits_under_its_pair(browser, made, tmp_path, width):
    steps = (0, 1, 2, 4, 8, 15, 30, 60, 110, 180, 240, 300)
    films = {n: torch.rand(r.shape[0], len(steps), *r.shape[1:]) for n, r in made.pictures.recovered.items()}
    findings = tuple(dataclasses.replace(f, film=steps) for f in made.report.findings)
    path = tmp_path / "filmed.html"
    pictures = dataclasses.replace(made.pictures, film=films)
    path.write_text(to_html(dataclasses.replace(made.report, findings=findings), pictures), encoding="utf-8")
    browser.open(path, width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    strips = "[...document.querySelectorAll('.film')].filter(f => f.getClientRects().length)"
    assert browser.ask(f"{strips}.length") > 0
    assert browser.ask(f"{strips}.every(f => f.scrollWidth <= f.parentNode.clientWidth)")
    sizes = browser.ask(f"{strips}.flatMap(f => [...f.querySelectorAll('img')].map(i => i.clientWidth))")
    assert len(sizes) % len(steps) == 0
    assert min(sizes) >= 30


def test_the_name_of_a_flag_stays_on_one_line(browser, page):
    browser.open(page)
    lines = browser.ask("[...document.querySelectorAll('.flags span')].map(s => s.getClientRects().length)")
    assert set(lines) == {1}


def test_the_table_sorts_by_numbers_and_back_to_its_groups(browser, page):
    browser.open(page)
    before = shown_rows(browser, "r.dataset.attack + r.dataset.defense")
    head = "[...document.querySelectorAll('.results thead th')].find(h => h.textContent.startsWith('SSIM'))"
    key = "Number(r.cells[6].dataset.key)"  # attack, defense, rate, trials, failed, PSNR, SSIM
    browser.ask(f"{head}.querySelector('button').click()")
    keys = shown_rows(browser, key)
    assert keys == sorted(keys, reverse=True)
    assert browser.ask(f"{head}.getAttribute('aria-sort')") == "descending"
    assert browser.ask("getComputedStyle(document.querySelector('td.flat-only')).display") == "table-cell"
    browser.ask(f"{head}.querySelector('button').click()")
    assert shown_rows(browser, key) == sorted(keys)
    browser.ask(f"{head}.querySelector('button').click()")
    assert shown_rows(browser, "r.dataset.attack + r.dataset.defense") == before
    assert browser.ask("document.querySelectorAll('[aria-sort]').length") == 0


def choose(browser: Browser, name: str, value: str) -> None:
    browser.ask(
        f"(s => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
        f"(document.querySelector('.filters [name={name}]'))"
    )


def test_rows_are_filtered_by_attack_defense_and_attacker(browser, page):
    browser.open(page)
    assert len(shown_rows(browser, "1")) == 6
    choose(browser, "defense", "gaussian:std=0.1")
    assert shown_rows(browser, "r.dataset.attack") == ["dlg", "inverting-gradients", "random-guess", "mean-image"]
    choose(browser, "style", "adaptive")
    assert shown_rows(browser, "r.dataset.attack") == ["inverting-gradients", "random-guess", "mean-image"]
    assert browser.ask("document.querySelector('.filters output').textContent") == "3 of 6 rows"
    choose(browser, "attack", "dlg")
    assert shown_rows(browser, "1") == []
    browser.ask("document.querySelector('.filters [type=reset]').click()")
    browser.wait_for("document.querySelector('.filters output').textContent === '6 of 6 rows'")


def test_records_are_stepped_through_by_keyboard_alone(browser, page):
    browser.open(page)
    browser.ask("document.querySelector('.exhibit .open').focus()")
    place = "document.querySelector('dialog .place').textContent"
    browser.press("Enter")
    assert browser.ask("document.querySelector('dialog').open")
    places = browser.ask("[...document.querySelector('.exhibit').querySelectorAll('.place')].map(p => p.textContent)")
    assert len(places) == 6
    assert browser.ask(place) == places[0]
    for expected, key in ((1, "ArrowRight"), (2, "ArrowRight"), (1, "ArrowLeft"), (5, "End"), (5, "ArrowRight")):
        browser.press(key)
        assert browser.ask(place) == places[expected]
    assert browser.ask("document.querySelector('[data-step=\"1\"]').disabled")
    assert browser.ask("document.querySelector('dialog img').clientWidth") > 300
    browser.press("Escape")
    browser.wait_for("!document.querySelector('dialog').open")
    browser.wait_for(f"document.activeElement.ariaLabel === 'Look closely at {places[5]}'")


def test_the_close_look_draws_the_objective_of_that_trial(browser, page):
    browser.open(page)
    assert browser.ask("getComputedStyle(document.querySelector('.exhibit .trace')).display") == "none"
    browser.ask("document.querySelector('.exhibit .open').click()")
    assert browser.ask("document.querySelector('dialog .trace svg').clientWidth") > 100


def test_focus_can_be_seen(browser, page):
    browser.open(page)
    for what in (".exhibit .open", ".results thead button", ".filters select"):
        browser.press("Home")  # the last thing used is the keyboard
        browser.ask(f"document.querySelector({what!r}).focus()")
        assert browser.ask(f"parseFloat(getComputedStyle(document.querySelector({what!r})).outlineWidth)") >= 2


def test_light_and_dark_follow_the_reader(browser, page):
    colours = []
    for dark in (False, True):
        browser.open(page, dark=dark)
        colours.append(
            browser.ask("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        )
    assert colours == [["rgb(255, 255, 255)", "rgb(26, 31, 39)"], ["rgb(20, 23, 28)", "rgb(230, 233, 238)"]]


def test_on_paper_there_is_nothing_to_click(browser, page):
    browser.open(page, dark=True)
    browser.media("print", dark=True)
    for what in (".filters", ".open", "span.scripted"):
        assert browser.ask(f"getComputedStyle(document.querySelector({what!r})).display") == "none"
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    paper = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert paper.startswith(b"%PDF")


def test_without_script_it_is_plain_tables(browser, page):
    browser.open(page, script=False)
    root = browser.call("DOM.getDocument")["root"]["nodeId"]

    def count(selector: str) -> int:
        return len(browser.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

    assert count(".filters[hidden]") == 1
    assert count(".open") == count("thead button") == count("dialog[open]") == 0
    assert count(".results tr[data-attack]:not([hidden])") == 6


def test_what_slips_into_the_page_cannot_run(browser, page):
    """Even if something were not escaped: the page names the hash of its one script."""
    slipped = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\"><h1>"
    page.write_text(page.read_text(encoding="utf-8").replace("<h1>", slipped), encoding="utf-8")
    browser.open(page)
    assert browser.ask("document.title").startswith("Leakage audit")
    assert browser.ask("document.querySelectorAll('.open').length") > 0, "its own script does run"


def test_hostile_names_run_nothing(browser, made, tmp_path):
    """The names alone, without the guard that the page names: what a browser without it would do."""
    word = (
        "\"'></title></style></script><script>window.ran=1</script><img src=x onerror=window.ran=1><svg onload=ran=1>"
    )
    scenario = dataclasses.replace(made.report.scenario, model=word, data=word, defenses=(word,), weights=word)
    rows = tuple(dataclasses.replace(s, attack=s.attack + word, defense=word) for s in made.report.summary)
    hostile = dataclasses.replace(made.report, scenario=scenario, summary=rows, environment={word: word}, facts=(word,))
    pages = (to_html(hostile, made.pictures), to_officer(hostile), to_comparison(hostile, hostile, (word, word)))
    for number, text in enumerate(pages):
        path = tmp_path / f"{number}.html"
        path.write_text(text.replace("Content-Security-Policy", "x-nothing"), encoding="utf-8")
        browser.open(path)
        assert browser.ask("typeof window.ran") == "undefined"
        assert browser.ask("document.querySelectorAll('img[src=x]').length") == 0
        assert "window.ran=1" in browser.ask("document.body.textContent")


@pytest.mark.parametrize("width", [1400, 400])
def test_two_audits_fit_beside_one_another(browser, made, tmp_path, width):
    path = tmp_path / "comparison.html"
    path.write_text(to_comparison(made.report, made.report, ("one", "other")), encoding="utf-8")
    browser.open(path, width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    tops = browser.ask("[...document.querySelectorAll('.beside section')].map(s => s.getBoundingClientRect().top)")
    assert (tops[0] == tops[1]) == (width == 1400), "side by side where there is room, else below one another"
    assert browser.ask("document.querySelectorAll('.filters:not([hidden])').length") == 3

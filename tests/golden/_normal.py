"""What a command wrote, without what differs from run to run: times, paths, versions, dates, keys, the machine.

A page becomes its words, line by line; a picture becomes its size; a file of tensors their names, shapes and norms.
"""

from __future__ import annotations

import json
import math
import re
import struct
from base64 import b64decode
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

_TIMES = re.compile(r"(^|_)(seconds|wall|elapsed|started|finished_at|date|created|when)(_|$)")
_HOST = ("leakgauge", "commit", "python", "torch", "device", "threads", "platform", "version", "sha256", "digest")
_DURATION = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?: |&nbsp;|\u00a0)?(?:µs|ms|s|min|minutes?|seconds?|hours?|h)(?!\w)"
)
_ATTRIBUTE_TIME = re.compile(r'\btime="[^"]*"')
_HASH = re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{10,64}(?!\w)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?")
_PROPERTY = re.compile(r'(<property name="(?:' + "|".join(_HOST) + r')" value=")[^"]*"')
_LIST_ENTRY = re.compile(r"^([-*] (?:" + "|".join(_HOST) + r"): ).*$", re.IGNORECASE | re.MULTILINE)
_NAMED_HOST = re.compile(r"\b(" + "|".join(_HOST) + r"): [^·\n]+(?= ·|$)")
_COMMIT = re.compile(r"\bcommit [0-9a-f]{7,40}\b(?:\+changes)?|\binstalled package\b")
_VERSION = re.compile(r"\b([Ll]eakgauge|torch|[Pp]ython) v?\d+(?:\.\d+)+\S*")
_BOUND = re.compile(r"\\?<<time>")  # "<0.01 s"
_QUARTILES = re.compile(r"<time> *\[[^\]]*\](?:  +[-+]?\d+ %)?")
_BYTES = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:GB|MB|GiB|MiB)\b")
_SEPARATOR = re.compile(r"[-─━═]{4,}")
_GAP = re.compile(r"[ \t]{2,}")


def text(raw: str, folder: Path) -> list[str]:
    """The lines of a text."""
    for place in (str(folder.resolve()), str(folder)):
        raw = raw.replace(place, "<folder>")
    for pattern, put in (
        (_ATTRIBUTE_TIME, 'time="<time>"'),
        (_PROPERTY, r'\1<host>"'),
        (_LIST_ENTRY, r"\1<host>"),
        (_VERSION, r"\1 <version>"),
        (_COMMIT, "<commit>"),
        (_DATE, "<date>"),
        (_HASH, "<key>"),
        (_DURATION, "<time>"),
        (_BOUND, "<time>"),
        (_QUARTILES, "<time>"),
        (_BYTES, "<memory>"),
        (_SEPARATOR, "----"),
        (_GAP, "  "),
    ):
        raw = pattern.sub(put, raw)
    return _by_name([line.rstrip() for line in raw.splitlines() if line.strip()])


def _by_name(lines: list[str]) -> list[str]:
    """Entries that a report sorts by their seconds, sorted by their words."""
    for number, line in enumerate(lines):
        if " in <time>;" in line:
            head, _, entries = line.partition(": ")
            lines[number] = f"{head}: " + "; ".join(sorted(entries.split("; ")))
    places = [number for number, line in enumerate(lines) if line.endswith(" in <time>")]
    for place, line in zip(places, sorted(lines[place] for place in places), strict=True):
        lines[place] = line
    return lines


def document(value: Any, folder: Path) -> Any:
    """A JSON document: the same keys, with times and the machine blotted out."""
    if isinstance(value, dict):
        plain = {}
        for key, inner in value.items():
            if _TIMES.search(key) and not isinstance(inner, dict):
                plain[key] = "<time>"
            elif key in _HOST and isinstance(inner, str):
                plain[key] = "<host>"
            elif key == "spec" and value.get("adaptive"):
                plain[key] = "<informed>"  # how it is told belongs to its defense
            elif _TIMES.search(key) and isinstance(inner, dict):
                plain[key] = dict.fromkeys(inner, "<time>")
            else:
                plain["<folder>" if key == str(folder) else key] = document(inner, folder)
        return plain
    if isinstance(value, list):
        return [document(inner, folder) for inner in value]
    if isinstance(value, str):
        return "\n".join(text(value, folder))
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else repr(value)
    return value


def page(raw: str, folder: Path) -> list[str]:
    """The words of an HTML page, a line for each block; pictures by their size, curves by their words."""
    reader = _Page()
    reader.feed(raw)
    reader.close()
    lines = [" ".join(line.split()) for line in reader.lines]
    lines = [line for line in lines if line]
    for number, line in enumerate(lines):
        if line.startswith("dd: ") and lines[number - 1].removeprefix("dt: ").lower() in _HOST:
            lines[number] = "dd: <host>"
        if " · " in line:
            lines[number] = _NAMED_HOST.sub(r"\1: <host>", line)
    return text("\n".join(lines), folder)


class _Page(HTMLParser):
    _INSIDE = ("b", "strong", "span", "code", "em", "i", "a", "sub", "sup", "small")  # do not end a line

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = [""]
        self._silent = 0  # depth inside what is no word of the page: style, script, an axis of seconds
        self._shapes: Counter[str] = Counter()
        self._drawing = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("style", "script"):
            self._silent += 1
        elif tag == "svg":
            self._drawing, self._shapes = True, Counter()
            self.lines.append(f"[drawing: {given.get('aria-label', '')}]")
            if "seconds" in given.get("aria-label", ""):
                self._silent += 1
        elif self._drawing:
            self._shapes[tag] += 1
            if tag in ("text", "title"):
                self.lines.append("")
        elif tag == "img":
            self.lines.append(f"[picture {_picture(given.get('src', ''))}: {given.get('alt', '')}]")
        elif tag not in self._INSIDE:
            self.lines.append(f"{tag}:" if tag in ("h1", "h2", "h3", "td", "th", "li", "dt", "dd") else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "script"):
            self._silent -= 1
        elif tag == "svg":
            if self._silent:
                self._silent -= 1
            else:
                self.lines.append(f"[of {', '.join(f'{n} {shape}' for shape, n in sorted(self._shapes.items()))}]")
            self._drawing = False
        elif tag not in self._INSIDE:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.lines[-1] += " " + data


def _picture(source: str) -> str:
    """`png 64x32` of a data URI: its bytes hang on the last digit of a pixel, its size does not."""
    head, _, body = source.partition(",")
    return png_size(b64decode(body[:64])) if head.startswith("data:image/png") else head[:40]


def png_size(start: bytes) -> str:
    width, height = struct.unpack(">II", start[16:24])
    return f"png {width}x{height}"


def described(path: Path) -> Any:
    """A file that is no text, in words and norms."""
    if path.suffix == ".png":
        return png_size(path.read_bytes())
    if path.suffix == ".safetensors":
        return {name: [list(t.shape), _norm(t)] for name, t in sorted(load_file(path).items())}
    return path.suffix.lstrip(".") or "file"


def _norm(array: np.ndarray) -> float:
    return float(f"{np.linalg.norm(array.astype(float).ravel()):.6g}")


def of_file(path: Path, folder: Path) -> Any:
    """What is stored of one file: lines, a document, or a description."""
    if path.suffix == ".json":
        return document(json.loads(path.read_text(encoding="utf-8")), folder)
    if path.suffix == ".html":
        return page(path.read_text(encoding="utf-8"), folder)
    if path.suffix in (".md", ".xml", ".toml", ".txt"):
        return text(path.read_text(encoding="utf-8"), folder)
    return described(path)

"""Any folder of word pictures with a list of their words, such as the test sets of scene text.

A list is a file *.tags, *.txt, *.csv or *.tsv beside or above the pictures: on each line a picture and its word, with
blanks, a tab, a comma or a semicolon between them and quotes around the word or not. ICDAR's `word_1.png, "Tiredness"`
and IIIT5K's `test/1_1.png PRIVATE` are such lines. Words with anything but letters and digits are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from leakgauge.data.files import SUFFIXES, damaged, read_image, stack
from leakgauge.errors import BadInput
from leakgauge.lab.words.alphabet import ALPHABET
from leakgauge.lab.words.rendering import HEIGHT, Pictures
from leakgauge.reading.files import regular

LISTS = ("*.tags", "*.txt", "*.csv", "*.tsv")
SHORTEST = 3  # characters; the thesis leaves shorter words out where pictures keep their proportions
_WIDEST = 1024  # of a picture that keeps its proportions
_STEP = 4  # columns of a picture for one step of the network: widths are rounded to that, so that few differ
_LINE = re.compile(rf"(.+?(?:{'|'.join(map(re.escape, sorted(SUFFIXES)))}))[\s,;]+(.+)", re.IGNORECASE)
Entry = tuple[Path, str]


def words_in(folder: Path) -> list[Entry]:
    """Every picture that a list of the folder names, with its word, whatever characters it has."""
    lists = sorted(path for pattern in LISTS for path in folder.glob(pattern)) if folder.is_dir() else []
    if not lists:
        raise BadInput(
            "folder of words",
            allowed=f"a folder with a list {', '.join(LISTS)} of pictures and their words",
            got=f"{str(folder)!r}, which has none",
            do="write one line for each picture: its file, then its word",
        )
    return [entry for path in lists for entry in read_list(path)]


def read_list(path: Path) -> list[Entry]:
    """The pictures of one list; they lie in its folder or below."""
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, "a readable text file", type(error).__name__) from error
    found = []
    for line in filter(str.strip, text.splitlines()):
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise damaged(path, "a file and its word on each line", repr(line[:60]))
        found.append((path.parent / inside(path, parts[1].strip()), parts[2].strip().strip('"').strip()))
    return found


def inside(path: Path, name: str) -> str:
    """A listed picture lies in the folder of the list."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or set(name) & set("\\:\0"):
        raise damaged(path, "a list of files in its folder", "a name that leads out of it")
    return name


def readable(entries: Sequence[Entry], longest: int, shortest: int = 1) -> list[Entry]:
    """The entries whose word has `shortest` to `longest` letters and digits, and nothing else."""
    return [(p, w) for p, w in entries if shortest <= len(w) <= longest and not set(w.upper()) - set(ALPHABET)]


def stretched(entries: Sequence[Entry], width: int) -> Pictures:
    """All pictures at the network's size, as it was trained on."""
    images = [read_image(path).resize((width, HEIGHT), Image.Resampling.BILINEAR) for path, _ in entries]
    return Pictures(stack(images), tuple(word for _, word in entries))


def proportional(entries: Sequence[Entry], least: int) -> list[Pictures]:
    """All pictures at the network's height, as wide as that makes them but at least `least`: a set for each width."""
    by_width: dict[int, list[tuple[Image.Image, str]]] = {}
    for path, word in entries:
        image = read_image(path)
        scaled = round(image.width * HEIGHT / image.height / _STEP) * _STEP
        by_width.setdefault(max(least, min(scaled, _WIDEST)), []).append((image, word))
    return [
        Pictures(
            stack([image.resize((width, HEIGHT), Image.Resampling.BILINEAR) for image, _ in some]),
            tuple(word for _, word in some),
        )
        for width, some in sorted(by_width.items())
    ]

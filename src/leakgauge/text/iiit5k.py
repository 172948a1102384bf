"""Words cut out of real photographs: the IIIT5K test words, where they are in the data folder.

Mishra, Alahari and Jawahar, BMVC 2012. `iiit5k/testdata.mat` as published, or `iiit5k/*.tags` with a file and its word
on each line.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from PIL import Image

from leakgauge.data._images import read_image, stack
from leakgauge.data._root import damaged
from leakgauge.errors import BadInput, Unreadable
from leakgauge.files import VARIABLE, data_root, regular
from leakgauge.text.alphabet import ALPHABET
from leakgauge.text.matlab import read_records
from leakgauge.text.rendering import HEIGHT, Pictures

FOLDER, PUBLISHED = "iiit5k", "testdata.mat"


def real_words(width: int, longest: int, root: Path | None = None) -> Pictures:
    """All test words of at most `longest` letters and digits, stretched to the network's size."""
    folder = data_root(root) / FOLDER
    kept = [(name, word) for name, word in _listed(folder) if len(word) <= longest and not _foreign(word)]
    if not kept:
        raise damaged(folder, "a folder with words of letters and digits", "none")
    size = (width, HEIGHT)
    images = [read_image(folder / name).resize(size, Image.Resampling.BILINEAR) for name, _ in kept]
    return Pictures(stack(images), tuple(word for _, word in kept))


def _listed(folder: Path) -> list[tuple[str, str]]:
    """Every file and its word."""
    published, lists = folder / PUBLISHED, sorted(folder.glob("*.tags"))
    if published.is_file():
        return _published(published)
    if not lists:
        raise BadInput(
            "data set 'iiit5k'", allowed=f"at {folder}, with {PUBLISHED} or a list *.tags", got="nothing there",
            do=f"unpack the published archive there, or point {VARIABLE} at the folder that holds it",
        )  # fmt: skip
    try:
        texts = [regular(path).read_text(encoding="utf-8") for path in lists]
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(lists[0], "a readable text file", type(error).__name__) from error
    lines = [line.split() for text in texts for line in text.splitlines() if line.strip()]
    if any(len(line) != 2 for line in lines):
        raise damaged(lists[0], "a file and its word on each line", "something else")
    return [(_inside(lists[0], name), word) for name, word in lines]


def _published(path: Path) -> list[tuple[str, str]]:
    try:
        records = read_records(path, "testdata", ("ImgName", "GroundTruth"))
    except Unreadable as error:
        raise damaged(path, "the published list of test words", error) from error
    return [(_inside(path, name), word) for name, word in records]


def _inside(path: Path, name: str) -> str:
    """A listed picture lies in the folder of the list."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or set(name) & set("\\:\0"):
        raise damaged(path, "a list of files in its folder", "a name that leads out of it")
    return name


def _foreign(word: str) -> bool:
    return bool(set(word.upper()) - set(ALPHABET))

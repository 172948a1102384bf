"""Words cut out of real photographs: the IIIT5K test words, where they are in the data folder.

Mishra, Alahari and Jawahar, BMVC 2012. `iiit5k/testdata.mat` as published, or `iiit5k/*.tags` with a file and its word
on each line.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from leakgauge.data._images import read_image, stack
from leakgauge.data._root import damaged
from leakgauge.errors import BadInput
from leakgauge.files import VARIABLE, data_root
from leakgauge.text.alphabet import ALPHABET
from leakgauge.text.rendering import HEIGHT, Pictures

FOLDER, PUBLISHED = "iiit5k", "testdata.mat"


def real_words(width: int, longest: int, root: Path | None = None) -> Pictures:
    """All test words of at most `longest` letters and digits, stretched to the network's size."""
    folder = data_root(root) / FOLDER
    kept = [(name, word) for name, word in _listed(folder) if len(word) <= longest and not _foreign(word)]
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
    lines = [line.split() for path in lists for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for line in lines:
        if len(line) != 2:
            raise damaged(lists[0], "a file and its word on each line", " ".join(line))
    return [(name, word) for name, word in lines]


def _published(path: Path) -> list[tuple[str, str]]:
    """MATLAB's array of records with the fields ImgName and GroundTruth."""
    try:
        records = loadmat(path, squeeze_me=True)["testdata"]
        return [(str(name), str(word)) for name, word in zip(records["ImgName"], records["GroundTruth"], strict=True)]
    except (OSError, ValueError, LookupError, TypeError, NotImplementedError, MatReadError) as error:
        raise damaged(path, "the published list of test words", type(error).__name__) from error


def _foreign(word: str) -> bool:
    return bool(set(word.upper()) - set(ALPHABET))

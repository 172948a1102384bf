"""Words cut out of real photographs: the IIIT5K test words, where they are in the data folder.

Mishra, Alahari and Jawahar, BMVC 2012. `iiit5k/testdata.mat` as published, or `iiit5k/*.tags` with a file and its word
on each line.
"""

from __future__ import annotations

from pathlib import Path

from leakgauge.data.files import damaged
from leakgauge.errors import BadInput, Unreadable
from leakgauge.lab.words.matlab import read_records
from leakgauge.lab.words.rendering import Pictures
from leakgauge.lab.words.word_folder import Entry, inside, read_list, spelled, stretched
from leakgauge.reading.files import VARIABLE, data_root

FOLDER, PUBLISHED = "iiit5k", "testdata.mat"


def real_words(width: int, longest: int, root: Path | None = None) -> Pictures:
    """All test words of at most `longest` letters and digits, stretched to the network's size."""
    folder = data_root(root) / FOLDER
    kept = spelled(listed(root), longest)
    if not kept:
        raise damaged(folder, "a folder with words of letters and digits", "none")
    return stretched(kept, width)


def listed(root: Path | None = None) -> list[Entry]:
    """Every file and its word."""
    folder = data_root(root) / FOLDER
    published, lists = folder / PUBLISHED, sorted(folder.glob("*.tags"))
    if published.is_file():
        return _published(published)
    if not lists:
        raise BadInput(
            "data set 'iiit5k'",
            allowed=f"at {folder}, with {PUBLISHED} or a list *.tags",
            got="nothing there",
            do=f"unpack the published archive there, or point {VARIABLE} at the folder that holds it",
        )
    return [entry for path in lists for entry in read_list(path)]


def _published(path: Path) -> list[Entry]:
    try:
        records = read_records(path, "testdata", ("ImgName", "GroundTruth"))
    except Unreadable as error:
        raise damaged(path, "the published list of test words", error) from error
    return [(path.parent / inside(path, name), word) for name, word in records]

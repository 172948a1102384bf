"""The real words that a trained reader is tested on: sets in the data folder, and folders that the user names.

Each set is read twice: stretched to the size of the training, as in the thesis's Figures 4.4 to 4.6, and in
proportion, from three characters on, as in its Tables 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from leakgauge.errors import BadInput
from leakgauge.lab.words import iiit5k
from leakgauge.lab.words.training import Reading, Samples, results, samples_of
from leakgauge.lab.words.word_folder import SHORTEST, Entry, proportional, readable, stretched, words_in
from leakgauge.reading.files import data_root

REAL = iiit5k.FOLDER
OTHERS = ("svt", "scut", "ic15")  # the thesis's other three, each a folder with a list
IN_PROPORTION = ", in proportion"

Sets = dict[str, list[Samples]]  # by name; the samples of each width


def real_sets(
    how: Reading, where: torch.device, root: Path | None = None, folders: Sequence[Path] = ()
) -> tuple[Sets, str]:
    """The sets that were found, and why IIIT5K is missing, if it is. A named folder that cannot be read is refused."""
    found: dict[str, list[Entry]] = {}
    left_out = ""
    try:
        found[REAL] = iiit5k.listed(root)
    except BadInput as error:
        left_out = str(error)
    found |= {name: words_in(folder) for name in OTHERS if (folder := data_root(root) / name).is_dir()}
    for folder in folders:
        if folder.name in found:
            raise BadInput(
                "--words", allowed="folders of different names", got=f"{folder.name!r} twice", do="rename one of them"
            )
        found[folder.name] = words_in(folder)
    sets: Sets = {}
    for name, entries in found.items():
        kept = readable(entries, how.longest)
        longer = readable(entries, how.longest, SHORTEST)
        if not kept:
            raise BadInput(
                f"words of {name!r}",
                allowed=f"some of 1 to {how.longest} letters and digits, and nothing else",
                got="none",
                do="raise longest in --training, or name other pictures",
            )
        sets[name] = [samples_of(stretched(kept, how.image_width), how.longest, where)]
        if longer:
            groups = proportional(longer, how.image_width)
            sets[name + IN_PROPORTION] = [samples_of(group, how.longest, where) for group in groups]
    return sets, left_out


def read_of(model: nn.Module, groups: Sequence[Samples]) -> float:
    """The share of all words of a set that are read without a mistake."""
    right = sum(len(samples) * results(model, samples)[1] for samples in groups)
    return right / sum(map(len, groups))

"""What our figures say of each table of the thesis: the last sentence under it. To be read again after new runs."""

from __future__ import annotations

import dataclasses

from leakgauge.lab.recipes._recipe import Table

_NOTHING = "Cannot tell: nothing here was measured yet."
VERDICTS = {
    "F3.3": _NOTHING,
    "3.4": "Contradicts that GRNN's single MNIST images are better than DLG's: on the same 50 victims they are alike. "
    "Supports on LeNet that training makes them worse. Cannot tell for DLG on CIFAR-100 and LFW, and for ResNet-18: "
    "not measured.",
    "F3.4": _NOTHING,
    "3.6": "Supports the thesis as to GRNN's labels and most of its pictures up to 32 images, contradicts it at 256 "
    "images of MNIST, of which a fifth is recognised, and cannot tell whether the others do worse: their columns are "
    "not measured.",
    "3.9": _NOTHING,
    "3.11": _NOTHING,
    "3.12": "Contradicts the thesis for a true Wasserstein distance: beside the squares, on their scale, it brings "
    "back fewer pictures and worse ones, measured on the first 20 of these victims after 1,500 steps. Cannot tell "
    "which row is best: the others, and 8,000 steps, are not measured.",
    "3.15": "Contradicts that GRNN's faces are named more often than DLG's: both are as often as the true faces.",
    "3.16": "Supports on CIFAR-100 that noise of 0.1 hides the picture and that 0.01 leaves a part of them, and "
    "contradicts on MNIST (five victims) that DLG finds neither picture nor label at 0.0001, and cannot tell for "
    "GRNN's labels, batches and other data: they are not measured.",
    "F3.6": _NOTHING,
}


def judged(table: Table) -> Table:
    """The same table with its verdict behind the note."""
    return dataclasses.replace(table, note=f"{table.note} {VERDICTS[table.id]}")

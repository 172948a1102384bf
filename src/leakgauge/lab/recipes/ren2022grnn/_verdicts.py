"""What our figures say of each table of the thesis: the last sentence under it. To be read again after new runs."""

from __future__ import annotations

import dataclasses

from leakgauge.lab.reproduce.recipe import Table

_NOTHING = "Cannot tell: nothing here was measured yet."
VERDICTS = {
    "F3.3": _NOTHING,
    "3.4": "Contradicts, on the same 50 victims of an untrained LeNet, that GRNN's single images are better than DLG's "
    "on MNIST and CIFAR-100, where they are alike, and supports it by little on LFW; both recognise nearly all. "
    "Supports that training makes pictures worse, and that GRNN then finds more of CIFAR-100 and LFW than DLG; on "
    "MNIST neither finds much, and Inverting Gradients, weak on CIFAR-100, recognises most. Cannot tell for ResNet-18: "
    "not enough is measured.",
    "F3.4": "Supports that DLG shows no picture at 32 images (four updates of each data set, none recognised); cannot "
    "tell whether GRNN's gradient is further away, because its cells wait.",
    "3.6": "Supports the thesis as to GRNN's labels and most of its pictures up to 32 images, contradicts it at 256 "
    "images of MNIST, of which a fifth is recognised. Supports that the others do worse on the same updates: from four "
    "images on DLG and Inverting Gradients bring back none of CIFAR-100 and LFW, and from eight next to none of MNIST. "
    "As to labels, contradicts that GRNN is better than all: Inverting Gradients, which reads them by counting, is "
    "right at least as often; DLG is right less often in most columns. Cannot tell for ResNet-18.",
    "3.9": _NOTHING,
    "3.11": _NOTHING,
    "3.12": "Contradicts the thesis for a true Wasserstein distance: beside the squares, on their scale, it brings "
    "back fewer pictures and worse ones, on the same 50 victims after 1,500 steps and after 8,000, with the variation "
    "or without. The cosine, and the released term under that name, stand with the squares alone. Rows of ten or "
    "thirty victims have fewer networks; the best of those with squares cannot be told.",
    "3.15": "Contradicts that GRNN's faces are named more often than DLG's: both are as often as the true faces.",
    "3.16": "Supports on CIFAR-100 that noise of 0.1 hides the picture and that 0.01 leaves a part of them. "
    "Contradicts that DLG finds neither picture nor label under noise: of the same 50 victims it finds nearly every "
    "label at any scale, and pictures at 0.001 and below, if worse ones than GRNN's on CIFAR-100. Contradicts that "
    "0.01 hides MNIST from GRNN. Cannot tell for batches and for most of GRNN's other cells: they are not measured.",
    "F3.6": _NOTHING,
}


def judged(table: Table) -> Table:
    """The same table with its verdict behind the note."""
    return dataclasses.replace(table, note=f"{table.note} {VERDICTS[table.id]}")

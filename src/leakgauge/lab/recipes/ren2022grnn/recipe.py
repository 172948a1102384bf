"""Ren et al., "GRNN", ACM TIST 2022, in the figures of Ren's thesis (Swansea 2023, chapter 3).

The thesis's LeNet is taken to be that of DLG: on the LeNet that was released with GRNN, which has max-pooling, the
attack stays far below the reported figures with every optimiser.
"""

from __future__ import annotations

import dataclasses

from leakgauge.lab.recipes.ren2022grnn._batches import TABLE_6, TABLE_9, TABLE_11
from leakgauge.lab.recipes.ren2022grnn._distances import FIGURE_3, FIGURE_4, FIGURE_6
from leakgauge.lab.recipes.ren2022grnn._faces import TABLE_15
from leakgauge.lab.recipes.ren2022grnn._quality import TABLE_4, TABLE_12, TABLE_16
from leakgauge.lab.reproduce.recipe import Recipe, Table

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


def with_verdict(table: Table) -> Table:
    """The same table with its verdict added to the note."""
    return dataclasses.replace(table, note=f"{table.note} {VERDICTS[table.id]}")


RECIPE = Recipe(
    name="ren2022grnn",
    summary="GRNN: picture quality, batches, resolution, labels, noise",
    paper="Ren, Deng and Xie 2022, GRNN: Generative Regression Neural Network, ACM TIST; figures by Ren 2023",
    note="8,000 steps of RMSprop (1,200 and, under noise, 600 with `--quick`). Outside Table 3.12 the loss is the sum "
    "of squares beside a mean of the Wasserstein distance, which weighs next to nothing, and squared variation "
    "(`grnn:scale=mixed,variation=squared`). Our LeNet is DLG's: with GRNN's released one, which has max-pooling, the "
    "attack stays far below the reported figures.",
    tables=tuple(
        with_verdict(table)
        for table in (FIGURE_3, TABLE_4, FIGURE_4, TABLE_6, TABLE_9, TABLE_11, TABLE_12, TABLE_15, TABLE_16, FIGURE_6)
    ),
)

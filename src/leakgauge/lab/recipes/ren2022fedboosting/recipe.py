"""Ren, FedBoosting: chapter 4 of "Gradient Leakage and Protection for Federated Learning", Swansea 2023.

Figure 4.2 as a table; Tables 4.1 and 4.3, text recognition, with words that we render.
"""

from __future__ import annotations

import dataclasses

from leakgauge.lab.recipes.ren2022fedboosting._exchange import ExchangeCost
from leakgauge.lab.recipes.ren2022fedboosting._grid import grid
from leakgauge.lab.recipes.ren2022fedboosting._mixing import TABLE_MIXING
from leakgauge.lab.recipes.ren2022fedboosting._reading import ReaderFederation
from leakgauge.lab.recipes.ren2022fedboosting._toy import TABLE_PUBLISHED, TABLE_TOY
from leakgauge.lab.reproduce.recipe import Cell, Recipe, Study, Table
from leakgauge.lab.words.training import Reading

FEDAVG, FEDBOOSTING, FEDADAM = "fedavg:validation=0.1", "fedboosting", "fedadam:validation=0.1"
LEARNED = "learned-proportions"
MIXED = "fedboosting:mix=0.9,fusing=fixed"  # as released, and as it was measured
CKKS = "ckks:largest=4096"  # running variances of BatchNorm go into the hundreds

# The published network: 14 rounds of 282 steps for each client.
WHOLE = Reading(rounds=14, words=20_000, batch_size=64, longest=10, image_width=100, width=64, lr=0.001)
SMALL = Reading()  # an eighth of its width and words of at most four characters: minutes on one core
_ASKED = ("words_iiit5k", "words_rendered", "first_weight")


def _cell(
    row: str,
    column: str,
    aggregator: str,
    how: Reading,
    iiit5k: float | None = None,
    *,
    encryption: str = "none",
    asked: tuple[str, ...] = _ASKED,
    quick: int = 0,
) -> Cell:
    study = Study(ReaderFederation(aggregator=aggregator, encryption=encryption, training=how))
    return Cell(row, column, study, dict.fromkeys(asked) | {"words_iiit5k": iiit5k}, quick=quick)


TABLE_READING = Table(
    "4.1",
    "words read, the published network",
    "The share of words that are read without a mistake, whatever their case, with the exact binomial interval over "
    "words: another seed would train another network. Rendered words are held out from training and drawn half by "
    "either client's renderer; IIIT5K has the 400 test words we have, without those of more than ten characters. The "
    "thesis's figures are for all of IIIT5K.",
    "Thesis: two clients with 90k and SynthText, millions of words each, Adadelta, up to 100 rounds of batches of 800. "
    "Ours: two renderers of our own with 16 fonts in all and 20,000 words of made-up syllables each, Adam with a rate "
    "that falls from 0.001 to a tenth, 14 rounds of batches of 64. Rendered words are what was trained for; real "
    "words look like neither renderer's, so little of the difference to the thesis is owed to the aggregators. All "
    "start from the same weights and keep back the same tenth. At this scale FedBoosting reads no more than FedAvg: it "
    "weighs the client with the easier pictures more. Round times of the rows are not comparable: the GPU had other "
    "work beside FedBoosting and FedAdam.",
    tuple(
        _cell(row, "one pass a round", aggregator, WHOLE, reported, asked=(*_ASKED, "round_ms"))
        for row, aggregator, reported in (
            ("FedAvg", FEDAVG, 0.8667),
            ("FedBoosting", FEDBOOSTING, 0.8762),
            ("FedAdam", FEDADAM, None),
            ("learned proportions", LEARNED, None),
        )
    ),
    heavy="the published network needs a GPU",
)

_VARIANTS = {
    "16 x 1": SMALL,
    "64 x 1": dataclasses.replace(SMALL, batch_size=64),
    "16 x 3": dataclasses.replace(SMALL, epochs=3, rounds=7),
}

TABLE_BATCHES = Table(
    "4.1-small",
    "batch x passes in a round, a small network",
    "As table 4.1, with an eighth of the channels, words of at most four characters on pictures of 48 x 32, and 4,000 "
    "words a client. Columns: the local batch and the passes over a client's words in a round; three passes have a "
    "third of the rounds.",
    "The thesis varies batches of 800, 512 and 256 and one or three passes; it reports that FedAvg with 256 x 1 "
    "diverges, where FedBoosting reads 0.858 of IIIT5K. These columns are at our scale, so no figure of the thesis "
    "stands in them. With so small a network few real words are read. FedBoosting weighs by losses, and the client "
    "whose pictures are easier (`flat`) has the lower ones whatever its model is worth to the other. "
    "Learned proportions, the thesis's future work by a rule of ours, weigh the other client more and read fewer "
    "rendered words than FedAvg.",
    tuple(
        _cell(row, column, aggregator, how, quick=1 if (row, column) == ("FedBoosting", "64 x 1") else 0)
        for row, aggregator in (
            ("FedAvg", FEDAVG),
            ("FedBoosting", FEDBOOSTING),
            ("FedAdam", FEDADAM),
            ("learned proportions", LEARNED),
        )
        for column, how in _VARIANTS.items()
        if aggregator in (FEDAVG, FEDBOOSTING) or column == "16 x 1"
    ),
)

TABLE_GRID = grid(
    "4.1-grid",
    "batch x passes, the published network",
    "The thesis prints one row for FedBoosting; its text weighs by Eq. 4.2 and its code by inverse losses, so its "
    "figures stand beside both. It prints none for FedAvg at 256, which diverged, and validation alone is its Figure "
    "4.6, without numbers. Cells without an arrow wait for a GPU: until then it cannot be told. Its rows of a CRNN "
    "trained on one data set alone are on the documentation's page of the paper.",
    WHOLE,
    "the published network needs a GPU",
)

TABLE_GRID_SMALL = grid(
    "4.1-grid-small",
    "batch x passes, a small network",
    "As table 4.1-grid with the small network of table 4.1-small: a batch of 16 stands for 800, of 10 for 512, of 5 "
    "for 256. The thesis's figures are those of its large network and data.",
    SMALL,
    "three seeds of each take minutes on one core",
)

_ENCRYPTED = (
    ("FedAvg", FEDAVG, 0.8667, 0.8640),
    ("FedBoosting", FEDBOOSTING, 0.8762, 0.8512),
    ("FedBoosting, mixed", MIXED, None, 0.8500),
)

TABLE_ENCRYPTED = Table(
    "4.3",
    "encrypted or not, mixed or not, a small network",
    "As table 4.1-small, with batches of 16 and one pass.",
    "The thesis's figures are those of its large network and data. It uses Paillier with a key of 128 bits, which is "
    "factored in seconds; ours is CKKS at 128 bits of security. An opened sum differs by about one part in ten million "
    "from the plain one, so what differs between the two columns is what that grows to over 20 rounds, and no property "
    "of encryption. The thesis calls mixing differential privacy; nothing is random in it.",
    tuple(
        _cell(
            row,
            "plain" if encryption == "none" else "ckks",
            aggregator,
            SMALL,
            reported,
            encryption=encryption,
            quick=1 if (row, encryption) == ("FedAvg", "none") else 0,
        )
        for row, aggregator, plain, hidden in _ENCRYPTED
        for encryption, reported in (("none", plain), (CKKS, hidden))
    ),
)

TABLE_EXCHANGE = Table(
    "4.3-cost",
    "what encryption costs in a round",
    "CPU time of one process for two clients' updates: encrypting, adding and opening once, or the mean in the clear. "
    "Bytes are those of one client's update.",
    "Not in the thesis. CPU time, because the machine had other work. FedBoosting opens each client's model, or each "
    "mixture, on top of that. Paillier with keys of 2048 bits takes about sixty times as long as CKKS; see the "
    "documentation.",
    tuple(
        Cell(
            row,
            "plain" if encryption == "none" else "ckks",
            Study(ExchangeCost(width=width, encryption=encryption, rounds=rounds)),
            {"exchange_cpu_ms": None, "bytes_up": None},
            quick=1 if (width, encryption) == (8, "none") else 0,
        )
        for row, width, rounds in (("the small network", 8, 5), ("the published network", 64, 2))
        for encryption in ("none", "ckks")
    ),
)

RECIPE = Recipe(
    name="ren2022fedboosting",
    summary="Clients weighed by how their models do on each other's samples, beside the mean and a server with Adam",
    paper="Ren et al. 2022, FedBoosting; figures from chapter 4 of Ren's thesis, Swansea 2023",
    note="Table 4.1 is sized for a GPU (`--table 4.1 --device cuda`), the others for one core. Networks that read are "
    "trained once each (seed 0) but for the grids: the intervals are over words alone, and a difference of a few "
    "points between two of them may be the seed's. Mixing was measured with what is now `fusing=fixed`. In tables 4.1, "
    "4.1-small and 4.3 real words are stretched to the trained size, where the thesis's tables keep proportions.",
    tables=(
        TABLE_TOY,
        TABLE_PUBLISHED,
        TABLE_READING,
        TABLE_BATCHES,
        TABLE_GRID,
        TABLE_GRID_SMALL,
        TABLE_ENCRYPTED,
        TABLE_EXCHANGE,
        TABLE_MIXING,
    ),
)

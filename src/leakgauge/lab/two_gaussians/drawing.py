"""Decision boundaries as one picture: a row per case, a column per aggregator."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch

from leakgauge.lab.two_gaussians.cases import CASES
from leakgauge.lab.two_gaussians.comparing import GRID, trained
from leakgauge.lab.two_gaussians.training import Local

_SHOWN = 150  # samples of each client
_MARKS = ("o", "^", "s", "D", "v")  # a client each
_COLOURS = ("#1f6fb4", "#d1622b")  # a class each


def boundaries(
    cases: Sequence[str],
    aggregators: Sequence[str],
    seed: int,
    rounds: int,
    samples: int,
    local: Local | None = None,
    form: str = "svg",
) -> bytes:
    """An SVG or PNG: the decision boundary of each trained model, over the samples that clients train on."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "leakgauge"  # the same picture gives the same file
    line = torch.linspace(0, 1, GRID)
    x, y = torch.meshgrid(line, line, indexing="xy")
    size = (2.6 * len(aggregators), 2.7 * len(cases))
    figure, axes = pyplot.subplots(len(cases), len(aggregators), figsize=size, squeeze=False, layout="constrained")
    for row, case in enumerate(cases):
        for column, aggregator in enumerate(aggregators):
            federated, plot = trained(case, aggregator, seed, rounds, samples, local), axes[row][column]
            with torch.no_grad():
                logits = federated.model(torch.stack([x.flatten(), y.flatten()], 1))
            chance = torch.softmax(logits, 1)[:, 1].reshape(GRID, GRID)
            plot.contourf(x, y, chance, levels=[0, 0.5, 1], colors=_COLOURS, alpha=0.15)
            plot.contour(x, y, chance, levels=[0.5], colors="black", linewidths=1)
            for client, indices in enumerate(federated.trained_on):
                held = federated._samples(indices[None, :_SHOWN], [client])  # with the labels it trains on
                for label, colour in enumerate(_COLOURS):
                    points = held.inputs[0][held.labels[0] == label]
                    plot.scatter(
                        points[:, 0], points[:, 1], s=5, c=colour, marker=_MARKS[client % len(_MARKS)], linewidths=0
                    )
            plot.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], title=aggregator.replace(":", "\n", 1))
            plot.title.set_fontsize(7)
            if column == 0:
                plot.set_ylabel(f"{case}\n{len(CASES[case].clients)} clients", fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=72, metadata={"Date": None} if form == "svg" else {"Software": None})
    pyplot.close(figure)
    return out.getvalue()

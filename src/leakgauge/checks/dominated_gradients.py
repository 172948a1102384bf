"""A sum of gradients that a few samples dominate: the third of the three checks that Wang et al. 2023 give a client.

Unlike `dominant-sample` it takes gradients as they are, whatever the error of a sample, as a client would sum them. So
it also speaks of a trained model that gets most samples right, and is a caution.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from leakgauge.checks._check import Check, Measured
from leakgauge.checks._received import Received
from leakgauge.checks.suspicion import CAUTION

_FEWEST = 4  # samples
_FEW = 8  # of so many samples one is a few


def measure(received: Received) -> Mapping[str, Measured]:
    """Per layer: which share of the sum of all norms the loudest eighth of the samples has."""
    found = {}
    for name, squares in received.sample_gradients.items():
        norms = squares.sqrt()
        if len(norms) < _FEWEST or float(norms.sum()) == 0:
            continue
        few = -(-len(norms) // _FEW)
        share = float(torch.topk(norms, few).values.sum() / norms.sum())
        found[name] = Measured(
            share, f"{few} of {len(norms)} samples have {share:.0%} of the sum of all gradient norms"
        )
    return found


CHECK = Check(
    id="dominated-gradients",
    measure=measure,
    do="compare with another batch; if the same holds, send no update: it would be that of few samples",
    severity=CAUTION,
)

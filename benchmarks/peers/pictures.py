"""Lays out 400 pictures of each half of CIFAR-10 and CIFAR-100: python benchmarks/peers/pictures.py OUT.npz ROOT"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from leakgauge.data import load

COUNT, SEED = 400, 7


def main() -> None:
    out, root = Path(sys.argv[1]), Path(sys.argv[2])
    held = {}
    for name in ("cifar10", "cifar100"):
        for half in ("train", "test"):
            data = load(name, half, root)
            picked = torch.randperm(len(data), generator=torch.Generator().manual_seed(SEED))[:COUNT]
            inputs, labels = data.take(picked)
            held |= {f"{name}-{half}-x": (255 * inputs).round().byte().numpy(), f"{name}-{half}-y": labels.numpy()}
        held |= {f"{name}-mean": np.array(data.spec.mean), f"{name}-std": np.array(data.spec.std)}
    np.savez(out, **held)


if __name__ == "__main__":
    main()

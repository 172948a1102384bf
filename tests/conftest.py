"""Shared by every test: one thread per worker (several spinning threads fight), and the optional real data."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with MNIST, CIFAR, LFW, Adult ... in their standard formats, or a skip that says what is missing."""
    root = os.environ.get("LEAKGAUGE_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("LEAKGAUGE_DATA does not point at a folder with the public data sets")
    return Path(root)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their length: a gzip header holds the time, and every worker must collect the same names."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None

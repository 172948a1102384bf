"""The pictures that the clients hold, for an audit that scores what it recovers: only the owner of the data can do so.

`APP=cifar_app` takes the other app's pictures. They may come in any order: the audit finds out whose update is whose.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

CLIENTS, LENT = 10, 500


def pictures(split: str) -> tuple[Tensor, Tensor]:
    """The clients' own, one each, as "test"; as "train" some that nobody holds, which an attacker may know."""
    pictures_of = import_module(f"{os.environ.get('APP', 'digits_app')}.task").pictures_of
    first, last = (0, CLIENTS) if split == "test" else (CLIENTS, CLIENTS + LENT)
    inputs, labels = pictures_of(0, last)
    return inputs[first:], torch.as_tensor(labels)[first:]

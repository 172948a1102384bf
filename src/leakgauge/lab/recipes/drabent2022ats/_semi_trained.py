"""The network that scores belong to: trained on a tenth of the data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from leakgauge.data import Dataset, load
from leakgauge.engine.randomness import generator
from leakgauge.federation.rounds import train
from leakgauge.lab.policy_search import TRAINING
from leakgauge.lab.recipes.drabent2022ats._set_up import training
from leakgauge.models import load_model
from leakgauge.types import DataSpec

_LEARNED = 0.1  # of the data
RULES = ("search", "published")
SEMI_TRAINED = 50 * 39  # rounds of 128 pictures: 50 epochs of a tenth of CIFAR-100, as the document trains


def semi_trained(
    model: str,
    data: str,
    spec: DataSpec,
    rounds: int,
    *,
    rule: str,
    policy: str = "",
    seed: int,
    device: torch.device,
    data_root: Path | None,
) -> nn.Module:
    """In eval mode; as it starts if there are no rounds. `rule`: that of our search (Adam), or the document's."""
    net = load_model(model, spec, seed, None).to(device)
    if not rounds:
        return net.eval()
    public = load(data, "train", data_root)
    plan = training(policy, rounds) if rule == "published" else dataclasses.replace(TRAINING, rounds=rounds)
    learned = max(int(_LEARNED * len(public)), plan.clients * plan.batch_size)
    some = torch.randperm(len(public), generator=generator(seed, "search"))[:learned]
    return train(net, Dataset(public.spec, *public.take(some)), plan, seed).eval()

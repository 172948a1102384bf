"""A tiny generator with random weights, and one that was trained for a moment on digits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leakgauge.data import load
from leakgauge.generators.architecture import Architecture, Decoder
from leakgauge.generators.generator import fingerprints
from leakgauge.generators.saving import Origin, save_generator

PLAN = Architecture((1, 8, 8), 10, latent=6, width=4)


@pytest.fixture(scope="session")
def decoder() -> Decoder:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Decoder(PLAN).eval().requires_grad_(False)


@pytest.fixture
def saved(decoder: Decoder, tmp_path: Path) -> Path:
    """A generator file that says it has seen the public digits."""
    path = tmp_path / "digits.safetensors"
    public = load("digits", "train")
    seen = fingerprints(public.take(range(len(public)))[0])
    save_generator(path, decoder, Origin("digits", "train", len(public), 1, 0, "0"), seen)
    return path

"""Embedded data, readers for the standard formats, and your own data."""

from leakgauge.data._dataset import Dataset
from leakgauge.data.drawing import draw_others, draw_victims, public_batch
from leakgauge.data.fetching import fetch, inventory, verify
from leakgauge.data.loading import load

__all__ = ["Dataset", "draw_others", "draw_victims", "fetch", "inventory", "load", "public_batch", "verify"]

"""The zoo, layer by layer as the papers have it, and your own model."""

from leakgauge.models._base import ModelSpec
from leakgauge.models.loading import load_model, load_tensors, parameter_count
from leakgauge.models.structure import first_linear, input_affine, last_linear

__all__ = ["ModelSpec", "first_linear", "input_affine", "last_linear", "load_model", "load_tensors", "parameter_count"]

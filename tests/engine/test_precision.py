"""float32 is float32: TF32 only if asked for."""

import pytest
import torch

from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput


@pytest.fixture(autouse=True)
def restored():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize(("precision", "rounded"), [("float32", False), ("tf32", True)])
def test_both_kinds_of_product_follow(precision, rounded):
    set_precision(precision)
    assert torch.backends.cudnn.allow_tf32 is rounded
    assert torch.backends.cuda.matmul.allow_tf32 is rounded


def test_an_unknown_precision_is_refused():
    with pytest.raises(BadInput, match="float32"):
        set_precision("float23")

"""float32 is float32: TF32 only if asked for. float64 is a type of number as well."""

import pytest
import torch

from leakgauge.engine.precision import dtype_of, set_precision
from leakgauge.errors import BadInput
from leakgauge.types import PRECISIONS


@pytest.fixture(autouse=True)
def restored():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize(("precision", "rounded"), [("float32", False), ("tf32", True), ("float64", False)])
def test_both_kinds_of_product_follow(precision, rounded):
    set_precision(precision)
    assert torch.backends.cudnn.allow_tf32 is rounded
    assert torch.backends.cuda.matmul.allow_tf32 is rounded


def test_an_unknown_precision_is_refused():
    for ask in (set_precision, dtype_of):
        with pytest.raises(BadInput, match="did you mean 'float32'"):
            ask("float23")


def test_only_float64_has_another_type_of_number():
    types = {precision: dtype_of(precision) for precision in PRECISIONS}
    assert types == {"float32": torch.float32, "tf32": torch.float32, "float64": torch.float64}

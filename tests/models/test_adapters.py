"""Adapters come under the names that PEFT sends, and alone."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from leakgauge.errors import BadInput
from leakgauge.models.adapters import by_model_names, holds_all_that_is_trained, shared_name
from leakgauge.models.loading import load_model
from leakgauge.types import DataSpec

MODEL = """
import torch
from torch import nn

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 3, bias=False)})

    def forward(self, x):
        return self.base(x) + self.lora_B["default"](self.lora_A["default"](x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Adapted()

    def forward(self, x):
        return self.q(x)
"""


def test_the_name_of_the_adapter_is_left_out_and_no_other():
    assert shared_name("model.q_proj.lora_A.default.weight") == "model.q_proj.lora_A.weight"
    assert shared_name("model.default.weight") == "model.default.weight"


def test_tensors_come_under_the_names_of_the_model():
    names = ["q.lora_A.default.weight", "q.base.weight"]
    found = by_model_names({"q.lora_A.weight": torch.zeros(1), "q.base.weight": torch.zeros(1)}, names)
    assert list(found) == names


def test_only_a_frozen_model_may_come_without_the_rest():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    own = [n for n, _ in net[1].named_parameters(prefix="1")]
    assert not holds_all_that_is_trained(net, own)
    net[0].requires_grad_(False)
    assert holds_all_that_is_trained(net, own)
    assert not holds_all_that_is_trained(net, own[:1])


def test_a_checkpoint_of_adapters_alone_is_loaded_over_the_frozen_model(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    data = DataSpec("rows", (4,), 3, "tabular")
    shared = {"q.lora_A.weight": torch.ones(2, 4), "q.lora_B.weight": torch.ones(3, 2)}
    save_file(shared, tmp_path / "adapters.safetensors")
    model = load_model(f"{tmp_path}/net.py:Net", data, 0, str(tmp_path / "adapters.safetensors"))
    assert bool((model.q.lora_A["default"].weight == 1).all())
    save_file({"q.lora_A.weight": torch.ones(2, 4)}, tmp_path / "half.safetensors")
    with pytest.raises(BadInput, match="3 missing"):
        load_model(f"{tmp_path}/net.py:Net", data, 0, str(tmp_path / "half.safetensors"))

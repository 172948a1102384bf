"""What a training loop reads becomes arrays: by name, padded, in the same order each time."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from leakgauge.data import loading
from leakgauge.data._samples import from_samples
from leakgauge.errors import BadInput
from leakgauge.types import QUANTITIES, SEVERAL_CLASSES

FACTORIES = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def pictures(count=40, batch_size=8):
    x = torch.arange(count).float().reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4) / count * 2 - 1
    loader = DataLoader(TensorDataset(x, torch.arange(count) % 2), batch_size=batch_size, shuffle=True)
    return loader, DataLoader(TensorDataset(x[:1], torch.zeros(1).long()))

def clients(clients=3):
    return [DataLoader(TensorDataset(torch.full((4, 2), c / 10), torch.zeros(4).long())) for c in range(clients)]

def unlike():
    return [TensorDataset(torch.full((n, 2), c / 10), torch.zeros(n).long()) for c, n in enumerate((2, 4, 2))]

def rows():
    return TensorDataset(torch.rand(6, 2, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2)

class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return torch.arange(2 + i // 2) + 1, i % 2

def texts():
    def padded(rows):
        ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([r[1] for r in rows])}
    return DataLoader(Texts(), batch_size=2, collate_fn=padded)

def unlabelled():
    return DataLoader([{"image": torch.zeros(3)}] * 4)

def failing():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 3
        def __getitem__(self, i):
            raise OSError("no disk")
    return DataLoader(Rows())
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "task.py"
    path.write_text(FACTORIES)
    return lambda name: f"{path}:{name}"


def test_the_first_of_a_tuple_is_read_with_its_range(factory):
    whole, public = loading.load_whole(factory("pictures:count=20"))
    assert public is None
    assert whole.inputs.shape == (20, 3, 4, 4)
    (part,) = whole.spec.parts
    assert part.low == -1.0
    assert part.high == 1.0


def test_both_halves_come_of_one_order_although_the_loader_shuffles(factory):
    halves = [loading.load(factory("pictures"), split).inputs[:, 0, 0, 0] for split in ("train", "test")]
    assert not set(halves[0].tolist()) & set(halves[1].tolist())
    assert len(halves[0]) + len(halves[1]) == 40


def test_all_loaders_of_a_list_count_as_those_of_several_clients(factory):
    whole, _ = loading.load_whole(factory("clients:clients=2"))
    assert whole.inputs[:, 0].tolist() == pytest.approx([0.0] * 4 + [0.1] * 4)
    assert whole.clients == (4, 4)


def test_of_unlike_clients_those_with_as_many_samples_are_taken(factory):
    whole, _ = loading.load_whole(factory("unlike"))
    assert whole.clients == (2, 4, 2)
    chosen = whole.of_clients_with(2)
    assert chosen.inputs[:, 0].tolist() == pytest.approx([0.0, 0.0, 0.2, 0.2])
    assert whole.of_clients_with(3) is whole


def test_a_data_set_of_torch_is_read_as_it_lies(factory):
    whole, _ = loading.load_whole(factory("rows"))
    assert whole.labels.tolist() == [0, 1] * 3


def test_dictionaries_keep_their_names_and_are_padded_to_one_length(factory):
    whole, _ = loading.load_whole(factory("texts"))
    made = whole.spec.decode(whole.inputs)
    assert made["input_ids"].shape == (6, 4)
    assert made["input_ids"][0].tolist() == [1, 2, 0, 0]
    assert made["attention_mask"][0].tolist() == [True, True, False, False]
    assert whole.spec.kind == "tokens"


@pytest.mark.parametrize(("name", "said"), [("unlabelled", "labels"), ("failing", "no disk")])
def test_what_cannot_be_read_is_refused_in_one_line(factory, name, said):
    with pytest.raises(BadInput, match=said) as refused:
        loading.load_whole(factory(name))
    assert "\n" not in str(refused.value)


def test_half_precision_is_read(tmp_path):
    from leakgauge.data._loaders import arrays_of

    rows = TensorDataset(torch.rand(4, 3).bfloat16(), torch.arange(4) % 2)
    inputs, labels, _ = arrays_of("mine", DataLoader(rows, batch_size=2))
    assert inputs.dtype == np.float32
    assert labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("values", "target"), [([[0.0], [1.0], [1.0]], SEVERAL_CLASSES), ([[0.0], [0.5], [1.0]], QUANTITIES)]
)
def test_one_yes_or_no_in_a_column_of_its_own_is_a_class(values, target):
    spec = from_samples("mine", {"": np.zeros((3, 2), np.float32)}, np.array(values, np.float32)).spec
    assert (spec.target, spec.target_shape) == (target, (1,))

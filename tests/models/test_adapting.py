"""Own models in the one form in which attacks search, and their parameters' names as they were."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.engine.gradients import trial_gradients, working_model
from leakgauge.models.adapting import Adapted, adapted, output_of, taken_back
from leakgauge.types import CATEGORIES, MASK, DataSpec, Part


class Table(nn.Module):
    """Three columns of numbers beside two of categories in one embedding with offsets, one in its own."""

    def __init__(self):
        super().__init__()
        self.shared, self.own = nn.Embedding(7, 4), nn.Embedding(3, 2)
        self.offsets = torch.tensor([0, 4])
        self.fc = nn.Linear(3 + 8 + 2, 2)

    def forward(self, numbers, words):
        both = self.shared(words[:, :2] + self.offsets).flatten(1)
        return {"logits": self.fc(torch.cat((numbers, both, self.own(words[:, -1])), 1)), "extra": 1}


class Tiny(nn.Module):
    """Tokens with positions, attention and a mask."""

    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        x = self.word(input_ids) + self.place(torch.arange(input_ids.shape[1]))[None]
        x = self.block(x) * attention_mask[..., None]
        return (self.head(x.mean(1)), x)


TABLE = DataSpec(
    "t",
    (3 + 2 * 4 + 4,),
    2,
    "tabular",
    parts=(Part("numbers", (3,), low=-2, high=2), Part("words", (3,), CATEGORIES, 4)),
)
TOKENS = DataSpec(
    "t", (6 * 11 + 6,), 3, "tokens", parts=(Part("input_ids", (6,), CATEGORIES, 11), Part("attention_mask", (6,), MASK))
)


def draw(spec, count, seed=0):
    made = torch.Generator().manual_seed(seed)
    values = {}
    for part in spec.parts:
        if part.kind == CATEGORIES:
            values[part.name] = torch.randint(3, (count, *part.shape), generator=made)
        elif part.kind == MASK:
            values[part.name] = torch.ones(count, *part.shape, dtype=torch.bool)
        else:
            values[part.name] = torch.rand(count, *part.shape, generator=made) * (part.high - part.low) + part.low
    flat = torch.cat([part.encode(values[part.name]) for part in spec.parts], 1)
    return values, flat


@pytest.mark.parametrize(("make", "spec"), [(Table, TABLE), (Tiny, TOKENS)])
def test_flat_samples_give_what_the_models_own_inputs_give(make, spec):
    torch.manual_seed(0)
    model = make().eval()
    values, flat = draw(spec, 5)
    expected = output_of(model(**values))
    names = list(model.state_dict())
    made = adapted(model, spec)
    torch.testing.assert_close(made(flat), expected)
    assert list(made.state_dict()) == names
    assert isinstance(copy.deepcopy(made), Adapted)
    assert isinstance(made, make)
    for name, value in spec.decode(flat).items():
        torch.testing.assert_close(value, values[name])
    again = made(**values)  # its own form still works, with all that it returns
    assert not isinstance(again, torch.Tensor)


@pytest.mark.parametrize(("make", "spec"), [(Table, TABLE), (Tiny, TOKENS)])
def test_gradients_side_by_side_equal_plain_autograd_and_have_slopes_in_the_samples(make, spec):
    torch.manual_seed(0)
    model = make().eval()
    plain = copy.deepcopy(model)
    values, flat = draw(spec, 4)
    labels = torch.tensor([0, 1, 1, 0])
    worker = working_model(adapted(model, spec), "eval")
    inputs = flat.reshape(2, 2, -1).clone().requires_grad_()
    found = trial_gradients(worker, inputs, labels.reshape(2, 2))
    for t in range(2):
        rows = slice(2 * t, 2 * t + 2)
        loss = F.cross_entropy(output_of(plain(**{n: v[rows] for n, v in values.items()})), labels[rows])
        slow = torch.autograd.grad(loss, list(plain.parameters()))
        for (name, _), expected in zip(plain.named_parameters(), slow, strict=True):
            torch.testing.assert_close(found[name][t], expected, rtol=1e-5, atol=1e-6)
    (slope,) = torch.autograd.grad(sum(g.square().sum() for g in found.values()), inputs)
    for name, piece in spec.split(slope).items():
        if "mask" not in name:
            assert (piece != 0).float().mean() > 0.3, name


def test_a_model_is_taken_back_as_its_author_wrote_it():
    class Own(torch.nn.Linear):
        pass

    net = Own(3, 2)
    spec = DataSpec("rows", (3,), 2, "tabular")
    found, known = taken_back(adapted(net, spec))
    assert type(found) is Own
    assert known == spec
    assert taken_back(net) == (net, None)

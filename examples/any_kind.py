"""Eleven kinds of model and data, each as its owner would write it; nothing in here knows of Leakgauge.

    leakgauge audit --model examples/any_kind.py:Table --data examples/any_kind.py:table

A model is a class or a function without arguments. Data is a function that returns (inputs, targets): arrays, or a
dictionary of them by the names of the model's arguments.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

SAMPLES = 64


def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# --- a table: columns of numbers and of categories ---


def table() -> tuple[dict[str, Tensor], Tensor]:
    g = drawn()
    numbers, categories = torch.randn(SAMPLES, 4, generator=g), torch.randint(0, 5, (SAMPLES, 3), generator=g)
    return {"numbers": numbers, "categories": categories}, torch.randint(0, 2, (SAMPLES,), generator=g)


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(5, 4) for _ in range(3))
        self.fc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embed)]
        return self.fc(torch.cat([numbers, *embedded], 1))


# --- tokens: the next one of each, and a tag for each ---


def tokens() -> tuple[Tensor, Tensor]:
    x = torch.randint(0, 40, (SAMPLES, 8), generator=drawn())
    return x, torch.roll(x, -1, 1)


class GPT(nn.Module):
    def __init__(self, labels: int = 40) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(40, 32), nn.Embedding(8, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0, norm_first=True)
        self.head = nn.Linear(32, labels)

    def forward(self, idx: Tensor) -> Tensor:
        places = torch.arange(idx.shape[1], device=idx.device)
        mask = nn.Transformer.generate_square_subsequent_mask(len(places))
        return self.head(self.block(self.word(idx) + self.place(places), src_mask=mask))


def tagged() -> tuple[Tensor, Tensor]:
    x, _ = tokens()
    return x, torch.randint(0, 3, x.shape, generator=drawn())


class Tagger(GPT):
    def __init__(self) -> None:
        super().__init__(labels=3)


# --- targets that are numbers, and several classes at once ---


def regression() -> tuple[Tensor, Tensor]:
    g = drawn()
    return torch.randn(SAMPLES, 10, generator=g), torch.randn(SAMPLES, generator=g)


class Regressor(nn.Sequential):  # --local loss=mse
    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))


def multilabel() -> tuple[Tensor, Tensor]:
    g = drawn()
    return torch.rand(SAMPLES, 3, 16, 16, generator=g), torch.randint(0, 2, (SAMPLES, 5), generator=g).float()


class MultiLabel(nn.Sequential):  # --local loss=bce
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, 2, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(512, 5))


# --- two inputs: a picture and what is known beside it ---


def two_inputs() -> tuple[dict[str, Tensor], Tensor]:
    g = drawn()
    image, meta = torch.rand(SAMPLES, 1, 12, 12, generator=g), torch.randn(SAMPLES, 5, generator=g)
    return {"image": image, "meta": meta}, torch.randint(0, 3, (SAMPLES,), generator=g)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.Sigmoid(), nn.Flatten())
        self.fc = nn.Linear(149, 3)

    def forward(self, image: Tensor, meta: Tensor) -> Tensor:
        return self.fc(torch.cat((self.conv(image), meta), 1))


# --- pictures: an output that is an object, attention, a residual ---


def pictures() -> tuple[Tensor, Tensor]:
    g = drawn()
    return torch.rand(SAMPLES, 3, 16, 16, generator=g), torch.randint(0, 4, (SAMPLES,), generator=g)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


class ReturnsObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))

    def forward(self, pixel_values: Tensor) -> Output:
        return Output(self.net(pixel_values))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 32, 4, 4), nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.patch(x).flatten(2).transpose(1, 2) + self.place).mean(1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.norm, self.fc = nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.fc((x + torch.relu(self.norm(self.second(x)))).mean((2, 3)))


# --- series: a 1-D convolution (channels first) and a recurrent network (steps first) ---


def series() -> tuple[Tensor, Tensor]:
    g = drawn()
    return torch.randn(SAMPLES, 2, 40, generator=g).cumsum(-1), torch.randint(0, 3, (SAMPLES,), generator=g)


class Conv1d(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv1d(2, 12, 5, 2, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(240, 3))


def steps() -> tuple[Tensor, Tensor]:
    x, y = series()
    return x.transpose(1, 2), y


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.LSTM(2, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0][:, -1])

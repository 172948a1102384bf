"""The model, the data and the training. CIFAR-10 is looked for in `$CIFAR10`, the folder with its Python batches."""

import os
import pickle
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions, three linear layers; takes pictures in [-1, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.pool = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        hidden = self.pool(F.relu(self.conv1(pictures)))
        hidden = self.pool(F.relu(self.conv2(hidden))).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(hidden)))))


def pictures_of(partition: int, samples: int) -> tuple[Tensor, Tensor]:
    """What one client holds: pictures (samples, 3, 32, 32) in [0, 1], labels (samples,)."""
    with (Path(os.environ["CIFAR10"]) / "test_batch").open("rb") as file:
        content = pickle.load(file, encoding="bytes")
    mine = slice(partition * samples, (partition + 1) * samples)
    inputs = torch.tensor(content[b"data"][mine], dtype=torch.float32).view(-1, 3, 32, 32) / 255
    return inputs, torch.tensor(content[b"labels"][mine])


def train(net: nn.Module, inputs: Tensor, labels: Tensor, lr: float, epochs: int) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr, momentum=0.9)
    for _ in range(epochs):
        for some, answers in zip(inputs.split(32), labels.split(32), strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(net((some - 0.5) / 0.5), answers)
            loss.backward()
            optimizer.step()
    return float(loss.detach())

"""The model, the data and the training, as any Flower app has them."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

SEED = 7  # of which pictures the clients hold


class Net(nn.Module):
    """64 pixels, 128 hidden units, 10 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(pictures.flatten(1))))


def pictures_of(partition: int, samples: int) -> tuple[Tensor, Tensor]:
    """What one client holds: pictures (samples, 1, 8, 8) in [0, 1], labels (samples,)."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(SEED))
    mine = order[partition * samples : (partition + 1) * samples]
    inputs = torch.tensor(digits.images, dtype=torch.float32)[mine, None] / 16
    return inputs, torch.tensor(digits.target)[mine]


def train(net: nn.Module, inputs: Tensor, labels: Tensor, lr: float, epochs: int) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
    return float(loss.detach())

"""One picture out of a vision transformer's first step, whatever its tensors are called."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakgauge.attacks.patch_embedding import PatchEmbedding
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.errors import NotApplicable
from leakgauge.types import Client, SharedUpdate

ENOUGH = "vit:patch=2,embedding=24,heads=2"  # 16 places, told apart by 24 numbers


class Own(nn.Module):
    """Patches cut by hand, a linear layer without a bias, a parameter as table and a class token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 20, bias=False)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 20)), nn.Parameter(0.02 * torch.randn(1, 17, 20))
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(20, 2, 32, dropout=0.0, batch_first=True) for _ in range(2))
        )
        self.head = nn.Linear(20, 10)

    def forward(self, x):
        rows = self.embed(F.unfold(x, 2, stride=2).transpose(1, 2))
        rows = torch.cat((self.token.expand(len(rows), -1, -1), rows), 1) + self.places
        return self.head(self.blocks(rows)[:, 0])


def own() -> nn.Module:
    torch.manual_seed(2)
    return Own().eval()


@pytest.mark.parametrize("model", [ENOUGH, f"{ENOUGH},token=true", own], ids=["mean", "token", "own"])
def test_one_picture_is_exact_and_proven(scene, model):
    made = scene(model if isinstance(model, str) else model(), trials=2)
    result = PatchEmbedding()(made.seen, (0, 1))
    assert (made.psnr(result) > 50).all()
    assert torch.equal(result.labels, made.batch.labels)
    assert result.certified.tolist() == [1, 1]


def test_one_local_step_is_as_good_as_a_gradient(scene):
    made = scene(ENOUGH, local=Client(kind="fedavg", lr=0.1), dtype=torch.float64)
    assert (made.psnr(PatchEmbedding()(made.seen, (0, 1))) > 50).all()


def test_places_beyond_the_width_are_left_open_and_said_to_be(scene):
    made = scene("vit:patch=2,embedding=8,heads=2")
    result = PatchEmbedding()(made.seen, (0, 1))
    assert not result.certified.any()
    assert all("is left open by the equations" in note for note in result.notes)
    assert (made.psnr(result) < 40).all()


def test_noise_is_not_mistaken_for_a_picture(scene):
    some, much = (scene(ENOUGH, defenses=(Gaussian(std=s),)) for s in (1e-3, 10.0))
    noted = PatchEmbedding()(some.seen, (0, 1))
    assert not noted.certified.any()
    assert all("is not explained: noise" in note for note in noted.notes)
    assert not PatchEmbedding()(much.seen, (0, 1)).claimed.any()


def test_numbers_of_sixteen_bits_are_enough_for_a_picture(scene):
    def halved(update):
        return SharedUpdate(update.kind, {n: t.half().float() for n, t in update.tensors.items()})

    made = scene(ENOUGH, change=halved)
    assert (made.psnr(PatchEmbedding()(made.seen, (0, 1))) > 25).all()


@pytest.mark.parametrize(
    ("model", "samples", "why"),
    [
        (ENOUGH, 3, "needs one sample: the position embedding's gradient is a sum over all 3"),
        ("lenet-dlg", 1, "no two"),
    ],
)
def test_what_cannot_be_solved_is_refused_with_the_reason(scene, model, samples, why):
    with pytest.raises(NotApplicable, match=why):
        PatchEmbedding().check(scene(model, samples=samples).seen)

"""A transformer small enough to be attacked in a test."""

import pytest
import torch

from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model


@pytest.mark.parametrize("token", [True, False])
def test_parameter_count(count, token):
    patches = 64 * (3 * 8 * 8 + 1) + 64 * 16 + 2 * 64 * token
    block = 4 * 64 + 64 * 192 + 192 + 64 * 64 + 64 + 64 * 256 + 256 + 256 * 64 + 64
    assert count(f"vit:patch=8,token={token}", 3, 32, 10) == patches + 2 * block + 2 * 64 + 64 * 10 + 10


def test_patches_of_one_place_do_not_depend_on_others_before_the_blocks(image):
    model = load_model("vit:patch=4", image(1, 8), seed=0)
    x = torch.rand(1, 1, 8, 8)
    other = x.clone()
    other[..., 4:, 4:] = 0
    seen = [model.places(model.patches(some)) for some in (x, other)]
    assert torch.equal(seen[0][:, :3], seen[1][:, :3])
    assert not torch.equal(seen[0][:, 3], seen[1][:, 3])


def test_sides_and_heads_have_to_fit(image):
    with pytest.raises(NotApplicable, match="patches of 5"):
        load_model("vit:patch=5", image(1, 8), seed=0)
    with pytest.raises(BadInput, match="multiple of heads=3"):
        load_model("vit:heads=3", image(1, 8), seed=0)


def test_twice_differentiable(image, check_twice_differentiable):
    data = image(1, 8, 3)
    check_twice_differentiable(load_model("vit:embedding=8,depth=1", data, seed=0), data)

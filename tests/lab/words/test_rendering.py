"""Pictures show their words, differ between renderers, and are the same each time."""

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.lab.words.rendering import RENDERERS, _colours, rendered


@pytest.mark.parametrize("name", RENDERERS)
def test_pictures_have_their_size_and_letters_on_them(name):
    made = rendered(name, 40, 72, 6, seed=0)
    assert made.images.shape == (40, 3, 32, 72)
    assert made.images.dtype == torch.uint8
    assert len(made.words) == 40
    assert float(made.images.float().flatten(1).std(1).min()) > 5  # no picture is empty
    rendered.cache_clear()
    again = rendered(name, 40, 72, 6, seed=0)
    assert torch.equal(again.images, made.images)
    assert again.words == made.words


def test_renderers_and_seeds_differ():
    flat, scene, other = rendered("flat", 8, 72, 6, 0), rendered("scene", 8, 72, 6, 0), rendered("flat", 8, 72, 6, 1)
    assert not torch.equal(flat.images, scene.images)
    assert flat.words != other.words


def test_letters_stand_out_from_their_ground():
    ground, ink = _colours(2000, 0.3, torch.Generator().manual_seed(0))
    apart = (ground.mean(1) - ink.mean(1)).abs()
    assert float(apart.min()) > 0.2  # a tint is cut at the ends of the range
    assert float(apart.mean()) > 0.3


def test_an_unknown_renderer_is_refused():
    with pytest.raises(BadInput, match="scene"):
        rendered("scenes", 8, 72, 6, 0)

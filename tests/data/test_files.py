"""Pictures are read by content, and none makes room for more pixels than it may have."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from leakgauge.data import files
from leakgauge.data.files import _webp_size, read_image
from leakgauge.errors import BadInput


def webp(size, **how):
    out = io.BytesIO()
    Image.fromarray(np.arange(size[0] * size[1] * 3).astype(np.uint8).reshape(size[1], size[0], 3)).save(
        out, "webp", **how
    )
    return out.getvalue()


WAYS = pytest.mark.parametrize(
    "how", [{}, {"lossless": True}, {"exif": b"Exif\0\0"}], ids=["lossy", "lossless", "extended"]
)


@WAYS
@pytest.mark.parametrize("size", [(12, 10), (300, 7), (1, 1000)])
def test_the_size_of_a_webp_is_read_off_its_head(size, how):
    assert _webp_size(webp(size, **how)[:30]) == size


@WAYS
def test_a_webp_that_claims_too_much_never_reaches_pillow(tmp_path, monkeypatch, how):
    (tmp_path / "a.webp").write_bytes(webp((12, 10), **how))
    assert read_image(tmp_path / "a.webp").size == (12, 10)
    monkeypatch.setattr(files, "_MOST_PIXELS", 100)
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(BadInput, match="12 x 10 pixels, more than 100"):
        read_image(tmp_path / "a.webp")


@pytest.mark.parametrize("head", [b"", b"RIFF", b"RIFF" + bytes(40), b"\x89PNG" + bytes(40)])
def test_other_heads_claim_nothing(head):
    assert _webp_size(head[:30]) == (0, 0)

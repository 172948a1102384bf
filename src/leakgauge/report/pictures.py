"""Tensors as PNG: one picture for the page, and contact sheets of the truth over what was recovered."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from leakgauge.report.numbers import number

SHOWN_SIDE = 128  # px; larger pictures are reduced for the page, so that it stays small enough to mail
_SHEET_SIDE = 96  # px, least side of a picture on the contact sheet
_COLUMNS = 8
_GAP, _LINE = 12, 14

Scores = Mapping[str, float | None]  # with psnr and ssim


def png_bytes(image: Tensor) -> bytes:
    """(C, H, W) in [0, 1] -> PNG at its own size."""
    return _encode(to_pil(image))


def data_uri(image: Tensor, side: int = SHOWN_SIDE) -> str:
    """(C, H, W) in [0, 1] -> a PNG that sits inside the page, no larger than `side`."""
    picture = to_pil(image)
    picture.thumbnail((side, side), Image.Resampling.BOX)  # leaves smaller ones as they are
    return "data:image/png;base64," + base64.b64encode(_encode(picture)).decode("ascii")


def to_pil(image: Tensor) -> Image.Image:
    """Three channels are RGB, one is grey, any other number is averaged to grey. Not-a-number is black."""
    values = torch.nan_to_num(image.detach().to("cpu", torch.float32)).clamp(0, 1)
    if values.shape[0] not in (1, 3):
        values = values.mean(0, keepdim=True)
    pixels = (values * 255).round().to(torch.uint8)  # (C, H, W)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def pairs_png(true: Tensor, recovered: Tensor, scores: Sequence[Scores]) -> bytes:
    """A sheet of K pairs, true above recovered, each with its scores below, eight pairs side by side.

    true, recovered: (K, C, H, W) in [0, 1]; scores: K mappings with psnr and ssim, in the same order.
    """
    parts = [slice(k, k + _COLUMNS) for k in range(0, len(true), _COLUMNS)]
    return _sheet([row for p in parts for row in (("true", true[p], ()), ("recovered", recovered[p], scores[p]))])


def comparison_png(true: Tensor, recovered: Mapping[str, Tensor], scores: Mapping[str, Sequence[Scores]]) -> bytes:
    """A sheet of K columns: the true pictures on top, below them one row for each attack, with its scores."""
    return _sheet([("true", true, ()), *((name, images, scores[name]) for name, images in recovered.items())])


def sheet_png(images: Tensor) -> bytes:
    """A sheet of K pictures (K, C, H, W) in [0, 1], for reconstructions that have no truth beside them."""
    return _sheet([("", part, ()) for part in torch.split(images, _COLUMNS)])


def _sheet(rows: Sequence[tuple[str, Tensor, Sequence[Scores]]]) -> bytes:
    """Rows of pictures (K, C, H, W), each with a name on the left; those that have scores show them below."""
    if not any(len(images) for _, images, _ in rows):
        raise ValueError("a contact sheet needs at least one picture")
    drawn = [[_enlarged(to_pil(image)) for image in images] for _, images, _ in rows]
    width, height = drawn[0][0].size
    font = ImageFont.load_default(11)
    margin = _GAP + max(int(font.getlength(name)) + _GAP if name else 0 for name, _, _ in rows)
    heights = [height + _GAP + (2 * _LINE if scores else 0) for _, _, scores in rows]
    size = margin + max(map(len, drawn)) * (width + _GAP), _GAP + sum(heights)
    sheet = Image.new("RGB", size, "white")
    draw, y = ImageDraw.Draw(sheet), _GAP
    for (name, _, scores), pictures, below in zip(rows, drawn, heights, strict=True):
        draw.text((_GAP, y + height // 2 - 6), name, "black", font)
        for k, picture in enumerate(pictures):
            x = margin + k * (width + _GAP)
            sheet.paste(picture, (x, y))
            if scores:
                draw.multiline_text((x, y + height), _caption(scores[k]), "black", font, spacing=2)
        y += below
    return _encode(sheet)


def _caption(scores: Scores) -> str:
    # The bundled font has no minus sign of its own.
    ssim, psnr = (number(m, scores.get(m)).replace("−", "-") for m in ("ssim", "psnr"))
    return f"SSIM {ssim}\nPSNR {psnr} dB"


def _enlarged(picture: Image.Image) -> Image.Image:
    """A whole multiple of its size, so that every pixel stays a square."""
    factor = max(1, -(-_SHEET_SIDE // min(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def _encode(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return out.getvalue()

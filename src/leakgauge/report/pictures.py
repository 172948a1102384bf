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
_GAP, _MARGIN, _LINE = 12, 84, 14


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


def pairs_png(true: Tensor, recovered: Tensor, scores: Sequence[Mapping[str, float | None]]) -> bytes:
    """A sheet of K pairs, true above recovered, each with its scores below.

    true, recovered: (K, C, H, W) in [0, 1]; scores: K mappings with psnr and ssim, in the same order.
    """
    top = [_enlarged(to_pil(image)) for image in true]
    low = [_enlarged(to_pil(image)) for image in recovered]
    if not top:
        raise ValueError("a contact sheet needs at least one pair")
    width, height = top[0].size
    columns = min(_COLUMNS, len(top))
    rows = -(-len(top) // columns)
    row_height = 2 * height + 2 * _LINE + 3 * _GAP
    size = (_MARGIN + columns * (width + _GAP), _GAP + rows * row_height)
    sheet = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for k, (above, below) in enumerate(zip(top, low, strict=True)):
        x = _MARGIN + (k % columns) * (width + _GAP)
        y = _GAP + (k // columns) * row_height
        if k % columns == 0:
            draw.text((_GAP, y + height // 2 - 6), "true", "black", font)
            draw.text((_GAP, y + height + _GAP // 2 + height // 2 - 6), "recovered", "black", font)
        sheet.paste(above, (x, y))
        sheet.paste(below, (x, y + height + _GAP // 2))
        caption = y + 2 * height + _GAP
        for line, text in enumerate(_caption(scores[k])):
            draw.text((x, caption + line * _LINE), text, "black", font)
    return _encode(sheet)


def comparison_png(
    true: Tensor, recovered: Mapping[str, Tensor], scores: Mapping[str, Sequence[Mapping[str, float | None]]]
) -> bytes:
    """A sheet of K columns: the true pictures on top, below them one row for each attack, with its scores.

    true and every recovered: (K, C, H, W) in [0, 1]; scores: for each attack K mappings with psnr and ssim.
    """
    rows = {"true": true, **recovered}
    pictures = {name: [_enlarged(to_pil(image)) for image in images] for name, images in rows.items()}
    if not pictures["true"]:
        raise ValueError("a contact sheet needs at least one picture")
    width, height = pictures["true"][0].size
    font = ImageFont.load_default(11)
    margin = _GAP + max(_MARGIN, *(int(font.getlength(name)) + _GAP for name in rows))
    row_height = height + _LINE + _GAP
    size = (margin + len(pictures["true"]) * (width + _GAP), _GAP + len(rows) * row_height - _LINE)  # no scores on top
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    y = _GAP
    for name, row in pictures.items():
        draw.text((_GAP, y + height // 2 - 6), name, "black", font)
        for k, picture in enumerate(row):
            x = margin + k * (width + _GAP)
            sheet.paste(picture, (x, y))
            if name in scores:
                ssim, psnr = _caption(scores[name][k])
                draw.text(
                    (x, y + height + 1), f"{ssim.removeprefix('SSIM ')}  {psnr.removeprefix('PSNR ')}", "black", font
                )
        y += row_height if name in scores else height + _GAP
    return _encode(sheet)


def sheet_png(images: Tensor) -> bytes:
    """A sheet of K pictures (K, C, H, W) in [0, 1], for reconstructions that have no truth beside them."""
    pictures = [_enlarged(to_pil(image)) for image in images]
    if not pictures:
        raise ValueError("a contact sheet needs at least one picture")
    width, height = pictures[0].width + _GAP, pictures[0].height + _GAP
    columns = min(_COLUMNS, len(pictures))
    sheet = Image.new("RGB", (_GAP + columns * width, _GAP + -(-len(pictures) // columns) * height), "white")
    for k, picture in enumerate(pictures):
        sheet.paste(picture, (_GAP + (k % columns) * width, _GAP + (k // columns) * height))
    return _encode(sheet)


def _caption(scores: Mapping[str, float | None]) -> tuple[str, str]:
    # The bundled font has no minus sign of its own.
    ssim, psnr = (number(m, scores.get(m)).replace("−", "-") for m in ("ssim", "psnr"))
    return f"SSIM {ssim}", f"PSNR {psnr} dB"


def _enlarged(picture: Image.Image) -> Image.Image:
    """A whole multiple of its size, so that every pixel stays a square."""
    factor = max(1, -(-_SHEET_SIDE // min(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def _encode(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return out.getvalue()

"""Tensors as PNG: one picture for the page, and the files beside a report.

Contact sheets show the truth over what was recovered; without the truth, everything that was recovered is kept.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import save
from torch import Tensor

from leakgauge.reading.files import write_whole
from leakgauge.report.numbers import number
from leakgauge.types import BLANK, NO_LABEL, AuditReport, Finding, Pictures, Summary, cell_name
from leakgauge.verdict.roles import attack_rows

SHOWN_SIDE = 128  # px; larger pictures are reduced for the page, so that it stays small enough to mail
_SHEET_SIDE = 96  # px, least side of a picture on the contact sheet
_COLUMNS = 8
_GAP, _LINE = 12, 14
_PAIRS = 16
_COMPARED = 8  # records side by side, one row of pictures for each attack
_SHOWN = 64  # pictures of one attack that have no truth beside them

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


def claimed(recovered: Tensor) -> Tensor:
    """(T, N, *shape) without true samples -> (T, N) bool: where anything is claimed."""
    shown: Tensor = recovered.isfinite().flatten(2).any(2)
    return shown


def write_pairs(report: AuditReport, pictures: Pictures, folder: Path) -> Path | None:
    """`pairs.png`: true over reconstructed, for the cell that recovered most. None for tables."""
    attacked = _attacked(report, pictures)
    if not attacked:
        return None
    best = max(attacked, key=lambda r: (r.success_rate.value, r.metrics["psnr_mean_per_image"].value or 0.0))
    true, recovered = (images.flatten(0, 1)[:_PAIRS] for images in (pictures.true, pictures.recovered[_cell(best)]))
    path = folder / "pairs.png"
    write_whole(path, pairs_png(true, recovered, _scores(report, best)[:_PAIRS]), private=True)
    return path


def write_attacks(report: AuditReport, pictures: Pictures, folder: Path) -> None:
    """`attacks.png`: the first records, and what each attack made of their undefended update. None for one attack."""
    rows = {r.attack: r for r in _attacked(report, pictures) if r.defense == "none"}
    if len(rows) < 2:
        return
    recovered = {name: pictures.recovered[_cell(row)].flatten(0, 1)[:_COMPARED] for name, row in rows.items()}
    scores = {name: _scores(report, row)[:_COMPARED] for name, row in rows.items()}
    sheet = comparison_png(pictures.true.flatten(0, 1)[:_COMPARED], recovered, scores)
    write_whole(folder / "attacks.png", sheet, private=True)


def _attacked(report: AuditReport, pictures: Pictures) -> list[Summary]:
    """The rows that have pictures to show: neither floors nor attacks on a decoy, and none that broke off."""
    if report.data.kind != "image":
        return []
    tried = [r for r in attack_rows(report.summary, report.findings) if not r.error]
    return [r for r in tried if r.metrics.get("psnr_mean_per_image") and _cell(r) in pictures.recovered]


def _cell(of: Summary | Finding) -> str:
    return cell_name(of.attack, of.defense, of.adaptive)


def _scores(report: AuditReport, row: Summary) -> Sequence[dict[str, float | None]]:
    return [dict(record) for f in report.findings if _cell(f) == _cell(row) for record in f.records]


def write_reconstructions(report: AuditReport, pictures: Pictures, folder: Path, *, single: bool = False) -> list[Path]:
    """What each attack made of updates whose samples nobody has: as tensors, and as a sheet of pictures beside them.

    `reconstruction-ATTACK.safetensors`, for its owner only; no ATTACK for a `single` one. Of several answers all are
    kept, since nobody can say which one is closest.
    """
    cells: dict[str, list[Finding]] = {}
    for f in report.findings:
        if f.error is None:
            cells.setdefault(_cell(f), []).append(f)
    files = []
    for name, found in cells.items():
        stem = "reconstruction" if single and len(cells) == 1 else _stem(found[0])
        recovered = pictures.recovered.get(name)
        files.append(folder / f"{stem}.safetensors")
        write_whole(files[-1], save(_tensors(recovered, found, report.scenario.batch_size)), private=True)
        if report.data.kind == "image" and recovered is not None and len(rows := recovered[claimed(recovered)]):
            write_whole(folder / f"{stem}.png", sheet_png(rows[:_SHOWN].nan_to_num(0.5).clamp(0, 1)), private=True)
    return files


def _stem(finding: Finding) -> str:
    label = "".join(c if c.isalnum() or c in "-_.=," else "-" for c in finding.attack.replace(" #", "-"))
    return f"reconstruction-{label}{'-adaptive' * finding.adaptive}"


def _tensors(recovered: Tensor | None, found: list[Finding], samples: int) -> dict[str, Tensor]:
    """inputs and claimed (T, N, ...), answers (T, A, N, ...) where there are several, labels (T, N) where any are."""
    kept: dict[str, Tensor] = {}
    if recovered is not None:
        first, answers = recovered[:, :samples], recovered[:, samples:]
        kept |= {"inputs": first.nan_to_num(BLANK).contiguous(), "claimed": claimed(first).contiguous()}
        if answers.shape[1]:
            kept["answers"] = answers.reshape(len(answers), -1, samples, *answers.shape[2:]).contiguous()
    if all(f.labels is not None for f in found):
        kept["labels"] = torch.tensor([[NO_LABEL if k is None else k for k in f.labels or ()] for f in found])
    return kept

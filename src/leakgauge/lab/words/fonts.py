"""The fonts that words are drawn with: those of matplotlib, which are the same on every machine, or those of a folder.

Each renderer has its own fonts. They are searched for in the data folder, in matplotlib and in the system's folders,
in this order.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from PIL import ImageFont

from leakgauge.errors import BadInput
from leakgauge.lab.words.alphabet import ALPHABET
from leakgauge.reading.files import data_root

FONTS: Mapping[str, tuple[str, ...]] = {  # by renderer: DejaVu for one, fonts of printed books for the other
    "flat": (
        "DejaVuSans.ttf",
        "DejaVuSans-Bold.ttf",
        "DejaVuSans-Oblique.ttf",
        "DejaVuSansMono.ttf",
        "DejaVuSansMono-Bold.ttf",
        "DejaVuSerif.ttf",
        "DejaVuSerif-Bold.ttf",
        "DejaVuSerif-Italic.ttf",
    ),
    "scene": (
        "STIXGeneral.ttf",
        "STIXGeneralBol.ttf",
        "STIXGeneralItalic.ttf",
        "STIXGeneralBolIta.ttf",
        "cmr10.ttf",
        "cmb10.ttf",
        "cmss10.ttf",
        "cmtt10.ttf",
    ),
}
_SYSTEM = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "C:/Windows/Fonts")
_SUFFIXES = (".ttf", ".otf")


def fonts_of(renderer: str, root: Path | None = None, folder: Path | None = None) -> tuple[Path, ...]:
    """The font files of a renderer; from `folder`, if given, every second family, so that renderers share none."""
    if folder is not None:
        return _split_families(folder)[renderer]
    return _named(renderer, tuple(_places(root)))


def _places(root: Path | None) -> Iterator[Path]:
    yield data_root(root) / "fonts"
    plots = importlib.util.find_spec("matplotlib")  # found, not imported: that takes a while
    if plots is not None and plots.origin is not None:
        yield Path(plots.origin).parent / "mpl-data" / "fonts" / "ttf"
    yield from map(Path, _SYSTEM)


def _named(renderer: str, places: tuple[Path, ...]) -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for place in places:
        missing = set(FONTS[renderer]) - found.keys()
        if missing and place.is_dir():
            found |= {path.name: path for path in sorted(place.rglob("*.ttf")) if path.name in missing}
    if len(found) < len(FONTS[renderer]):
        lacking = ", ".join(name for name in FONTS[renderer] if name not in found)
        raise BadInput(
            f"fonts of renderer {renderer!r}",
            allowed=f"in one of {', '.join(map(str, places))}",
            got=f"no {lacking}",
            do="install matplotlib, which ships them, or give a folder of fonts with --fonts",
        )
    return tuple(found[name] for name in FONTS[renderer])


def _split_families(folder: Path) -> dict[str, tuple[Path, ...]]:
    families: dict[str, list[Path]] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES):
        name = _family(path)
        if name is not None:
            families.setdefault(name, []).append(path)
    if len(families) < len(FONTS):
        raise BadInput(
            "--fonts",
            allowed=f"a folder with {len(FONTS)} families of .ttf or .otf fonts that have A to Z and 0 to 9",
            got=f"{len(families)} in {str(folder)!r}",
            do="add fonts, or leave --fonts out",
        )
    names = sorted(families)
    return {
        renderer: tuple(path for name in names[number :: len(FONTS)] for path in families[name])
        for number, renderer in enumerate(FONTS)
    }


def _family(path: Path) -> str | None:
    """None if it cannot be read or draws the same picture for many characters, as fonts of symbols do."""
    try:
        font = ImageFont.truetype(str(path), 24)
        pictures = {bytes(font.getmask(character)) for character in ALPHABET}
    except (OSError, ValueError):
        return None
    return str(font.getname()[0]) if len(pictures) == len(ALPHABET) and b"" not in pictures else None

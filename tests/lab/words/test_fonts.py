"""Every machine has fonts; renderers share none; a folder without any is refused in one line."""

import shutil

import pytest

from leakgauge.errors import BadInput
from leakgauge.lab.words import fonts
from leakgauge.lab.words.fonts import FONTS, fonts_of


def test_named_fonts_are_found_and_differ_between_renderers(tmp_path):
    flat, scene = (fonts_of(name, tmp_path) for name in ("flat", "scene"))
    assert [p.name for p in flat] == list(FONTS["flat"])
    assert not set(flat) & set(scene)


def test_the_data_folder_comes_first(tmp_path):
    (original, *_) = fonts_of("flat", tmp_path)
    (tmp_path / "fonts").mkdir()
    copied = tmp_path / "fonts" / original.name
    shutil.copy(original, copied)
    assert fonts_of("flat", tmp_path)[0] == copied


def test_a_folder_is_dealt_family_by_family(tmp_path):
    for path in (*fonts_of("flat")[:2], fonts_of("scene")[0]):
        shutil.copy(path, tmp_path)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    dealt = {name: [p.name for p in fonts_of(name, folder=tmp_path)] for name in FONTS}
    assert dealt == {"flat": ["DejaVuSans-Bold.ttf", "DejaVuSans.ttf"], "scene": ["STIXGeneral.ttf"]}


def test_no_fonts_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="2 families"):
        fonts_of("flat", folder=tmp_path)
    with pytest.raises(BadInput, match="2 families"):
        fonts_of("flat", folder=tmp_path / "nowhere")
    monkeypatch.setattr(fonts, "_SYSTEM", ())
    monkeypatch.setattr(fonts.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="install matplotlib"):
        fonts_of("flat", tmp_path)

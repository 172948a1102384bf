"""Lists as they are published, pictures stretched or in proportion, and one clear line for what cannot be read."""

import pytest
from PIL import Image

from leakgauge.errors import BadInput
from leakgauge.lab.words.word_folder import proportional, readable, stretched, words_in


@pytest.fixture
def folder(tmp_path):
    for name, size in (("word_1.png", (60, 20)), ("word_2.png", (300, 30)), ("deep/word 3.jpg", (10, 40))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", size, "red").save(tmp_path / name)
    return tmp_path


LISTS = {
    "gt.txt": '\ufeffword_1.png, "Tiredness"\nword_2.png, "It\'s"\ndeep/word 3.jpg, "7UP"\n',
    "test.tags": "word_1.png Tiredness\nword_2.png It's\n\ndeep/word 3.jpg 7UP\n",
    "words.csv": "word_1.png;Tiredness\nword_2.png;It's\ndeep/word 3.jpg;7UP",
    "words.tsv": "word_1.png\tTiredness\nword_2.png\tIt's\ndeep/word 3.jpg\t7UP",
}


@pytest.mark.parametrize("name", LISTS)
def test_every_kind_of_list(folder, name):
    (folder / name).write_text(LISTS[name], encoding="utf-8")
    entries = words_in(folder)
    assert [word for _, word in entries] == ["Tiredness", "It's", "7UP"]
    assert all(path.is_file() for path, _ in entries)
    assert [word for _, word in readable(entries, 12)] == ["Tiredness", "7UP"]
    assert [word for _, word in readable(entries, 8)] == ["7UP"]
    assert [word for _, word in readable(entries, 12, 4)] == ["Tiredness"]


def test_pictures_are_stretched_or_keep_their_proportions(folder):
    (folder / "words.tags").write_text(LISTS["test.tags"], encoding="utf-8")
    entries = words_in(folder)
    assert stretched(entries, 64).images.shape == (3, 3, 32, 64)
    groups = {group.images.shape[3]: group.words for group in proportional(entries, 64)}
    assert groups == {64: ("7UP",), 96: ("Tiredness",), 320: ("It's",)}  # 8 would be too narrow


def test_what_cannot_be_read_is_refused(folder, tmp_path):
    with pytest.raises(BadInput, match="which has none"):
        words_in(folder)
    with pytest.raises(BadInput, match="which has none"):
        words_in(tmp_path / "nowhere")
    (folder / "a.tags").write_text("word_1.png\n")
    with pytest.raises(BadInput, match="a file and its word"):
        words_in(folder)
    (folder / "a.tags").write_text("../word_1.png Bank\n")
    with pytest.raises(BadInput, match="leads out of it"):
        words_in(folder)
    (folder / "a.tags").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="readable text"):
        words_in(folder)

import pytest

from leakgauge.errors import Unreadable
from leakgauge.reading.plain import read_json


def test_json_comes_back(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, null, "ä"]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"a": [1, None, "ä"]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000])
def test_anything_else_is_refused_alike(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(Unreadable):
        read_json(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_unreadable(tmp_path):
    with pytest.raises(Unreadable, match="FileNotFoundError"):
        read_json(tmp_path / "none.json")

"""JSON of ours is whole and in its place, or it is not believed."""

import json

import pytest
import torch

from leakgauge.errors import Unreadable
from leakgauge.reading.sealed import check_digest, opened, opened_tensors, sealed, sealed_tensors, with_digest


def test_what_was_sealed_comes_back(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(sealed("a key", {"b": [1, 0.1, None, "ü"]}))
    assert opened(path) == opened(path, "a key") == {"b": [1, 0.1, None, "ü"]}


def test_another_place_and_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "a.json"
    whole = sealed("a key", {"b": [1, 2]})
    path.write_bytes(whole)
    with pytest.raises(Unreadable, match="belongs to something else"):
        opened(path, "another key")
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        try:
            assert opened(path, "a key") == {"b": [1, 2]}, "white space alone"
        except Unreadable:
            continue
        assert chr(whole[place]) in " \n"
    path.write_text('{"b": [1, 2]}')
    with pytest.raises(Unreadable, match="not one of ours"):
        opened(path)


def test_a_digest_is_of_everything_else_and_may_be_missing():
    plain = {"a": 1, "b": {"c": [1.5]}}
    check_digest(plain)
    check_digest(json.loads(json.dumps(with_digest(plain))))
    with pytest.raises(Unreadable, match="digest"):
        check_digest({**with_digest(plain), "a": 2})


def test_tensors_come_back_and_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "a.training"
    kept = {"w": torch.randn(2, 3), "half": torch.ones(3, dtype=torch.bfloat16), "on": torch.tensor(True)}
    whole = sealed_tensors("a key", kept, {"done": 3})
    path.write_bytes(whole)
    tensors, content = opened_tensors(path, "a key")
    assert content == {"done": 3}
    assert all(torch.equal(tensors[name], kept[name]) and tensors[name].dtype == kept[name].dtype for name in kept)
    with pytest.raises(Unreadable, match="belongs to something else"):
        opened_tensors(path, "another key")
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        try:
            again, told = opened_tensors(path, "a key")
        except Unreadable:
            continue
        assert told == content, "white space of the header alone"
        assert all(torch.equal(again[name], kept[name]) for name in kept)

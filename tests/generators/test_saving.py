"""What is written is read back; what does not fit is refused in one line."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from leakgauge.errors import BadInput
from leakgauge.generators.architecture import Decoder
from leakgauge.generators.saving import Origin, read_generator, save_generator


def parts_of(path):
    with safe_open(path, framework="pt") as file:
        return {n: file.get_tensor(n) for n in file.keys()}, file.metadata()  # noqa: SIM118


def test_a_generator_survives_the_disk(saved, decoder):
    found = read_generator(str(saved))
    z, y = torch.randn(3, 6), torch.tensor([0, 5, 9])
    assert torch.equal(found.net(z, y), decoder(z, y))
    assert (found.latent, found.shape, found.classes) == (6, (1, 8, 8), 10)
    assert found.about == "1347 samples of the train split of digits"
    assert len(found.seen) == 1347


def test_the_header_says_what_it_is_in_plain_json(saved):
    about = json.loads(parts_of(saved)[1]["generator"])
    assert about["architecture"] == {"shape": [1, 8, 8], "classes": 10, "latent": 6, "width": 4}
    assert about["origin"]["data"] == "digits"
    assert about["origin"]["split"] == "train"
    assert about["origin"]["seed"] == 0


def test_reading_draws_no_random_numbers(saved):
    before = torch.get_rng_state()
    read_generator(str(saved))
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_half_written_is_left(saved, decoder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    content = saved.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadInput, match="disk space"):
        save_generator(saved, decoder, Origin("digits", "train", 1, 1, 0, "0"), torch.zeros(1, dtype=torch.int64))
    assert saved.read_bytes() == content
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def refusal(path) -> str:
    with pytest.raises(BadInput) as error:
        read_generator(str(path))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_missing_file_another_file_and_a_cut_off_one_are_refused(saved, tmp_path):
    assert "no such file" in refusal(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert "train generator" in refusal(tmp_path / "other.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(saved.read_bytes()[:-100])
    assert "damaged" in refusal(tmp_path / "cut.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    assert "damaged" in refusal(tmp_path / "text.safetensors")


def test_a_changed_weight_is_noticed_by_its_hash(saved, tmp_path):
    tensors, metadata = parts_of(saved)
    tensors["net.paint.bias"] = tensors["net.paint.bias"] + 1
    save_file(tensors, tmp_path / "changed.safetensors", metadata)
    assert "hash" in refusal(tmp_path / "changed.safetensors")


@pytest.mark.parametrize(
    "change", [{"latent": 7}, {"width": 5}, {"shape": [1, 8]}, {"classes": 10**9}, {"latent": "6"}, {"depth": 3}]
)
def test_an_architecture_that_does_not_fit_the_weights_is_refused(saved, tmp_path, change, monkeypatch):
    monkeypatch.setattr("leakgauge.generators.saving._hash", lambda *_: "0")  # as if somebody mended the hash as well
    tensors, metadata = parts_of(saved)
    about = json.loads(metadata["generator"])
    about["architecture"] |= change
    save_file(tensors, tmp_path / "odd.safetensors", {"generator": json.dumps(about), "sha256": "0"})
    assert "generator" in refusal(tmp_path / "odd.safetensors")


def test_another_format_is_refused_by_name(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("leakgauge.generators.saving.FORMAT", "leakgauge-generator-2")
    assert "leakgauge-generator-2" in refusal(saved)


def test_the_same_weights_give_the_same_hash(decoder, tmp_path):
    origin, seen = Origin("digits", "train", 1, 1, 0, "0"), torch.zeros(1, dtype=torch.int64)
    first, second = (save_generator(tmp_path / f"{n}.safetensors", decoder, origin, seen) for n in "ab")
    assert first == second
    with torch.random.fork_rng(devices=[]):
        assert save_generator(tmp_path / "c.safetensors", Decoder(decoder.plan), origin, seen) != first

"""The filter passes everything on, and writes how far each client moved what it was sent."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from leakgauge.errors import BadInput, MissingExtra
from leakgauge.integrations import nvflare as ours
from leakgauge.recording.recorded_folder import read_folder

SENT = {"fc.weight": torch.ones(2, 3), "bn.running_mean": torch.zeros(3), "bn.num_batches_tracked": torch.tensor(4)}


def test_without_nvflare_the_hint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvflare", None)
    monkeypatch.setitem(sys.modules, "nvflare.apis.dxo_filter", None)
    ours.filter_class.cache_clear()
    with pytest.raises(MissingExtra, match=r"leakgauge\[nvflare\]"):
        ours.filter_class()
    ours.filter_class.cache_clear()


def test_whole_weights_become_a_difference_and_statistics_stay_as_they_are():
    after = {n: t + 1 for n, t in SENT.items()}
    update = ours.update_of("WEIGHTS", after, SENT)
    assert set(update.tensors) == {"fc.weight"}
    torch.testing.assert_close(update.tensors["fc.weight"], torch.ones(1, 2, 3))
    torch.testing.assert_close(update.buffers["bn.running_mean"], torch.ones(1, 3))


def test_half_precision_is_not_rounded_once_more():
    sent, after = torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([3.015625], dtype=torch.bfloat16)
    update = ours.update_of("WEIGHTS", {"w": after}, {"w": sent})
    assert update.tensors["w"].dtype == torch.float32
    assert update.tensors["w"].item() == after.double().item() - 1


def test_a_difference_stays_one_and_its_statistics_become_whole():
    moved = {"fc.weight": torch.full((2, 3), 0.5), "bn.running_mean": torch.full((3,), 0.25)}
    update = ours.update_of("WEIGHT_DIFF", moved, SENT | {"bn.running_mean": torch.ones(3)})
    torch.testing.assert_close(update.tensors["fc.weight"], torch.full((1, 2, 3), 0.5))
    torch.testing.assert_close(update.buffers["bn.running_mean"], torch.full((1, 3), 1.25))


def test_whole_weights_without_those_that_were_sent_are_refused():
    with pytest.raises(BadInput, match="sent"):
        ours.update_of("WEIGHTS", SENT, None)


def test_what_is_no_array_is_refused():
    with pytest.raises(BadInput, match="encrypt"):
        ours.tensors_of({"fc.weight": object()})


class Recipe:
    """Keeps what is added to it, as NVFlare's recipes do."""

    def __init__(self):
        self.added = {}

    def __getattr__(self, name):
        return lambda filter, tasks: self.added.setdefault(name, filter)


@pytest.fixture
def flare():
    return pytest.importorskip("nvflare", reason="the package nvflare is not installed")


def passed(chain, filter, kind, data, round_number=3):
    from nvflare.apis.dxo import DXO
    from nvflare.apis.filter import FilterContextKey
    from nvflare.apis.fl_context import FLContext

    filter.set_prop(FilterContextKey.CHAIN_TYPE, chain)
    message = DXO(kind, data).to_shareable()
    message.set_header("current_round", round_number)
    message.set_peer_props({"__identity_name__": "site-1"})
    context = FLContext()
    return filter.process(message, context)


@pytest.mark.parametrize("kind", ["WEIGHTS", "WEIGHT_DIFF"])
def test_what_a_client_sends_back_is_written(flare, tmp_path, kind):
    recipe = ours.record_updates(Recipe(), tmp_path / kind, lr=0.1, samples=8)
    sent = {"fc.weight": np.ones((2, 3), np.float32)}
    back = {"fc.weight": np.full((2, 3), 1.5 if kind == "WEIGHTS" else 0.5, np.float32)}
    passed("task_data", recipe.added["add_server_output_filter"], "WEIGHTS", sent)
    after = passed("task_result", recipe.added["add_server_input_filter"], kind, back)
    assert np.array_equal(after["DXO"]["data"]["fc.weight"], back["fc.weight"])
    (entry,) = read_folder(tmp_path / kind)
    assert (entry.origin.client, entry.origin.round, entry.origin.samples, entry.origin.lr) == ("site-1", 3, 8, 0.1)
    from leakgauge.reading.tensors import read_safetensors

    torch.testing.assert_close(read_safetensors(entry.update)[0]["fc.weight"], torch.full((2, 3), 0.5))


def test_what_cannot_be_read_is_passed_on_and_said(flare, tmp_path, caplog):
    recipe = ours.record_updates(Recipe(), tmp_path / "none", at="client")
    passed("task_result", recipe.added["add_client_output_filter"], "WEIGHTS", {"w": np.ones(2)})
    assert "not recorded" in caplog.text


def test_another_place_is_refused():
    with pytest.raises(BadInput, match="server or client"):
        ours.record_updates(Recipe(), "recorded", at="edge")


def test_nvflare_finds_the_filter_by_its_name(flare):
    assert ours.RecordingFilter.__module__ == "leakgauge.integrations.nvflare"
    assert ours.RecordingFilter.__qualname__ == "RecordingFilter"

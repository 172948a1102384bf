"""MKOR's edit of a block of each convolution (Eq. 20): what it touches, and what that costs the pictures."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from leakgauge.data import load, public_batch
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import load_model
from leakgauge.servers._mkor.convolutions import offsets
from leakgauge.servers._mkor.regions import pictures
from leakgauge.servers.mkor import MKOR
from leakgauge.types import DataSpec

PHOTOS = load("photos64", "test")
GREY = DataSpec("grey", (1, 64, 64), 5, "image")


def seen_pictures(server: MKOR, model: nn.Module, data: DataSpec, inputs: Tensor) -> Tensor:
    """What the features of the first dense layer say, were they known exactly and what is grey known to the server."""
    sent, (copies, _) = server.prepare(model, data), server._layout(model, data)
    caught: list[Tensor] = []
    sent.get_submodule(copies.plan.dense[0]).register_forward_pre_hook(lambda _, args: caught.append(args[0].detach()))
    sent(inputs)
    if server.design == "block":
        grey = torch.full_like(inputs[:1], 0.5)
        copies = dataclasses.replace(copies, offsets=offsets(sent, copies, grey))
    return pictures(caught[0].reshape(len(inputs), *copies.plan.features), copies, 5)


def psnr(found: Tensor, truth: Tensor) -> float:
    return float(-10 * (found - truth).square().flatten(1).mean(1).log10().mean())


def changed(server: MKOR, model: nn.Module, data: DataSpec, name: str) -> Tensor:
    return server.prepare(model, data).get_parameter(name) != model.get_parameter(name)


def test_only_the_block_between_used_channels_changes():
    """Against Eq. 20 read pair by pair."""
    model = load_model("vgg16-mkor:width=8,hidden=16", GREY, seed=1)
    server = MKOR(parameters="inconspicuous", beta=2.0, sigma=1e-4, secret=3)
    copies, _ = server._layout(model, GREY)
    sent = server.prepare(model, GREY)
    for i, layer in enumerate(copies.plan.convolutions[:4]):
        old, new = (m.get_parameter(f"{layer.name}.weight").detach() for m in (model, sent))
        reads, writes = set(copies.sources(i).tolist()), copies.places[i].tolist()
        for c_out in range(layer.outputs):
            for c_in in range(layer.inputs):
                if c_in not in reads or c_out not in writes:
                    assert torch.equal(new[c_out, c_in], old[c_out, c_in])
                elif i > 0 and c_in == copies.sources(i)[writes.index(c_out) % len(reads)]:
                    assert sorted(new[c_out, c_in].flatten().tolist()) == [0.0] * 8 + [2.0]
                else:
                    assert (new[c_out, c_in].abs() < 6e-4).all() or i == 0


def test_a_seventh_of_the_last_convolution_of_vgg16_is_edited_at_full_width():
    """The paper says at most 14 %; emptying the rows changes 75 %."""
    model = load_model("vgg16-mkor:hidden=16", PHOTOS.spec, seed=0)
    share = {
        design: float(changed(MKOR(design=design), model, PHOTOS.spec, "conv5_3.weight").float().mean())
        for design in ("block", "rows")
    }
    assert share["block"] == pytest.approx(96 * 384 / 512**2, abs=1e-4)
    assert share["block"] < 0.15
    assert share["rows"] == pytest.approx(0.75, abs=1e-4)


def test_the_block_recovers_photographs_within_two_and_a_half_decibels_of_emptied_rows():
    model = load_model("vgg16-mkor:hidden=16", PHOTOS.spec, seed=0)
    inputs = public_batch(PHOTOS, 4, seed=2).inputs[0]
    rows, plain, loud = (
        psnr(seen_pictures(server, model, PHOTOS.spec, inputs), inputs)
        for server in (MKOR(design="rows"), MKOR(design="block", beta=1), MKOR(design="block", beta=10))
    )
    assert rows - 2.5 < plain < rows
    assert loud == pytest.approx(rows, abs=0.1)


def test_the_block_copies_through_sigmoids():
    digits = load("digits:size=28", "test")
    inputs = public_batch(digits, 16, seed=2).inputs[0]
    lost = []
    for seed in range(4):
        model = load_model("lenet5-mkor", digits.spec, seed)
        rows, block = (
            psnr(seen_pictures(MKOR(design=d), model, digits.spec, inputs), inputs) for d in ("rows", "block")
        )
        lost.append(rows - block)
    assert abs(sum(lost) / 4) < 1.5


@pytest.mark.parametrize("design", ["block", "rows"])
def test_noise_falls_on_modified_parameters_only(design):
    model = load_model("vgg16-mkor:width=8,hidden=16", GREY, seed=1)
    silent, noisy, everywhere = (
        changed(MKOR(design=design, sigma=1e-3, **more), model, GREY, "conv5_3.weight")
        for more in ({}, {"noise": 1e-3}, {"noise": 1e-3, "noise_on": "all"})
    )
    assert torch.equal(noisy, silent)
    assert everywhere.all()
    assert not silent.all()


def test_offsets_are_what_other_channels_add():
    """Exactly taken off if the picture is the one that they were measured with; nothing where all is emptied."""
    model = load_model("lenet5-mkor", GREY, seed=1).double()
    inputs = torch.full((1, 1, 64, 64), 0.5, dtype=torch.float64)
    torch.testing.assert_close(seen_pictures(MKOR(design="block"), model, GREY, inputs), inputs, rtol=0, atol=1e-6)
    server = MKOR(design="rows")
    copies, _ = server._layout(model, GREY)
    for offset in offsets(server.prepare(model, GREY), copies, inputs):
        torch.testing.assert_close(offset, torch.zeros_like(offset))


def test_fewer_directions_are_a_coarser_picture():
    model = load_model("vgg16-mkor:width=16,hidden=16", GREY, seed=1)
    inputs = public_batch(PHOTOS, 4, seed=2).inputs[0].mean(1, keepdim=True)
    found = [psnr(seen_pictures(MKOR(directions=i), model, GREY, inputs), inputs) for i in (0, 1, 3)]
    assert found[0] < found[1] < found[2]
    most = MKOR(directions=3).prepare(model, GREY).state_dict()
    assert all(torch.equal(most[name], tensor) for name, tensor in MKOR().prepare(model, GREY).state_dict().items())


def test_what_is_out_of_range_is_refused():
    model = load_model("vgg16-mkor:width=16,hidden=16", GREY, seed=1)
    with pytest.raises(NotApplicable, match="4 layers of this model, 3 at most"):
        MKOR(directions=4).prepare(model, GREY)
    for field, value in (("design", "columns"), ("beta", 0.0), ("sigma", -1.0), ("directions", -2), ("noise_on", "x")):
        with pytest.raises(BadInput, match=field.replace("_", ".")):
            MKOR(**{field: value})

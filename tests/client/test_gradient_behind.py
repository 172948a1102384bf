"""What a weight difference says of the gradient behind it."""

import pytest
import torch

from leakgauge.client.fedavg import fedavg
from leakgauge.client.fedsgd import fedsgd
from leakgauge.client.gradient_behind import (
    AVERAGE,
    DIRECTIONS,
    EXACT,
    SIGNS,
    gradient_behind,
    gradient_scale,
    step_scales,
)
from leakgauge.data import draw_victims
from leakgauge.models import load_model
from leakgauge.types import Client


def behind(net, batch, local):
    moved = fedavg(local)(net, batch, (0, 1)).tensors
    start = {n: p.detach() for n, p in net.named_parameters()}
    return gradient_behind(moved, start, local, batch.labels.shape[1])


@pytest.mark.parametrize(
    "text",
    [
        "lr=0.3",
        "momentum=0.9,dampening=0.5",
        "momentum=0.9,nesterov=true,weight_decay=0.01",
        "weight_decay=0.1",
        "accumulate=2,batch_size=2",
        "optimizer=adam,eps=0.1",
        "optimizer=adamw,eps=0.1,weight_decay=0.1",
        "optimizer=rmsprop,eps=0.1",
        "optimizer=adagrad,eps=0.1",
    ],
)
def test_one_step_gives_the_gradient_exactly(model, victims, text):
    net, batch = model(), victims(2, 4)
    found = behind(net, batch, Client.from_text(f"kind=fedavg,{text}"))
    assert found.quality == EXACT
    for name, expected in fedsgd()(net, batch, (0, 1)).tensors.items():
        torch.testing.assert_close(found.tensors[name], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "text", ["lr=1e-6", "lr=1e-6,momentum=0.9,weight_decay=0.01", "lr=1e-6,schedule=cosine", "lr=1e-6,proximal=1"]
)
def test_short_steps_give_the_mean_gradient(model, victims, text):
    """The path is short, so that the gradient is the same in all its steps."""
    net, batch = model(), victims(2, 4)
    found = behind(net, batch, Client.from_text(f"kind=fedavg,epochs=4,lr=1e-6,{text}"))
    assert found.quality == AVERAGE
    for name, expected in fedsgd()(net, batch, (0, 1)).tensors.items():
        torch.testing.assert_close(found.tensors[name], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("text", "quality"), [("", SIGNS), ("epochs=5", DIRECTIONS), ("weight_decay=0.01", SIGNS)])
@pytest.mark.parametrize("rule", ["adam", "adamw", "rmsprop", "adagrad"])
def test_adaptive_rules_leave_signs(model, victims, rule, text, quality):
    net, batch = model(), victims(2, 4)
    net, batch = net.float(), type(batch)(batch.inputs.float(), batch.labels)
    settings = {"kind": "fedavg", "optimizer": rule, "lr": 1e-3} | dict(
        part.split("=") for part in text.split(",") if part
    )
    found = behind(net, batch, Client.from_mapping(settings))
    assert found.quality == quality
    gradient = fedsgd()(net, batch, (0, 1)).tensors
    agree = torch.cat([(found.tensors[n].sign() == g.sign()).flatten() for n, g in gradient.items()])
    sizes = torch.cat([g.flatten().abs() for g in gradient.values()])
    assert float(agree[sizes > sizes.median()].double().mean()) > 0.9
    assert max(float(t.abs().max()) for t in found.tensors.values()) < 3


@pytest.mark.parametrize(
    "text", ["adam", "adamw,weight_decay=0.1", "adam,weight_decay=0.01", "rmsprop", "adagrad", "adam,shared_as=float16"]
)
def test_one_steps_bounds_hold_the_gradient(digits, text):
    """Small entries between two bounds that are close, large ones beyond one bound."""
    net, batch = load_model("mlp:hidden=32", digits.spec, 0), draw_victims(digits, 2, 3, 0)
    found = behind(net, batch, Client.from_text(f"kind=fedavg,lr=1e-2,optimizer={text}"))
    truth, close = fedsgd()(net, batch, (0, 1)).tensors, 0.0
    for name, entries in found.tensors.items():
        least, most = found.cells(name, entries)
        slack = 1e-4 * truth[name].abs() + 1e-10
        assert ((truth[name] >= least - slack) & (truth[name] <= most + slack)).double().mean() > 0.999
        close += float(((most - least) < 0.1 * truth[name].abs()).double().sum())
    if text in ("adam", "rmsprop"):
        assert close > 20


def test_an_update_that_something_else_acted_on_has_no_bounds(digits):
    net, batch = load_model("mlp:hidden=32", digits.spec, 0), draw_victims(digits, 2, 3, 0)
    local = Client.from_text("kind=fedavg,optimizer=adam")
    moved = {n: 1.5 * t for n, t in fedavg(local)(net, batch, (0, 1)).tensors.items()}
    found = gradient_behind(moved, {n: p.detach() for n, p in net.named_parameters()}, local, 3)
    assert (found.quality, found.cells) == (SIGNS, None)


@pytest.mark.parametrize("text", ["", "momentum=0.9,nesterov=true,weight_decay=0.1,proximal=0.3", "schedule=cosine"])
def test_scales_of_steps_add_up(text):
    local = Client.from_text(",".join(filter(None, ("kind=fedavg,epochs=3,batch_size=2,lr=0.2", text))))
    assert sum(step_scales(local, 5)) == pytest.approx(gradient_scale(local, 5))
    if not text:
        assert step_scales(local, 5) == pytest.approx([-0.2] * 9)


def test_known_control_variates_are_taken_off(model, victims, tmp_path):
    net, batch = model(), victims(2, 4)
    torch.save({n: torch.ones_like(p) for n, p in net.named_parameters()}, tmp_path / "c.pt")
    found = behind(net, batch, Client(kind="fedavg", momentum=0.5, control=str(tmp_path / "c.pt")))
    for name, expected in fedsgd()(net, batch, (0, 1)).tensors.items():
        torch.testing.assert_close(found.tensors[name], expected, rtol=1e-6, atol=1e-9)

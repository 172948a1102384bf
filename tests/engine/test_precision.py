"""float32 is float32: TF32 only if asked for. float64 is a type of number as well."""

import copy

import pytest
import torch

from leakgauge.client.fedavg import fedavg
from leakgauge.client.fedsgd import fedsgd
from leakgauge.data import draw_victims, load
from leakgauge.engine.losses import Scaled, averaged_over, cross_entropy
from leakgauge.engine.precision import autocast, dtype_of, in_precision, set_precision
from leakgauge.errors import BadInput
from leakgauge.models import load_model
from leakgauge.types import PRECISIONS, Client


@pytest.fixture(autouse=True)
def restored():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize(("precision", "rounded"), [("float32", False), ("tf32", True), ("float64", False)])
def test_both_kinds_of_product_follow(precision, rounded):
    set_precision(precision)
    assert torch.backends.cudnn.allow_tf32 is rounded
    assert torch.backends.cuda.matmul.allow_tf32 is rounded


def test_an_unknown_precision_is_refused():
    for ask in (set_precision, dtype_of):
        with pytest.raises(BadInput, match="did you mean 'float32'"):
            ask("float23")


def test_only_float64_has_another_type_of_number():
    types = {precision: dtype_of(precision) for precision in PRECISIONS}
    assert types == {"float32": torch.float32, "tf32": torch.float32, "float64": torch.float64}


# --- clients under autocast -----------------------------------------------------------------------------------------

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["lenet-dlg", "mlp", "resnet20:width=2"])
def test_a_gradient_under_autocast_is_torchs(digits, name, precision):
    net, batch = load_model(name, digits.spec, 0), draw_victims(digits, 2, 3, 0)
    found = fedsgd(Client(precision=precision))(net, batch, (0, 1)).tensors
    for t in range(2):
        worker = copy.deepcopy(net).eval()
        with torch.autocast("cpu", dtype=getattr(torch, precision)):
            loss = torch.nn.functional.cross_entropy(worker(batch.inputs[t]), batch.labels[t])
        scale = 2.0**10 if precision == "float16" else 1.0  # any that neither overflows nor loses small ones
        slopes = torch.autograd.grad(scale * loss, list(worker.parameters()))
        for mine, theirs in zip(found.values(), slopes, strict=True):
            size = float(theirs.norm() / scale)
            assert float((mine[t] - theirs / scale).norm()) <= (1e-6 if precision == "bfloat16" else 1e-3) * size


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_local_steps_under_autocast_are_torchs(digits, mode):
    net, batch = load_model("resnet20:width=2", digits.spec, 0), draw_victims(digits, 1, 4, 0)
    local = Client.from_text(f"kind=fedavg,epochs=3,lr=0.05,momentum=0.9,precision=bfloat16,batchnorm={mode}")
    found = fedavg(local)(net, batch, (0,)).tensors
    worker = copy.deepcopy(net)
    worker.train(mode == "train")
    optimiser = torch.optim.SGD(worker.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(worker(batch.inputs[0]), batch.labels[0])
        loss.backward()
        optimiser.step()
    before = dict(net.named_parameters())
    theirs = torch.cat([(p - before[n]).detach().flatten() for n, p in worker.named_parameters()])
    mine = torch.cat([t[0].flatten() for t in found.values()])
    assert float((mine - theirs).norm()) < 1e-6 * float(theirs.norm())


def test_small_gradients_of_float16_do_not_vanish():
    """Of 1e-6 times a loss nothing is left in float16 unless it is scaled."""
    layer, x = torch.nn.Linear(8, 3), torch.rand(4, 8)

    def small(output, _):
        return 1e-6 * output.float().square().mean()

    def gradients(loss):
        slope = torch.autograd.grad(loss(layer(x.half().float()), x), layer.weight)[0]
        return {"weight": slope}

    exact = gradients(small)["weight"]
    found = in_precision("float16", CPU, small, gradients)["weight"]
    torch.testing.assert_close(found, exact, rtol=1e-2, atol=0.01 * float(exact.abs().max()))
    with autocast("float16", CPU):
        lost = gradients(small)["weight"]
    assert float((lost - exact).abs().max()) > 0.05 * float(exact.abs().max())


def test_a_scale_under_which_gradients_overflow_is_halved():
    tried = []

    def gradients(loss):
        tried.append(loss.factor)
        slope = torch.full((2,), 40.0, dtype=torch.float16) * loss.factor  # overflows at 65,504
        return {"w": slope.float()}

    found = in_precision("float16", CPU, lambda o, _: o, gradients)
    torch.testing.assert_close(found["w"], torch.full((2,), 40.0))
    assert tried == [2.0**k for k in range(16, 9, -1)]


def test_in_parts_a_scaled_loss_weighs_as_the_loss_does():
    labels = torch.zeros(2, 5, dtype=torch.long)
    assert averaged_over(Scaled(cross_entropy, 8.0), labels).tolist() == [5, 5]
    assert averaged_over(Scaled(lambda o, _: o.mean(), 8.0), labels) is None

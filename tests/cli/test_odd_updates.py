"""Updates of odd types, shapes and sizes: each is audited or refused in one line, none is a crash."""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from leakgauge.data import load
from leakgauge.models import load_model

HOW_MANY = 500
TYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
FACTORS = (1e-45, 1e-30, 1e30, 1e38, float("inf"), float("nan"), 0.0)
SHAPES = ((0,), (1, 0, 3), (2**10,), ())


def odd(good: dict[str, torch.Tensor], g: random.Random) -> dict[str, torch.Tensor]:
    found = dict(good)
    for name in list(good) if g.random() < 0.3 else g.sample(list(good), 1):
        x = good[name]
        found |= g.choice(
            (
                lambda x=x, n=name: {n: x[None][:0]},
                lambda x=x, n=name: {n: x.to(g.choice(TYPES))},
                lambda x=x, n=name: {n: x * g.choice(FACTORS)},
                lambda x=x, n=name: {n: x.T.contiguous()},
                lambda x=x, n=name: {n: x.reshape(-1)},
                lambda x=x, n=name: {n: x.expand(g.choice((1, 2, 3)), *x.shape).contiguous()},
                lambda x=x, n=name: {f"{n}{g.choice(('.x', chr(27) + '[2J', ' ', '../' * 9))}": x.to(g.choice(TYPES))},
                lambda n=name: {n: torch.tensor(g.choice(FACTORS))},
                lambda n=name: {n: torch.zeros(g.choice(SHAPES))},
            )
        )()
        if g.random() < 0.1:
            found.pop(name)
    return found


def saved(tensors: dict[str, torch.Tensor], form: str) -> str:
    try:
        if form == "npz":
            np.savez("u.npz", **{n: x.numpy() for n, x in tensors.items()})
        elif form == "safetensors":
            save_file(tensors, "u.safetensors")
        else:
            torch.save(tensors, "u.pt")
        return f"u.{form}"
    except (TypeError, ValueError, LookupError, RuntimeError, OSError):  # a form that cannot hold it
        torch.save(tensors, "u.pt")
        return "u.pt"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_odd_updates_are_audited_or_refused_in_one_line(leakgauge):
    model, g = load_model("mlp:hidden=4", load("digits").spec, 0), random.Random(0)
    torch.save(model.state_dict(), "m.pt")
    good = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    came = {0: 0, 2: 0}
    for number in range(HOW_MANY):
        file = saved(odd(good, g), g.choice(("pt", "safetensors", "npz")))
        words = ["--model", "mlp:hidden=4", "--weights", "m.pt", "--data", "digits", "--update", file]
        done = leakgauge("attack", "linear", *words, "--out", "o")
        assert done.code in came, f"{number}: {done.err}"
        came[done.code] += 1
        if done.code == 2:
            assert len(done.err.strip().splitlines()) == 1, done.err
    assert min(came.values()) > HOW_MANY // 20

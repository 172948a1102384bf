"""`leakgauge train model`: the global model after some training, as a checkpoint for `--weights`."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import safetensors.torch
import typer

from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json, watching
from leakgauge.data import load
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput
from leakgauge.federation.rounds import accuracy, train
from leakgauge.models import load_model
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.setup.setup import pick_device
from leakgauge.types import Training


def train_model(
    model: Annotated[str, typer.Option("--model", help="NAME[:field=value,...], FILE.py:FACTORY ...")],
    data: Annotated[str, typer.Option("--data", help="NAME, FOLDER, FILE.npz or FILE.py:FACTORY.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write, FILE.safetensors.")],
    training: options.TRAINING = None,
    weights: Annotated[str | None, typer.Option("--weights", help="A checkpoint to begin from.")] = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    as_json: options.JSON = False,
) -> int:
    """Train a model on the public part of the data, by a transformation policy if --training names one. Resumable.

    Example: `leakgauge train model --model mlp --data digits --training rounds=20,policy=3-1-7 --out net.safetensors`
    """
    chosen = Training.from_text(training) if training else Training(rounds=300)
    if out.suffix != ".safetensors":
        raise BadInput("--out", allowed="a .safetensors file", got=str(out), do=f"write {out.stem}.safetensors")
    where, number = pick_device(device), seed or 0
    set_precision("float32")
    public, test = load(data, "train", data_root), load(data, "test", data_root)
    net = load_model(model, public.spec, number, weights).to(where)
    make_folder(out.parent)  # a place that cannot be written is found now, not after an hour
    key = key_of(model=model, data=data, training=chosen.as_dict(), weights=weights, seed=number)[:8]
    kept = out.with_name(f".{out.stem}-{key}.training")  # the state of this training and no other
    began = time.perf_counter()
    try:
        with watching() as watch:
            net = train(
                net,
                public,
                chosen,
                number,
                kept=kept,
                watch=lambda done: watch(done - 1, chosen.rounds, "rounds of training", 1.0),
            )
    except KeyboardInterrupt:
        say("leakgauge: interrupted; the same command goes on from what was last kept beside the file to be written")
        return 130
    right = accuracy(net, test)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    write_whole(out, safetensors.torch.save(tensors))
    with suppress(OSError):  # the same command would go on from it, and has nothing left to do
        kept.unlink(missing_ok=True)
    result = {
        "file": str(out),
        "model": model,
        "data": data,
        "training": chosen.as_dict(),
        "seed": number,
        "accuracy": right,
        "tested": len(test),
        "seconds": time.perf_counter() - began,
        "device": where.type,
    }
    if as_json:
        show_json(result)
    else:
        tested = f"Test accuracy {right:.3f} on {len(test):,} samples"
        show(f"{tested} after {chosen.rounds:,} rounds; {result['seconds']:.0f} s")
        show(f"Use it: leakgauge attack inverting-gradients --model {model} --data {data} --weights {out}")
    return 0

"""`leakgauge train model`: the global model after some training, as a checkpoint for `--weights`."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch

from leakgauge.cli.console import deliver, say, show, watching
from leakgauge.cli.options import TRAINING, Common, flag, flags_from, required
from leakgauge.data import load
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput
from leakgauge.federation.rounds import accuracy, train
from leakgauge.models import load_model
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.reading.keys import key_of
from leakgauge.setup.setup import pick_device
from leakgauge.types import Training


@dataclass(frozen=True, kw_only=True)
class ModelFlags(Common):
    """The options of `leakgauge train model`."""

    model: str = required("NAME[:field=value,...], FILE.py:FACTORY ...")
    data: str = required("NAME, FOLDER, FILE.npz or FILE.py:FACTORY.")
    out: Path = required("The file to write, FILE.safetensors.")
    training: TRAINING = None
    weights: str | None = flag("A checkpoint to begin from.")


@flags_from(ModelFlags)
def train_model(given: ModelFlags) -> int:
    """Train a model on the public part of the data, by a transformation policy if --training names one. Resumable.

    Example: `leakgauge train model --model mlp --data digits --training rounds=20,policy=3-1-7 --out net.safetensors`
    """
    chosen = Training.from_text(given.training) if given.training else Training(rounds=300)
    out, device, seed = given.out, pick_device(given.device), given.seed or 0
    if out.suffix != ".safetensors":
        raise BadInput("--out", allowed="a .safetensors file", got=str(out), do=f"write {out.stem}.safetensors")
    set_precision("float32")
    public, test = (load(given.data, part, given.data_root) for part in ("train", "test"))
    net = load_model(given.model, public.spec, seed, given.weights).to(device)
    make_folder(out.parent)  # a place that cannot be written is found now, not after an hour
    what = {"model": given.model, "data": given.data, "training": chosen.as_dict(), "seed": seed}
    kept = out.with_name(f".{out.stem}-{key_of(**what, weights=given.weights)[:8]}.training")  # of this training alone
    began = time.perf_counter()
    try:
        with watching() as watch:

            def step(done: int) -> None:
                watch(done - 1, chosen.rounds, "rounds of training", 1.0)

            net = train(net, public, chosen, seed, kept=kept, watch=step)
    except KeyboardInterrupt:
        say("leakgauge: interrupted; give the same command again to resume")
        return 130
    right = accuracy(net, test)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    write_whole(out, safetensors.torch.save(tensors))
    with suppress(OSError):  # the same command would go on from it, and has nothing left to do
        kept.unlink(missing_ok=True)
    seconds = time.perf_counter() - began
    measured = {"accuracy": right, "tested": len(test), "seconds": seconds, "device": device.type}

    def shown() -> None:
        show(f"Test accuracy {right:.3f} on {len(test):,} samples after {chosen.rounds:,} rounds; {seconds:.0f} s")
        named = f"--model {given.model} --data {given.data} --weights {out}"
        show(f"Use it: leakgauge attack inverting-gradients {named}")

    deliver({"file": str(out)} | what | measured, given.as_json, shown)
    return 0

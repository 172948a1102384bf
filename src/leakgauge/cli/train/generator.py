"""`leakgauge train generator`: a generator for ggl and gias, from the public part of a data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import leakgauge
from leakgauge.cli.console import deliver, progress_bar, say, show
from leakgauge.cli.options import Common, flag, flags_from, required
from leakgauge.data import Dataset, load
from leakgauge.engine.precision import set_precision
from leakgauge.errors import BadInput
from leakgauge.generators.architecture import WIDTH_STEP, Architecture, Decoder
from leakgauge.generators.generator import fingerprints
from leakgauge.generators.saving import Origin, save_generator
from leakgauge.generators.training import Schedule, train
from leakgauge.reading.files import make_folder, write_whole
from leakgauge.report.pictures import sheet_png
from leakgauge.setup.setup import pick_device

_SHOWN = 8  # pictures per label on the sheet, ten labels at most
_PIECE = 4096  # samples hashed at a time


@dataclass(frozen=True, kw_only=True)
class GeneratorFlags(Common):
    """The options of `leakgauge train generator`."""

    data: str = required("NAME, FOLDER, FILE.npz or FILE.py:FACTORY; pictures.")
    out: Path = required("The file to write, FILE.safetensors.")
    steps: int = flag("Training steps.", default=Schedule.steps)
    batch_size: int = flag("Samples in a step.", default=Schedule.batch_size)
    lr: float = flag("Largest step length.", default=Schedule.lr)
    noise: float = flag("What a pixel may differ by: less draws more, more draws properly.", default=Schedule.noise)
    latent: int = flag("Numbers behind a picture.", default=Architecture.latent)
    width: int = flag("Channels of the last layer.", default=Architecture.width)


@flags_from(GeneratorFlags)
def train_generator(given: GeneratorFlags) -> int:
    """Train a generator on the public part of the data, of which no victim is drawn. Ctrl-C keeps what it has learnt.

    Example: `leakgauge train generator --data digits --out digits.safetensors --steps 300`
    """
    _check(given)
    schedule = Schedule(given.steps, given.batch_size, given.lr, given.noise, given.seed or 0)
    device = pick_device(given.device)
    set_precision("float32")
    public = load(given.data, "train", given.data_root)
    if public.spec.kind != "image":
        raise BadInput("data", allowed="pictures", got=f"the table {given.data!r}", do="use other data")
    channels, height, width = public.spec.shape
    plan = Architecture((channels, height, width), public.spec.classes, given.latent, given.width)
    make_folder(given.out.parent)  # a place that cannot be written is found now, not after an hour
    began = time.perf_counter()
    with _watching(given.steps) as (watch, last):
        decoder, done = train(plan, public.take, len(public), schedule, device, watch)
    seconds = time.perf_counter() - began
    origin = Origin(given.data, "train", len(public), done, schedule.seed, leakgauge.__version__)
    digest = save_generator(given.out, decoder, origin, _seen(public))
    sheet = given.out.with_suffix(".png")
    write_whole(sheet, _sheet(decoder, schedule.seed))
    result = {"file": str(given.out), "sheet": str(sheet), "data": given.data, "samples": len(public), "steps": done}
    result |= {"seed": schedule.seed, "mse": last[0], "kl": last[1], "seconds": seconds, "device": device.type}
    result |= {"parameters": sum(p.numel() for p in decoder.parameters()), "sha256": digest}

    def shown() -> None:
        samples = f"trained on {len(public)} public samples of {given.data} in {seconds:.0f} s"
        show(f"{samples}; mean squared error {last[0]:.4f}")
        show(f"Generator: {given.out}")
        show(f"Pictures: {sheet}")
        show(f"Use it: leakgauge attack ggl --data {given.data} --generator {given.out}")

    deliver(result, given.as_json, shown)
    if done < given.steps:
        say(f"leakgauge: interrupted after step {done} of {given.steps}; the generator is written as it was then")
        return 130
    return 0


def _check(given: GeneratorFlags) -> None:
    if given.out.suffix != ".safetensors":
        got = repr(str(given.out))
        raise BadInput("--out", allowed="FILE.safetensors", got=got, do="end its name in .safetensors")
    do = "choose a value in that range"
    for name, count in (("--steps", given.steps), ("--batch-size", given.batch_size), ("--latent", given.latent)):
        if count < 1:
            raise BadInput(name, allowed="at least 1", got=count, do=do)
    for name, number in (("--lr", given.lr), ("--noise", given.noise)):
        if not 0 < number < float("inf"):
            raise BadInput(name, allowed="above 0", got=number, do=do)
    if given.width < WIDTH_STEP or given.width % WIDTH_STEP:
        raise BadInput("--width", allowed=f"a multiple of {WIDTH_STEP}", got=given.width, do="choose a multiple")


def _seen(public: Dataset) -> torch.Tensor:
    pieces = [range(begin, min(begin + _PIECE, len(public))) for begin in range(0, len(public), _PIECE)]
    return torch.cat([fingerprints(public.take(piece)[0]) for piece in pieces])


def _sheet(decoder: Decoder, seed: int) -> bytes:
    """A row of pictures for each label."""
    labels = torch.arange(min(10, decoder.plan.classes)).repeat_interleave(_SHOWN)
    latents = torch.randn(len(labels), decoder.plan.latent, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return sheet_png(decoder(latents, labels))


@contextmanager
def _watching(steps: int) -> Iterator[tuple[Callable[[int, float, float], None], list[float]]]:
    """A bar with the error on a terminal, ten lines elsewhere; both on stderr. Also gives the last error and KL."""
    last = [0.0, 0.0]
    with progress_bar() as bar:
        task = bar.add_task("training", total=steps)

        def watch(step: int, error: float, divergence: float) -> None:
            last[:] = error, divergence
            words = f"step {step} of {steps}: error {error:.4f}, KL {divergence:.1f}"
            bar.update(task, completed=step, description=words)
            if not sys.stderr.isatty() and (step == steps or step % max(1, steps // 10) == 0):
                say(words)

        yield watch, last

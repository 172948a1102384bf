"""`leakgauge train generator`: a generator for ggl and gias, from the public part of a data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import leakgauge
from leakgauge.cli import options
from leakgauge.cli.console import say, show, show_json
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


def train_generator(
    data: Annotated[str, typer.Option("--data", help="NAME, FOLDER, FILE.npz or FILE.py:FACTORY; pictures.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write, FILE.safetensors.")],
    steps: Annotated[int, typer.Option("--steps", help="Training steps.")] = Schedule.steps,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Samples in a step.")] = Schedule.batch_size,
    lr: Annotated[float, typer.Option("--lr", help="Largest step length.")] = Schedule.lr,
    noise: Annotated[
        float, typer.Option("--noise", help="What a pixel may differ by: less draws more, more draws properly.")
    ] = Schedule.noise,
    latent: Annotated[int, typer.Option("--latent", help="Numbers behind a picture.")] = Architecture.latent,
    width: Annotated[int, typer.Option("--width", help="Channels of the last layer.")] = Architecture.width,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    as_json: options.JSON = False,
) -> int:
    """Train a generator on the public part of the data, of which no victim is drawn. Ctrl-C keeps what it has learnt.

    Example: `leakgauge train generator --data digits --out digits.safetensors --steps 300`
    """
    schedule = Schedule(steps, batch_size, lr, noise, seed or 0)
    _check(out, schedule, latent, width)
    where = pick_device(device)
    set_precision("float32")
    public = load(data, "train", data_root)
    if public.spec.kind != "image":
        raise BadInput("data", allowed="pictures", got=f"the table {data!r}", do="use other data")
    channels, height, wide = public.spec.shape
    plan = Architecture((channels, height, wide), public.spec.classes, latent, width)
    make_folder(out.parent)  # a place that cannot be written is found now, not after an hour
    began = time.perf_counter()
    with _watching(steps) as (watch, last):
        decoder, done = train(plan, public.take, len(public), schedule, where, watch)
    seconds = time.perf_counter() - began
    origin = Origin(data, "train", len(public), done, schedule.seed, leakgauge.__version__)
    digest = save_generator(out, decoder, origin, _seen(public))
    sheet = out.with_suffix(".png")
    write_whole(sheet, _sheet(decoder, schedule.seed))
    error, divergence = last
    result = {
        "file": str(out),
        "sheet": str(sheet),
        "data": data,
        "samples": len(public),
        "steps": done,
        "seed": schedule.seed,
        "mse": error,
        "kl": divergence,
        "seconds": seconds,
        "device": where.type,
        "parameters": sum(p.numel() for p in decoder.parameters()),
        "sha256": digest,
    }
    if as_json:
        show_json(result)
    else:
        _show(result)
    if done < steps:
        say(f"leakgauge: interrupted after step {done} of {steps}; the generator is written as it was then")
        return 130
    return 0


def _show(result: Mapping[str, Any]) -> None:
    show(
        "trained on {samples} public samples of {data} in {seconds:.0f} s; mean squared error {mse:.4f}".format(
            **result
        )
    )
    show("Generator: {file}".format(**result))
    show("Pictures: {sheet}".format(**result))
    show("Use it: leakgauge attack ggl --data {data} --generator {file}".format(**result))


def _check(out: Path, schedule: Schedule, latent: int, width: int) -> None:
    if out.suffix != ".safetensors":
        raise BadInput("--out", allowed="FILE.safetensors", got=repr(str(out)), do="end its name in .safetensors")
    for what, value in (("--steps", schedule.steps), ("--batch-size", schedule.batch_size), ("--latent", latent)):
        if value < 1:
            raise BadInput(what, allowed="at least 1", got=value, do="choose a value in that range")
    for what, number in (("--lr", schedule.lr), ("--noise", schedule.noise)):
        if not 0 < number < float("inf"):
            raise BadInput(what, allowed="above 0", got=number, do="choose a value in that range")
    if width < WIDTH_STEP or width % WIDTH_STEP:
        raise BadInput("--width", allowed=f"a multiple of {WIDTH_STEP}", got=width, do="choose a multiple")


def _seen(public: Dataset) -> torch.Tensor:
    pieces = [range(begin, min(begin + _PIECE, len(public))) for begin in range(0, len(public), _PIECE)]
    return torch.cat([fingerprints(public.take(piece)[0]) for piece in pieces])


def _sheet(decoder: Decoder, seed: int) -> bytes:
    """A row of pictures for each label."""
    count = min(10, decoder.plan.classes)
    labels = torch.arange(count).repeat_interleave(_SHOWN)
    latents = torch.randn(len(labels), decoder.plan.latent, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return sheet_png(decoder(latents, labels))


@contextmanager
def _watching(steps: int) -> Iterator[tuple[Callable[[int, float, float], None], list[float]]]:
    """A bar with the error on a terminal, ten lines elsewhere; both on stderr. Also gives the last error and KL."""
    last = [0.0, 0.0]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    live = sys.stderr.isatty()
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=not live
    ) as bar:
        task = bar.add_task("training", total=steps)

        def watch(step: int, error: float, divergence: float) -> None:
            last[:] = error, divergence
            told = f"step {step} of {steps}: error {error:.4f}, KL {divergence:.1f}"
            bar.update(task, completed=step, description=told)
            if not live and (step == steps or step % max(1, steps // 10) == 0):
                say(told)

        yield watch, last

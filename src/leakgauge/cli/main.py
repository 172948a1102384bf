"""Entry point: parse, run, and turn every expected failure into one clear line and an exit code.

0 fine, 1 the gate failed (it leaks) or a model is tampered with, 2 bad input, 70 a defect of ours, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import click
import typer

from leakgauge.cli.commands import KEPT, KEPT_IN_OUT, Commands, meant
from leakgauge.cli.console import say, say_lines
from leakgauge.errors import LeakgaugeError

UNFORESEEN = 70  # what sysexits.h calls an internal software error
_LONGEST = 400  # characters of an unforeseen error

app = typer.Typer(
    cls=Commands,
    help="Measure what a federated-learning update gives away.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import leakgauge

        typer.echo(f"leakgauge {leakgauge.__version__}")
        raise typer.Exit


DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; works behind any command.")]
VERSION = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")]


@app.callback()
def _everywhere(debug: DEBUG = False, version: VERSION = False) -> None:
    """Measure what a federated-learning update gives away."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [a for a in given if a != "--debug"]
    try:
        # Not through typer's own main, which turns an interrupt into an exit code before anybody can say a word.
        command = typer.main.get_command(app)
        with command.make_context("leakgauge", given.copy()) as context:
            code = command.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:  # --help and --version
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # bare `leakgauge` or `leakgauge attack`
        say_lines(error.format_message())
        return 2
    except click.ClickException as error:
        _show_traceback(debug)
        hint = getattr(getattr(error, "ctx", None), "command_path", "leakgauge")
        say(f"leakgauge: {_one_line(error.format_message())} (see '{hint} --help')")
        return 2
    except LeakgaugeError as error:
        _show_traceback(debug)
        say(f"leakgauge: {_one_line(str(error))}")
        return 2
    except (KeyboardInterrupt, click.exceptions.Abort):
        say(f"leakgauge: interrupted; {_what_is_kept(given)}")
        return 130
    except BrokenPipeError:  # the reader of our output went away
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except Exception as error:  # nobody foresaw it; 1 would say that a gate failed
        _show_traceback(debug)
        from leakgauge.engine.memory import is_out_of_memory

        if is_out_of_memory(error):
            error.__traceback__ = error.__context__ = None  # what they hold is what is short
            remedy = "take a smaller --batch-size, fewer --trials, a smaller model, or give the process more"
            say(f"leakgauge: memory must be enough for this, got {_free():.1f} GiB free; {remedy}")
            return 2
        what = _one_line(f"{type(error).__name__}: {error}")[:_LONGEST]
        say(f"leakgauge: unforeseen {what}; please report it with what --debug shows behind the same command")
        return UNFORESEEN


def _free() -> float:
    """GiB that can still be had; none where not even that can be found out."""
    import torch

    from leakgauge.engine.memory import free_bytes

    try:
        return free_bytes(torch.device("cpu")) / 2**30
    except MemoryError:
        return 0.0


def _show_traceback(wanted: bool) -> None:
    """Of the current error, with nothing in it that a terminal would obey."""
    if wanted:
        say_lines(traceback.format_exc().rstrip())


def _what_is_kept(given: Sequence[str]) -> str:
    """For commands that do not say it themselves."""
    keeps = getattr(meant(given), "keeps", "")
    if keeps == KEPT or (keeps == KEPT_IN_OUT and any(a.partition("=")[0] == "--out" for a in given)):
        return "what was finished is kept: give the same command again to resume"
    return "nothing was kept" + ("; with --out it would be" if keeps == KEPT_IN_OUT else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())

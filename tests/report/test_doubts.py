"""Doubts for those who did not build the system: what each is about, and no advice for developers."""

import dataclasses
import re

import pytest

from leakgauge.report.doubts import about, doubts, plain
from leakgauge.types import Flag
from leakgauge.verdict.flags import FLAGS

ADVICE = re.compile(r"--\w|`|\+labels|leakgauge |steps|restarts|raise |repeat with|try ")


def flagged(report, *cells):
    """The same audit with a flag on these rows."""
    rows = tuple(
        dataclasses.replace(r, flags=("diverged",) if (r.attack, r.defense) in cells else ()) for r in report.summary
    )
    return dataclasses.replace(report, summary=rows, flags=(FLAGS["diverged"],))


@pytest.mark.parametrize("flag", FLAGS)
def test_no_doubt_gives_advice_to_developers(flag):
    assert not ADVICE.search(plain(FLAGS[flag]))


def test_a_doubt_begins_with_the_configuration_and_the_attack_it_is_about(made):
    (said,) = doubts(flagged(made.report, ("dlg", "gaussian:std=0.1")))
    assert said.startswith("With gaussian:std=0.1 (dlg not knowing of it): the attack broke down")
    (said,) = doubts(flagged(made.report, ("inverting-gradients", "gaussian:std=0.1")))
    assert said.startswith("With gaussian:std=0.1 (inverting-gradients knowing of it): ")
    (said,) = doubts(flagged(made.report, ("dlg", "none")))
    assert said.startswith("Without any defense (dlg): ")


def test_a_doubt_about_every_attack_says_so_once(made):
    both = flagged(made.report, ("dlg", "none"), ("inverting-gradients", "none"), ("dlg", "gaussian:std=0.1"))
    where = "Without any defense (every attack) and with gaussian:std=0.1 (dlg not knowing of it)"
    assert about(both, "diverged") == where
    assert about(made.report, "bound-exceeded") == "The whole audit"


def test_a_flag_without_plain_words_keeps_its_reason(made):
    assert plain(Flag("new", "Something new.", "Use --this.")) == "Something new"
    assert doubts(made.report) == ["With gaussian:std=0.1 (every attack): Noise without an accountant."]

"""What it gains each attack to know each defense."""

from __future__ import annotations

import pytest

from leakgauge import catalog
from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.labels import Labels
from leakgauge.attacks.mean_image import MeanImage
from leakgauge.defenses.clip import Clip
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.defenses.prune import Prune
from leakgauge.servers.mkor import MKOR
from leakgauge.setup.capability import INFORMED, NO_HELP, NO_RULE, VERDICTS, Capability, capabilities, capability
from leakgauge.setup.plan import informed_by


def test_every_attack_has_a_word_on_every_defense():
    table = capabilities()
    assert list(table) == list(catalog.find("attacks"))
    for row in table.values():
        assert list(row) == list(catalog.find("defenses"))
        assert {cell.verdict for cell in row.values()} <= set(VERDICTS)


@pytest.mark.parametrize(
    ("attack", "defense", "expected"),
    [
        (DLG(), Prune(), Capability(INFORMED, ("",))),
        (DLG(), KeyLock(), Capability(INFORMED, ("joint", "behind the lock"))),
        (MeanImage(), Prune(), Capability(NO_HELP)),
        (MKOR(), Clip(), Capability(NO_HELP)),
        (Labels(), Prune(), Capability(NO_RULE)),
    ],
)
def test_informed_or_no_help_or_no_rule(attack, defense, expected):
    assert capability(attack, defense) == expected


def test_informed_is_what_an_audit_plays():
    for name, row in capabilities().items():
        attack = catalog.get("attacks", name)()
        if not attack.baseline:
            for defense, cell in row.items():
                played = informed_by(attack, [catalog.get("defenses", defense)()])
                assert [known.way for (known,) in filter(None, played)] == list(cell.ways)

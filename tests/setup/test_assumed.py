"""A chain that informed attackers take for the true one, and the ways that only it can name."""

from __future__ import annotations

import pytest

from leakgauge.attacks.dlg import DLG
from leakgauge.defenses.key_lock import KeyLock
from leakgauge.defenses.precode import Precode
from leakgauge.errors import BadInput
from leakgauge.setup.plan import parse_assumed, plan
from leakgauge.types import Known, Scenario


def informed(**more):
    cells = plan(Scenario(**{"attacks": ("dlg",), **more}), undefended=False)
    return [(c.label, c.known) for c in cells if c.adaptive]


def test_a_chain_with_ways_is_parsed_in_the_order_written():
    defenses, ways = parse_assumed("precode@taken as zero+key-lock+key-lock:length=8@joint, not stretched")
    assert defenses == (Precode(), KeyLock(), KeyLock(length=8))
    assert ways == ("taken as zero", None, "joint, not stretched")


@pytest.mark.parametrize(
    ("defense", "way"),
    [(Precode(), "taken as zero"), (KeyLock(), "joint, not stretched"), (KeyLock(), "behind the lock, not stretched")],
)
def test_a_weaker_way_is_played_by_who_asks_for_it_alone(defense, way):
    assert way in defense.weaker_ways(DLG())
    assert way not in defense.ways(DLG())
    assert informed(defenses=(defense.name,), assume=f"{defense.name}@{way}") == [
        (f"dlg ({way})", (Known(defense, way),))
    ]


def test_a_defense_may_be_assumed_where_there_is_none():
    assert informed(assume="prune") != []
    assert informed() == []


def test_an_attack_without_the_way_uses_what_it_knows_as_ever():
    found = dict(informed(attacks=("dlg", "linear"), defenses=("soteria",), assume="soteria@visible columns"))
    assert set(found) == {"dlg (visible columns)", "linear"}


def test_a_way_that_no_attack_has_is_refused():
    with pytest.raises(BadInput, match="these attacks have no ways with a name"):
        informed(attacks=("linear",), defenses=("soteria",), assume="soteria@visible columns")

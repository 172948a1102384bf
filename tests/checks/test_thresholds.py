"""Every check has its threshold, in one place, and no threshold is left over."""

from __future__ import annotations

import dataclasses

from leakgauge.checks import Thresholds
from leakgauge.checks.inspection import checks


def test_every_check_has_one_and_every_one_has_a_check():
    used = {check.field for check in checks().values()} | {check.severe for check in checks().values()} - {""}
    assert used == {field.name for field in dataclasses.fields(Thresholds)}


def test_are_settings_that_can_be_changed_by_text():
    assert Thresholds.from_text("drift=2").drift == 2

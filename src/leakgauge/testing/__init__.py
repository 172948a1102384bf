"""The contract of attacks and defenses, to run on your own: an AssertionError says in one line what does not hold."""

from leakgauge.testing.attack_checks import check_attack
from leakgauge.testing.defense_checks import check_defense

__all__ = ["check_attack", "check_defense"]

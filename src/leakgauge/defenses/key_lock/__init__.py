"""FedKL's key-lock, how an attacker who knows it undoes it, and how a shared gradient gives the key away."""

from leakgauge.defenses.key_lock.defense import KeyLock

__all__ = ["KeyLock"]

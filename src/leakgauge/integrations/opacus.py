"""Opacus' optimiser, recognised as the defense it is, with what it has promised so far.

    recognised = dp_sgd_of(optimizer, privacy_engine.accountant, delta=1e-5)
    recognised.defense.spec      # dp-sgd:norm=..., for --defense
    recognised.guarantee         # epsilon of the steps taken until now, or None

The promise rests on Opacus' account of its sampling: a loader that does not draw every sample independently with the
rate that its accountant was given is accounted as if it did.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from leakgauge.defenses.dp_sgd import DPSGD
from leakgauge.errors import BadInput, MissingExtra, NotApplicable
from leakgauge.types import Guarantee

_OWN = {"rdp": "opacus-rdp", "prv": "prv"}  # Opacus' accountants that bound epsilon from above, by our names
_UNLIKE = ("AdaClip", "PerLayer")  # optimisers that move their bound, or clip every layer for itself


@dataclass(frozen=True)
class Recognised:
    """The defense as audits know it, and what was promised for the steps taken."""

    defense: DPSGD
    guarantee: Guarantee | None
    steps: int  # noised steps that the accountant has seen
    note: str = ""  # what the defense cannot say in its fields


def dp_sgd_of(optimizer: Any, accountant: Any = None, delta: float = 1e-5) -> Recognised:
    """`optimizer` is what `PrivacyEngine.make_private` returned; without its accountant nothing is promised."""
    _refuse_others(optimizer)
    norm, sigma = float(optimizer.max_grad_norm), float(optimizer.noise_multiplier)
    history = list(getattr(accountant, "history", []))
    steps = sum(count for _, _, count in history)
    kind = "rdp" if accountant is None else _OWN.get(type(accountant).mechanism(), "rdp")
    if len(history) == 1 and math.isclose(history[0][0], sigma):
        _, rate, rounds = history[0]
        defense = DPSGD(norm=norm, sigma=sigma, q=float(rate), rounds=int(rounds), delta=delta, accountant=kind)
        mechanism = type(accountant).mechanism()
        bounded = f"Opacus' {mechanism} accountant gives no upper bound; accounted here by our own RDP bound"
        return Recognised(defense, defense.guarantee(), steps, "" if mechanism in _OWN else bounded)
    defense = DPSGD(norm=norm, sigma=sigma, delta=delta, accountant=kind)
    if not history:
        return Recognised(defense, None, 0, "no step accounted yet: nothing is promised")
    note = "noise or sampling rate changed along the way: q and rounds are not said, epsilon is Opacus' own"
    if kind == "rdp":
        return Recognised(defense, None, steps, "a changing history under an accountant that gives no upper bound")
    with warnings.catch_warnings():  # it says when the best order is the last it tried; the bound holds all the same
        warnings.simplefilter("ignore")
        spent = float(accountant.get_epsilon(delta=delta))
    return Recognised(defense, Guarantee(spent, delta, DPSGD.unit), steps, note)


def _refuse_others(optimizer: Any) -> None:
    try:
        from opacus.optimizers import DPOptimizer
    except ImportError as error:
        raise MissingExtra("dp_sgd_of needs the package opacus; run: pip install 'leakgauge[privacy]'") from error
    name = type(optimizer).__name__
    if not isinstance(optimizer, DPOptimizer):
        allowed = "what Opacus' PrivacyEngine.make_private returned"
        raise BadInput("optimizer", allowed=allowed, got=name, do="give that one")
    if any(word in name for word in _UNLIKE) or not isinstance(optimizer.max_grad_norm, (int, float)):
        raise NotApplicable(
            f"{name} does not clip each sample's whole gradient to one fixed bound, which dp-sgd stands for; "
            "record its updates and attack them without a defense's name"
        )

"""What every attack must hold to, whoever wrote it: the folder is walked, a new file is covered by itself.

The checks are those that users run on an attack of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from leakgauge import catalog
from leakgauge.settings import plain_type
from leakgauge.testing import _must as must
from leakgauge.testing import attack_checks as checks
from leakgauge.testing.attack_checks import AttackCase, attack_case, shortened
from leakgauge.types import Attack, Fact, TamperingServer

ATTACKS = catalog.find("attacks")
Cases = Callable[[str], AttackCase]
MOST_FIELDS = {"dlg": 15, "inverting-gradients": 17}
SAID_BY_DEFENSES = """
skip bottleneck unlock stretch unmix policy undo repeats repeat_lr compression clipping noise_std noise_on noised_slices
clients match_nonzero read_dropout combine fit_scale coefficients
"""
every_attack = pytest.mark.parametrize("name", ATTACKS)


@pytest.fixture(scope="module")
def case() -> Cases:
    """The attack against lenet-dlg, mlp or vit, the first that fits, told exactly what it needs. Kept."""
    kept: dict[str, AttackCase] = {}

    def cached(name: str) -> AttackCase:
        if name not in kept:
            kept[name] = attack_case(shortened(ATTACKS[name]()))
        return kept[name]

    return cached


@every_attack
def test_describes_itself(name: str) -> None:
    attack = ATTACKS[name]
    must.describe_itself(attack)
    assert attack.name == name
    assert isinstance(attack.needs, frozenset)
    assert all(isinstance(fact, Fact) for fact in attack.needs)
    assert f"leakgauge attack {name}" in attack.__doc__


@every_attack
def test_has_few_fields_and_none_for_a_defense(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(ATTACKS[name])}
    assert len(fields) <= MOST_FIELDS.get(name, 17)
    if name != "mkor":  # there `noise_on` says where the server puts noise of its own
        assert not fields & set(SAID_BY_DEFENSES.split())


@every_attack
def test_claims_have_one_row_per_trial_and_finite_numbers(name: str, case: Cases) -> None:
    checks.claims_have_one_row_per_trial(case(name))


@every_attack
def test_same_seed_gives_the_same_result(name: str, case: Cases) -> None:
    checks.same_seed_gives_the_same_result(case(name))


@every_attack
def test_trials_together_equal_trials_alone(name: str, case: Cases) -> None:
    checks.trials_together_equal_trials_alone(case(name))


@every_attack
def test_inputs_and_global_randomness_stay_untouched(name: str, case: Cases) -> None:
    checks.what_it_is_given_stays_as_it_was(case(name))


@pytest.mark.parametrize(("name", "fact"), [(n, f) for n, a in ATTACKS.items() for f in sorted(a.needs, key=str)])
def test_refuses_and_names_a_hidden_fact(name: str, fact: Fact, case: Cases) -> None:
    checks.refuses_without(case(name), fact)


@every_attack
def test_refuses_a_wrong_number_of_seeds(name: str, case: Cases) -> None:
    checks.a_wrong_number_of_seeds_is_refused(case(name))


@every_attack
def test_informed_of_a_defense_it_holds_to_the_same(name: str, case: Cases) -> None:
    checks.an_informed_attack_holds_to_the_same(case(name))


@every_attack
def test_settings_survive_text_and_json(name: str) -> None:
    attack = ATTACKS[name]()
    assert attack.spec == name
    for changed in (attack, shortened(attack), *one_field_changed(attack)):
        assert catalog.build("attacks", changed.spec) == changed
        must.survive_writing(changed)


def one_field_changed(attack: Attack) -> list[Attack]:
    """For each field the attack with another allowed value."""
    variants = []
    for field in dataclasses.fields(attack):
        value = getattr(attack, field.name)
        if field.metadata["choices"]:
            other: Any = next(c for c in (*field.metadata["choices"], value) if c != value)
        elif isinstance(value, bool):
            other = not value
        elif plain_type(type(attack), field.name) is int:
            other = (value or 0) + 1
        elif plain_type(type(attack), field.name) is str:
            other = f"{value}x"
        else:
            other = (value or 1e-7) / 3
        variants.append(dataclasses.replace(attack, **{field.name: other}))
    return variants


@pytest.mark.parametrize("name", [n for n, a in ATTACKS.items() if issubclass(a, TamperingServer)])
def test_tampering_server_leaves_the_model_it_is_given_alone(name: str, case: Cases) -> None:
    checks.a_tampering_server_leaves_the_model_it_is_given_alone(case(name))

"""Which attacks meet which configurations: floors first, each defense with its adaptive attacks."""

import pytest

from leakgauge.attacks.dlg import DLG
from leakgauge.attacks.ggl import GGL
from leakgauge.attacks.linear import Linear
from leakgauge.defenses.gaussian import Gaussian
from leakgauge.defenses.prune import Prune
from leakgauge.defenses.soteria import Soteria
from leakgauge.errors import BadInput
from leakgauge.setup.plan import OnDecoy, configurations, informed_by, parse_chain, plan
from leakgauge.setup.suites import played_in
from leakgauge.types import Known, Scenario, TamperingServer


def cells(scenario: Scenario, *args, **kwargs):
    return [(c.attack.name, c.defense, c.adaptive) for c in plan(scenario, *args, **kwargs)]


def test_floors_come_first_then_the_undefended_update_then_each_defense_twice():
    assert cells(Scenario(attacks=("dlg",), defenses=("prune",))) == [
        ("mean-image", "none", False),
        ("random-guess", "none", False),
        ("dlg", "none", False),
        ("dlg", "prune", False),
        ("dlg", "prune", True),
    ]


def test_plain_or_adaptive_alone_can_be_asked_for():
    plain, adaptive = (
        cells(Scenario(attacks=("dlg",), defenses=("prune",), variants=v)) for v in ("plain", "adaptive")
    )
    assert not any(informed for _, _, informed in plain)
    assert ("dlg", "prune", False) not in adaptive
    assert ("dlg", "prune", True) in adaptive
    assert ("dlg", "none", False) in adaptive


def test_the_comparison_can_be_left_out_but_never_everything():
    scenario = Scenario(attacks=("dlg",), defenses=("prune",))
    assert ("dlg", "none", False) not in cells(scenario, undefended=False)
    assert configurations(Scenario(), undefended=False) == ("none",)
    assert configurations(Scenario(defenses=("none", "prune"))) == ("none", "prune")


def test_a_scenario_that_names_no_attack_gets_the_suite():
    names = {name for name, _, _ in cells(Scenario())}
    assert {a.name for a in played_in("quick") if not issubclass(a, TamperingServer)} <= names


def test_a_named_floor_is_not_run_twice():
    assert cells(Scenario(attacks=("mean-image", "dlg"))).count(("mean-image", "none", False)) == 1


def test_a_chain_is_parsed_in_the_order_written():
    assert parse_chain("prune:share=0.5+gaussian:std=0.1") == (Prune(share=0.5), Gaussian(std=0.1))
    assert parse_chain("none") == ()
    with pytest.raises(BadInput, match="did you mean 'prune'"):
        parse_chain("gaussian+prun")


def test_who_knows_a_chain_knows_all_of_it():
    known = (Known(Gaussian(std=0.1)), Known(Prune()))
    assert informed_by(DLG(), (Gaussian(std=0.1), Prune())) == (known,)
    assert informed_by(Linear(), (Gaussian(std=0.1), Prune())) == (known,)
    assert informed_by(DLG(), (Gaussian(std=0.0), Prune())) == (known[1:],)


def test_every_way_to_use_a_defense_has_a_row_of_its_own_and_a_name():
    found = plan(Scenario(attacks=("dlg",), defenses=("soteria+prune",), variants="adaptive"), undefended=False)[2:]
    assert [c.label for c in found] == ["dlg (without the layer)", "dlg (visible columns)"]
    assert [tuple(k.way for k in c.known) for c in found] == [("without the layer", ""), ("visible columns", "")]
    assert len({str(c.key) for c in found}) == 2


def test_informed_attackers_can_assume_another_chain_and_one_way_to_use_it():
    scenario = Scenario(attacks=("dlg",), defenses=("prune:share=0.9",), assume="soteria:share=0.4@visible columns")
    informed = plan(scenario, undefended=False)[-1]
    assert (informed.defense, informed.adaptive) == ("prune:share=0.9", True)
    assert informed.known == (Known(Soteria(share=0.4), "visible columns"),)
    with pytest.raises(BadInput, match=r"one of 'without the layer', 'visible columns'.*got 'all'"):
        plan(Scenario(attacks=("dlg",), defenses=("prune",), assume="soteria@all"))
    with pytest.raises(BadInput, match="did you mean 'prune'"):
        plan(Scenario(attacks=("dlg",), defenses=("prune",), assume="prun"))


def test_no_adaptive_attack_where_knowing_changes_nothing():
    assert informed_by(DLG(), ()) == ()
    assert informed_by(DLG(), (Gaussian(std=0),)) == ()
    assert cells(Scenario(attacks=("dlg",), defenses=("gaussian:std=0",)))[-1] == ("dlg", "gaussian:std=0", False)


def test_two_versions_of_one_attack_are_told_apart():
    labels = [c.label for c in plan(Scenario(attacks=("dlg:steps=1", "dlg:steps=2", "linear")))]
    assert labels[2:] == ["dlg:steps=1", "dlg:steps=2", "linear"]


def test_what_is_named_twice_runs_once():
    assert cells(Scenario(attacks=("dlg", "dlg"), defenses=("prune", "prune"))) == cells(
        Scenario(attacks=("dlg",), defenses=("prune",))
    )


@pytest.mark.parametrize("number", ["1e+2", "1e2", "1e-2", "0.5"])
def test_the_plus_in_a_number_joins_nothing(number):
    assert parse_chain(f"gaussian:std={number}+prune") == (Gaussian(std=float(number)), Prune())
    assert parse_chain(f"prune+gaussian:std={number}") == (Prune(), Gaussian(std=float(number)))


def test_an_attack_with_a_prior_has_its_control_right_before_it():
    found = plan(Scenario(attacks=("ggl", "dlg"), defenses=("prune",)))[2:]
    labels = [(c.label, c.defense, isinstance(c.attack, OnDecoy)) for c in found]
    assert labels[:3] == [("ggl on a decoy", "none", True), ("ggl", "none", False), ("dlg", "none", False)]
    assert ("ggl on a decoy", "prune", True) in labels
    assert not any(label.startswith("dlg on") for label, _, _ in labels)


def test_a_control_has_a_spec_of_its_own_so_that_no_stored_cell_is_taken_for_it():
    control, attack = plan(Scenario(attacks=("ggl:steps=3",)))[2:]
    assert (control.attack.spec, attack.attack.spec) == ("ggl:steps=3 on a decoy", "ggl:steps=3")
    assert control.attack.attack == attack.attack == GGL(steps=3)
    assert control.name != attack.name

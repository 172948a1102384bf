"""What an audit runs that names no attacks."""

import pytest

from leakgauge import catalog
from leakgauge.setup.suites import SECONDS, attacks_of, forbidden_servers, only_unlabelled, played_in, spec_in
from leakgauge.types import SUITE_NAMES, Scenario, TamperingServer

HONEST, PARAMETERS, ARCHITECTURE = "honest-but-curious", "malicious-parameters", "malicious-architecture"


def names(specs):
    return [spec.partition(":")[0] for spec in specs]


def test_every_name_a_scenario_may_use_is_a_suite():
    assert tuple(SECONDS) == SUITE_NAMES


def attacks_in(suite, unlabelled=False):
    return [
        a for a in played_in(suite) if not issubclass(a, TamperingServer) and (suite in a.unlabelled_in) == unlabelled
    ]


def servers_in(suite):
    return [a.name for a in played_in(suite) if issubclass(a, TamperingServer)]


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_every_entry_can_be_built(suite):
    for attack in played_in(suite):
        assert catalog.build("attacks", spec_in(suite, attack)).baseline is False


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_labels_come_first_and_what_solves_comes_before_what_searches(suite):
    order = attacks_in(suite)
    assert [a.name for a in order[:6]] == ["labels", "linear", "rank-one", "patch-embedding", "peeling", "rgap"]
    assert all(hasattr(attack, "time_budget") for attack in order[6:])


def test_a_longer_suite_tries_at_least_what_a_shorter_one_does():
    found = [{a.name for a in played_in(suite)} - {"idlg", "dlg", "cpl"} for suite in SUITE_NAMES]
    assert found[0] <= found[1] <= found[2]
    assert [SECONDS[s] for s in SUITE_NAMES] == [60, 600, 7200]


@pytest.mark.parametrize("suite", SUITE_NAMES)
def test_every_suite_has_a_search_that_needs_no_label(suite):
    assert "dlg" in {a.name for a in played_in(suite)}
    assert only_unlabelled(Scenario(suite=suite)) == {a.name for a in attacks_in(suite, unlabelled=True)}
    assert only_unlabelled(Scenario(suite=suite, attacks=("dlg",))) == set()


def test_every_attack_of_the_house_says_whether_the_bare_audit_plays_it():
    """No tier is an answer too: floors, and variants of one that is played."""
    without = {name for name, a in catalog.find("attacks").items() if not a.tier}
    assert without == {"mean-image", "random-guess", "inverting-gradients"}  # the portfolio plays it with more settings
    for attack in catalog.find("attacks").values():
        assert attack.tier in ("", *SUITE_NAMES)
        assert {*attack.in_suites, *attack.unlabelled_in} <= {*SUITE_NAMES}


def test_attacks_that_are_named_are_run_instead():
    assert attacks_of(Scenario(attacks=("linear",), suite="full")) == ("linear",)


@pytest.mark.parametrize(
    ("threat", "servers"),
    [(HONEST, []), (PARAMETERS, ["trap-weights", "mkor"]), (ARCHITECTURE, ["imprint", "trap-weights", "mkor"])],
)
def test_servers_tamper_only_where_the_threat_model_lets_them(threat, servers):
    scenario = Scenario(threat_model=threat)
    own = [a for a in played_in("quick") if not issubclass(a, TamperingServer)]
    assert list(attacks_of(scenario)[len(own) :]) == servers
    assert {*servers, *forbidden_servers(scenario)} == set(servers_in("quick"))

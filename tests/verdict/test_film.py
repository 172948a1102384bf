"""Pictures on the way: behind the records, as bytes on disk, and one strip per record in the report."""

import dataclasses

import pytest
import torch

from leakgauge.audit.run import run_audit
from leakgauge.errors import BadInput, LeakgaugeError
from leakgauge.execution.store import Store
from leakgauge.report import to_html
from leakgauge.types import Scenario
from leakgauge.verdict.film import film_in, packed, records_in, unpacked, with_film


def test_frames_stand_behind_the_records_in_the_truths_order():
    recovered = torch.rand(2, 3, 1, 4, 4)
    film = torch.rand(2, 5, 3, 1, 4, 4)
    order = torch.tensor([[2, 0, 1], [0, 1, 2]])
    kept = with_film(recovered, film, order)
    assert torch.equal(records_in(kept, 5), recovered)
    frames = film_in(kept, 5)
    assert frames.shape == film.shape
    torch.testing.assert_close(frames[0, :, 0], film[0, :, 2], rtol=0, atol=1 / 500)
    assert torch.equal(unpacked(packed(frames)), frames), "bytes lose nothing of what was kept"


def test_what_is_no_picture_becomes_one():
    wild = torch.tensor([torch.nan, torch.inf, -torch.inf, 7.0]).reshape(1, 1, 1, 1, 2, 2)
    kept = with_film(torch.zeros(1, 1, 1, 2, 2), wild, torch.zeros(1, 1, dtype=torch.long))
    torch.testing.assert_close(film_in(kept, 1).flatten(), torch.tensor([0.5, 1, 0, 1]), rtol=0, atol=1 / 500)


@pytest.fixture(scope="module")
def filmed(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    scenario = Scenario(
        model="lenet-dlg:filters=3", data="digits", attacks=("cpl:steps=40,film=5",), trials=3, batch_size=2
    )
    return scenario, out, *run_audit(scenario, out=out, keep_private=True, undefended=False)


def test_an_audit_keeps_the_search_on_its_way_and_a_store_gives_it_back(filmed):
    scenario, out, report, pictures = filmed
    (name,) = pictures.film
    assert pictures.film[name].shape == (3, 5, 2, *pictures.true.shape[2:])
    kept = Store(out, make=False).pictures(report.setup)
    assert torch.equal(kept.film[name], pictures.film[name])
    assert torch.equal(kept.recovered[name], pictures.recovered[name])
    again, more = run_audit(scenario, out=out, keep_private=True, undefended=False)
    assert torch.equal(more.film[name], pictures.film[name])
    assert [f.film for f in again.findings if f.attack == "cpl"] == [(0, 1, 3, 12, 40)] * 3
    bare = dataclasses.replace(scenario, attacks=("cpl:steps=40",))
    other, without = run_audit(bare, undefended=False)
    assert without.film == {}
    mine, theirs = ([f.scores for f in r.findings if f.attack == "cpl"] for r in (report, other))
    assert mine == theirs, "a film changes no result"


def test_the_page_has_a_strip_under_each_pair_and_none_unless_asked(filmed):
    _, _, report, pictures = filmed
    page = to_html(report, pictures)
    assert page.count('class="film"') == 6
    assert "where the search ended" in page
    assert "after step 0" in page
    assert 'class="film"' not in to_html(report, dataclasses.replace(pictures, film={}))


@pytest.mark.parametrize("film", ["13", "-1", "many"])
def test_so_many_frames_are_no_strip(film):
    with pytest.raises(BadInput, match="film"):
        run_audit(Scenario(model="mlp", data="digits", attacks=(f"cpl:film={film}",), trials=1))


def test_a_film_that_does_not_fit_the_inputs_is_refused(filmed):
    from leakgauge.types.attack import Reconstruction, _check_film

    numbers = torch.zeros(1)
    wrong = Reconstruction(torch.zeros(1, 2, 4), None, numbers, numbers, numbers, film=torch.zeros(1, 3, 2, 4))
    with pytest.raises(LeakgaugeError, match="a film of shape"):
        _check_film("mine", wrong)

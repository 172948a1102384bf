"""Distances of recovered from true pictures, and the figures of the thesis that their tables carry."""

import pytest
import torch

from leakgauge.errors import BadInput
from leakgauge.lab.recipes.ren2022grnn import _batches
from leakgauge.lab.recipes.ren2022grnn._distances import Distances, image_distances
from leakgauge.lab.recipes.ren2022grnn.recipe import RECIPE, VERDICTS
from leakgauge.metrics.psnr import psnr_from_fedkl


def test_distances_are_those_of_a_loop_over_pictures():
    true, recovered = torch.rand(2, 3, 4, 1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    errors, transports = image_distances(true, recovered)
    for t in range(3):
        pairs = list(zip(true[t].flatten(1), recovered[t].flatten(1), strict=True))
        assert float(errors[t]) == pytest.approx(sum(float((a - b).square().mean()) for a, b in pairs) / 4)
        gaps = [float((a.sort().values - b.sort().values).abs().mean()) for a, b in pairs]
        assert float(transports[t]) == pytest.approx(sum(gaps) / 4)


@pytest.mark.parametrize("defense", ["", "gaussian:std=0.001"])
def test_more_steps_come_closer_and_every_update_counts(defense):
    shorter, longer = (
        Distances(
            model="lenet-dlg",
            data="digits",
            attack=f"grnn:scale=mixed,variation=squared,lr=0.001,steps={steps}",
            updates=3,
            defense=defense,
        ).figures("cpu", None, lambda *_: None)
        for steps in (1, 200)
    )
    assert {len(longer[name]) for name in ("image_mse", "image_wd")} == {3}
    assert sum(longer["image_mse"]) < sum(shorter["image_mse"])


def test_an_attack_without_the_named_field_is_refused():
    measured = Distances(model="lenet-dlg", data="digits", attack="grnn:pace=3")
    with pytest.raises(BadInput, match="pace"):
        measured.figures("cpu", None, lambda *_: None)


def test_it_names_itself_and_can_be_made_smaller():
    measured = Distances(model="mlp", data="digits", attack="dlg", defense="gaussian").resized(7)
    assert measured.size == 7
    assert "with gaussian: 7 x 1" in measured.title


def cells(table):
    return {(cell.row, cell.column): cell.reported for cell in RECIPE.table(table).cells}


def test_the_averages_that_the_thesis_prints_are_those_of_its_figures():
    """Table 3.13's last column, mean and standard deviation; DLG's on MNIST do not follow from its row."""
    printed = {
        "mnist": (0.9773, 0.0203),
        "cifar100": (0.9919, 0.0074, 0.9351, 0.0329),
        "lfw": (0.9943, 0.0160, 0.8541, 0.2477),
    }
    for data, expected in printed.items():
        both = [*zip(*_batches._LABELS[data], strict=True), *zip(*_batches._BY_DLG[data], strict=True)]
        found = [sum(values) / len(values) for values in both]
        assert found[: len(expected)] == pytest.approx(expected, abs=6e-4), data
    of_dlg = [accuracy for accuracy, _ in _batches._BY_DLG["mnist"]]
    assert sum(of_dlg) / len(of_dlg) == pytest.approx(0.9458, abs=1e-4)  # printed: 0.9423


def test_the_twelve_printed_psnrs_follow_from_the_printed_errors():
    for errors, psnrs, _ in _batches._PRINTED.values():
        for error, psnr in zip(errors, psnrs, strict=True):
            assert 10 * torch.tensor(255**2 / error).log10() == pytest.approx(psnr, abs=0.02)


def test_every_table_of_noise_and_quality_carries_the_figures_of_both_attacks():
    quality, noise = cells("3.4"), cells("3.16")
    assert quality["DLG, LeNet, trained", "CIFAR-100"]["psnr"] == pytest.approx(psnr_from_fedkl(33.81), abs=0.01)
    assert sum(c["psnr_thesis"] is not None for c in quality.values()) == 16
    assert sum(c["psnr_thesis"] is not None for c in noise.values()) == 48
    assert not [c for (_, column), c in noise.items() if "DLG" in column and c["psnr"] is not None]


def test_re_identification_has_all_thirty_figures():
    assert sum(f is not None for cell in cells("3.15").values() for f in cell.values()) == 30


def test_every_table_ends_with_a_verdict():
    assert list(VERDICTS) == [table.id for table in RECIPE.tables]
    for table in RECIPE.tables:
        verdict = VERDICTS[table.id]
        assert verdict.startswith(("Supports", "Contradicts", "Cannot tell"))
        assert table.note.endswith(f". {verdict}")

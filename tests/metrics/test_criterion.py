"""The criterion: met in the metric's own direction, never by what is not claimed, and compared nowhere else."""

import ast
import math
from pathlib import Path

import pytest
import torch

import leakgauge
from leakgauge import catalog
from leakgauge.metrics.criterion import CRITERIA, Criterion, beats, criterion_of, gain, is_unmistakable
from leakgauge.types import DataSpec

IMAGE = DataSpec("pictures", (1, 8, 8), 10, "image")
TABLE = DataSpec("table", (30,), 2, "tabular")
METRICS = ["ssim", "psnr", "mse", "lpips", "mae", "lpips-vgg"]


# --- in words ---------------------------------------------------------------------------------------


def test_the_criterion_is_spelled_out_per_kind_of_data():
    assert str(criterion_of(IMAGE)) == "ssim>=0.6"
    assert str(criterion_of(TABLE)) == "mse<=0.001"


@pytest.mark.parametrize(
    ("text", "metric", "threshold"),
    [
        ("ssim>=0.6", "ssim", 0.6),
        ("mse<=0.001", "mse", 1e-3),
        ("mse<=1e-05", "mse", 1e-5),
        ("mse <= 1E+2", "mse", 100.0),
        (" psnr > -3 ", "psnr", -3.0),
        ("lpips-vgg<=0.1", "lpips-vgg", 0.1),
    ],
)
def test_words_are_read_back(text, metric, threshold):
    assert Criterion.parse(text) == Criterion(metric, threshold)


@pytest.mark.parametrize("rule", CRITERIA.values(), ids=str)
def test_what_was_spelled_out_is_read_back(rule):
    assert Criterion.parse(str(rule)) == rule


@pytest.mark.parametrize("text", ["", "by eye", "ssim>=e", "ssim>=-", "ssim>=0.6.1", "beauty>=0.6"])
def test_what_is_no_criterion_is_none(text):
    assert Criterion.parse(text) is None


# --- what counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "met"), [({"ssim": 0.6}, True), ({"ssim": 0.59}, False), ({"ssim": None}, False), ({}, False)]
)
def test_a_picture_meets_the_criterion_by_its_score(scores, met):
    assert criterion_of(IMAGE).met(scores) is met


@pytest.mark.parametrize(("error", "met"), [(1e-4, True), (1e-3, True), (0.01, False), (0.0, True), (None, False)])
def test_a_table_meets_it_by_a_small_error(error, met):
    assert criterion_of(TABLE).met({"mse": error}) is met


def test_hits_of_many_scores_by_hand_and_nan_is_none():
    values = torch.tensor([[0.1, 0.5], [0.6, float("nan")]])
    assert Criterion("ssim", 0.5).hits(values).tolist() == [[False, True], [True, False]]
    assert Criterion("mse", 0.5).hits(values).tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("metric", METRICS)
def test_many_scores_are_judged_as_each_alone(metric):
    scores = torch.tensor([-1.0, 0.0, 0.49, 0.5, 0.51, 1.0, float("nan")], dtype=torch.double)
    rule = Criterion(metric, 0.5)
    assert rule.hits(scores).tolist() == [rule.reached(score) for score in scores.tolist()]


@pytest.mark.parametrize("metric", ["ssim", "mse"])
@pytest.mark.parametrize("record", [{"ssim": None, "mse": None}, {"ssim": math.nan, "mse": math.nan}, {"other": 1.0}])
def test_a_record_that_is_not_claimed_meets_nothing_beats_nothing_and_comes_last(metric, record):
    assert not Criterion(metric, 0.5).met(record)
    assert gain(metric, record.get(metric)) == -math.inf
    assert not beats(metric, record, {metric: 0.5})
    assert not beats(metric, record, record)
    assert beats(metric, {metric: 0.5}, record)


def test_unmistakable_is_far_beyond_a_thumbnail_or_the_error_that_counts():
    assert is_unmistakable(IMAGE, {"detail": 10.0, "ssim": 0.1})
    assert not is_unmistakable(IMAGE, {"detail": 9.9, "ssim": 1.0})
    assert is_unmistakable(TABLE, {"mse": 1e-5})
    assert not is_unmistakable(TABLE, {"mse": 2e-5})
    assert not is_unmistakable(IMAGE, {"detail": None})


# --- which is better --------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_direction_is_the_metrics_own(metric):
    higher = catalog.get("metrics", metric).higher_is_better
    assert Criterion(metric, 0.5).higher_is_better == higher
    assert Criterion(metric, 0.5).symbol == ("≥" if higher else "≤")
    assert beats(metric, {metric: 0.9}, {metric: 0.1}) is higher
    assert not beats(metric, {metric: 0.5}, {metric: 0.5})


@pytest.mark.parametrize(("metric", "best"), [("ssim", 0.9), ("mse", 0.1)])
def test_the_best_recovered_gains_most(metric, best):
    assert max((0.1, 0.5, 0.9), key=lambda value: gain(metric, value)) == best


# --- compared here and nowhere else -----------------------------------------------------------------

SOURCE = Path(leakgauge.__file__).parent
SCORES = frozenset(catalog.find("metrics"))
# They read a direction to draw an axis or to say "at least"; none of them compares by it.
DRAWN_OR_SAID = {"report/curves.py"}


def names_a_score(node: ast.expr) -> bool:
    """`record["ssim"]`, `record.get("psnr")`, or one of these behind `float(...)`, `or 0.0` and the like."""
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant) and part.slice.value in SCORES:
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "get":
            first = part.args[0] if part.args else None
            if isinstance(first, ast.Constant) and first.value in SCORES:
                return True
    return False


@pytest.mark.parametrize(
    "path", [p for p in SOURCE.rglob("*.py") if p.parent.name != "metrics"], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_nobody_else_compares_scores_or_asks_which_is_better(path):
    order = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and any(isinstance(op, order) for op in node.ops):
            assert not any(map(names_a_score, (node.left, *node.comparators))), f"line {node.lineno}: ask a Criterion"
        if isinstance(node, ast.Attribute) and node.attr == "higher_is_better":
            assert path.relative_to(SOURCE).as_posix() in DRAWN_OR_SAID, f"line {node.lineno}: use gain or a Criterion"

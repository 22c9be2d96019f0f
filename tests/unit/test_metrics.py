"""Metrics for every kind of labels: against scikit-learn's definitions, at the edges, and in the words of a table."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import average_precision_score, f1_score, r2_score, roc_auc_score
from ssl_vit.configs.metrics import METRICS, Kind, Leading, defined_on_any, leading
from ssl_vit.core.errors import UserError
from ssl_vit.data.leading import chosen_metric, headline
from ssl_vit.evaluation.metrics import columns, judge
from ssl_vit.evaluation.printing import conclusion, print_table

NAMES = tuple("abcdefgh")


def some_scores(classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, 200)
    scores = rng.normal(size=(200, classes))
    scores[np.arange(200), labels] += 1.0
    return scores, labels


def test_classes_are_ranked_one_against_the_rest_by_their_probabilities() -> None:
    scores, labels = some_scores()
    found = judge("class", scores, labels, NAMES)
    probabilities = softmax(scores, axis=1)
    assert found["auroc"] == pytest.approx(100 * roc_auc_score(labels, probabilities, multi_class="ovr"))
    precision = [average_precision_score(labels == c, probabilities[:, c]) for c in range(8)]
    assert found["average_precision"] == pytest.approx(100 * np.mean(precision))
    assert found["macro_f1"] == pytest.approx(100 * f1_score(labels, scores.argmax(1), average="macro"))
    # A constant per image changes no probability; a factor on all does.
    moved = judge("class", scores + np.arange(200)[:, None], labels, NAMES)
    assert moved["auroc"] == pytest.approx(found["auroc"])


@pytest.mark.parametrize("metric", leading("class"))
def test_only_what_is_needed_is_the_same_number(metric: str) -> None:
    scores, labels = some_scores()
    quick, whole = judge("class", scores, labels, NAMES, only=metric), judge("class", scores, labels, NAMES)
    assert quick[metric] == whole[metric]
    assert ("auroc" in quick) == (metric not in ("top1", "balanced"))


def test_two_classes_and_their_auroc() -> None:
    scores, labels = some_scores(2)
    expected = 100 * roc_auc_score(labels, scores[:, 1] - scores[:, 0])
    assert judge("class", scores, labels, ("a", "b"))["auroc"] == pytest.approx(expected)


def test_confident_logits_are_still_ranked() -> None:
    """A softmax in float64 is exactly 0 beyond 745: both images would tie."""
    scores = np.array([[0.0, -900.0], [0.0, -800.0]])
    assert judge("class", scores, np.array([0, 1]), ("a", "b"))["auroc"] == pytest.approx(75.0)


def test_a_class_that_is_never_predicted_and_one_without_test_image() -> None:
    scores, labels = some_scores(4)
    scores[:, 2] = -np.inf  # no training label
    labels[labels == 3] = 0  # no test image
    found = judge("class", scores, labels, NAMES[:4])
    assert found["per_class"]["c"] == 0.0
    assert found["per_class"]["d"] is None
    share = softmax(scores, axis=1)
    auroc = [roc_auc_score(labels == c, share[:, c]) for c in range(3)]
    assert auroc[2] == 0.5
    assert found["auroc"] == pytest.approx(100 * np.mean(auroc))
    f1 = f1_score(labels, scores.argmax(1), labels=[0, 1, 2], average="macro")
    assert found["macro_f1"] == pytest.approx(100 * f1)


def test_test_images_of_one_class_leave_nothing_to_rank() -> None:
    found = judge("class", np.eye(3)[[0, 0, 1]], np.zeros(3, dtype=np.int64), NAMES[:3])
    assert found["auroc"] is None
    assert found["average_precision"] is None
    assert found["top1"] == pytest.approx(100 * 2 / 3)


def several() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = (rng.random((80, 4)) < 0.4).astype(np.float64)
    return rng.normal(size=(80, 4)) + labels, labels


def test_several_labels() -> None:
    scores, labels = several()
    found = judge("multilabel", scores, labels, NAMES[:4])
    assert found["average_precision"] == pytest.approx(100 * average_precision_score(labels, scores, average="macro"))
    assert found["auroc"] == pytest.approx(100 * roc_auc_score(labels, scores, average="macro"))
    assert found["macro_f1"] == pytest.approx(100 * f1_score(labels, scores > 0, average="macro"))
    assert found["per_label"]["b"] == pytest.approx(100 * average_precision_score(labels[:, 1], scores[:, 1]))
    assert (found["undefined"], found["images"]) == ([], 80)


def test_labels_that_all_or_no_test_images_have_are_named_and_left_out() -> None:
    scores, labels = several()
    labels[:, 1], labels[:, 2] = 0.0, 1.0
    scores[:, 3] = -np.inf  # a label without training image
    found = judge("multilabel", scores, labels, NAMES[:4])
    assert found["undefined"] == ["b", "c"]
    assert found["per_label"]["b"] is None
    assert found["auroc"] == pytest.approx(50 * (roc_auc_score(labels[:, 0], scores[:, 0]) + 0.5))
    nothing = judge("multilabel", scores, np.zeros_like(labels), NAMES[:4])
    assert nothing["average_precision"] is None
    assert nothing["undefined"] == list("abcd")


def test_numbers() -> None:
    rng = np.random.default_rng(2)
    labels = rng.normal(size=(50, 2)) * [1.0, 1000.0]
    scores = labels + rng.normal(size=(50, 2))
    found = judge("regression", scores, labels, ("height", "weight"))
    assert found["r2"] == pytest.approx(r2_score(labels, scores))
    assert found["mean_absolute_error"] == pytest.approx(np.abs(scores - labels).mean())  # in units, not in percent
    assert found["per_target"]["weight"]["r2"] == pytest.approx(r2_score(labels[:, 1], scores[:, 1]))
    labels[:, 0] = 3.0
    found = judge("regression", scores, labels, ("height", "weight"))
    assert found["undefined"] == ["height"]
    assert found["per_target"]["height"]["r2"] is None
    assert found["r2"] == found["per_target"]["weight"]["r2"]
    assert judge("regression", scores[:1], labels[:1], ("height", "weight"))["r2"] is None


@pytest.mark.parametrize(("counts", "leads"), [((10, 10), "top1"), ((10, 29), "top1"), ((10, 30), "balanced")])
def test_uneven_classes_are_led_by_balanced_accuracy(counts: tuple[int, int], leads: str) -> None:
    labels = np.repeat([0, 5], counts)  # classes in between have no test image and do not count
    assert headline("class", labels) == leads
    assert next(iter(columns("class", leads))) == leads


def test_what_leads_for_other_kinds() -> None:
    assert headline("multilabel", np.zeros((3, 2))) == "average_precision"
    assert headline("regression", np.array([[1.0], [2.0]])) == "r2"
    assert headline("regression", np.array([[2.0], [2.0]])) == "mean_absolute_error"  # r2 is undefined


def test_the_table_of_metrics_is_whole() -> None:
    """Options, kinds of labels and headings: nothing is listed twice or left out."""
    assert {name for name, metric in METRICS.items() if metric.leads} == set(get_args(Leading))
    assert len({metric.heading for metric in METRICS.values()}) == len(METRICS)
    assert [name for name, metric in METRICS.items() if metric.sign < 0] == ["mean_absolute_error"]
    assert {kind: defined_on_any(kind) for kind in get_args(Kind)} == {
        "class": "top1", "multilabel": "macro_f1", "regression": "mean_absolute_error",
    }  # fmt: skip
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.percent == metric.heading.endswith("%")
        assert metric.percent == (metric.bounds == (0.0, 100.0))


@pytest.mark.filterwarnings("ignore:A single label was found")  # scikit-learn's balanced accuracy of one class
@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_table_says_which_metrics_labels_without_variety_leave_undefined(kind: Kind) -> None:
    labels = np.zeros(5, dtype=np.int64) if kind == "class" else np.ones((5, 1))
    scores = np.ones((5, 2)) if kind == "class" else np.full((5, 1), 2.0)
    found = judge(kind, scores, labels, ("a", "b") if kind == "class" else ("a",))
    for metric in leading(kind):
        if kind != "multilabel":  # there every metric is a mean over the labels that vary
            assert (found[metric] is None) == METRICS[metric].needs_variety, metric


@pytest.mark.parametrize("kind", ["class", "multilabel", "regression"])
def test_a_metric_is_taken_where_it_fits_and_refused_where_not(kind: Kind) -> None:
    labels = np.array([0, 1]) if kind == "class" else np.array([[0.0], [1.0]])
    scores = np.array([[1.0, 0.0], [0.0, 1.0]]) if kind == "class" else np.array([[-1.0], [1.0]])
    found = judge(kind, scores, labels, ("a", "b") if kind == "class" else ("a",))
    assert chosen_metric("auto", kind, labels) == headline(kind, labels)
    for metric in get_args(Leading):
        if metric in leading(kind):
            assert chosen_metric(metric, kind, labels) == metric
            assert metric in found
            assert columns(kind, metric)[metric] == METRICS[metric].heading
        else:
            with pytest.raises(UserError, match=rf"--eval\.metric {metric} .*{leading(kind)[0]}"):
                chosen_metric(metric, kind, labels)


def row(method: str, **values: float | None) -> dict[str, object]:
    return {"method": method, "images": 400, **values}


def test_conclusions_in_points() -> None:
    rows = [row("MAE", balanced=90.0), row("random weights", balanced=40.0), row("raw pixels", balanced=80.5)]
    said = conclusion(rows, "balanced")
    assert said.startswith("MAE scores 9.5 points above raw pixels (balanced accuracy, ")
    assert conclusion(rows[::-1], "balanced").startswith("No gain: MAE score 9.5 points above raw pixels")


def test_conclusions_subtract_what_tables_show() -> None:
    rows = [row("MAE", top1=99.44), row("raw pixels", top1=93.86)]
    assert conclusion(rows).startswith("MAE scores 5.5 points above raw pixels")  # 99.4 and 93.9, and not 5.58
    rows = [row("MAE", r2=0.9004), row("raw pixels", r2=0.7996)]
    assert conclusion(rows, "r2").startswith("R2 is higher by 0.100 with MAE")


def test_what_test_images_cannot_tell_apart_is_no_difference() -> None:
    """Two standard errors of 90 and 86 % on 400 images each are 4.6 points; on 40,000 they are 0.46."""
    rows = [row("MAE", top1=90.0), row("raw pixels", top1=86.0)]
    assert conclusion(rows).startswith("No clear difference: MAE 90.0, raw pixels 86.0 (accuracy; 400 test")
    assert conclusion(rows[::-1]).startswith("No clear difference: raw pixels 86.0, MAE 90.0")
    many = [{**r, "images": 40_000} for r in rows]
    assert conclusion(many).startswith("MAE scores 4.0 points above raw pixels")


def test_conclusions_in_units() -> None:
    rows = [
        row(name, mean_absolute_error=error, r2=r2)
        for name, error, r2 in (("MAE", 0.25, 0.9), ("random weights", 9.0, 0.1), ("raw pixels", 0.5, 0.7))
    ]
    assert conclusion(rows, "mean_absolute_error").startswith(
        "Mean absolute error is lower by 0.25 with MAE than with raw pixels (one"
    )
    assert conclusion(rows, "r2").startswith("R2 is higher by 0.200 with MAE than with raw pixels (one")
    backwards = [rows[2], rows[0]]
    assert conclusion(backwards, "mean_absolute_error").startswith(
        "No gain: mean absolute error is lower by 0.25 with MAE than with raw"
    )


def test_no_conclusion_without_numbers() -> None:
    assert conclusion([row("MAE", auroc=None), row("raw pixels", auroc=50.0)], "auroc") == ""
    assert conclusion([row("MAE", auroc=50.0), row("raw pixels", auroc=None)], "auroc") == ""
    assert conclusion([row("MAE", auroc=50.0)], "auroc") == ""


def test_names_in_brackets_stand_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("run [v2]", [{"images": "cells [old]", "top1": 50.0}, {"images": "[/b]", "top1": 60.0}],
                {"images": "set [of]", "top1": "top-1 %"})  # fmt: skip
    said = capsys.readouterr().out
    assert all(words in said for words in ("run [v2]", "cells [old]", "[/b]", "set [of]"))


@pytest.mark.parametrize(
    ("metric", "value", "said"), [("top1", 100.0, "100.0 %"), ("auroc", 99.0, "99.0 %"), ("r2", 0.5, "0.500")]
)
def test_equal_numbers_are_no_defeat(metric: str, value: float, said: str) -> None:
    rows = [{"method": name, metric: value, "images": 100} for name in ("MAE", "raw pixels")]
    assert conclusion(rows, metric).startswith(f"No difference: MAE and raw pixels both have {said} (")

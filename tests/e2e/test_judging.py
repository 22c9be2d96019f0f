"""Judging a backbone by every kind of labels, and comparing the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.data.targets import Kind


def test_results_of_several_draws_become_one_table(backbone: str, script) -> None:
    shown = {}
    for draw in ("0", "1"):
        words = ["--backbone", backbone, "--eval.labels", "20", "--eval.draw", draw]
        assert script("eval/knn.py", *words)[0] == 0
        rows = json.loads(Path(f"run/results/knn-20-labels-draw-{draw}.json").read_text())["rows"]
        shown[draw] = next(r["top1"] for r in rows if r["method"] == "raw pixels" and r["headline"])
    assert script("eval/knn.py", "--backbone", backbone, "--eval.labels", "40", "--eval.batch_size", "17")[0] == 0
    draws = [f"run/results/knn-20-labels-draw-{draw}.json" for draw in ("0", "1")]
    status, out, err = script("eval/compare.py", *draws, "--mcnemar")
    assert status == 0, err
    assert out.startswith("McNemar's exact test on 359 test images: ") and "These two checkpoints only" in out
    assert script("eval/compare.py", *draws, "--mcnemar", "--out", "a.md")[0] == 2
    status, out, err = script("eval/compare.py", "run", "--out", "tables/digits.md")
    assert status == 0, err
    assert "20 labels" in out
    text = Path("tables/digits.md").read_text()
    mean, deviation = np.mean(list(shown.values())), np.std(list(shown.values()), ddof=1)
    assert f"| raw pixels | knn | {mean:.1f} ± {deviation:.1f} (2), " in text  # and its interval
    # Other options of the evaluation are another protocol.
    assert script("eval/knn.py", "--backbone", backbone, "--knn.k", "5", "--run.dir", "other")[0] == 0
    status, out, err = script("eval/compare.py", "run", "other/results/knn.json")
    assert status == 1
    assert "knn.k 20 -> 5" in err
    assert err.count("\n") == 1
    assert out == ""


def test_ordinary_runs_become_a_report(backbone: str, script, small: list[str]) -> None:
    few = ["--eval.labels", "20"]
    short = ["--fit.epochs", "1", "--fit.batch_size", "16"]
    for draw in ("0", "1"):
        drawn = [*few, "--eval.draw", draw, "--seed", draw]
        assert script("eval/knn.py", "--backbone", backbone, *drawn)[0] == 0
        assert script("eval/finetune.py", "--backbone", backbone, *drawn, *short)[0] == 0
        words = [*drawn, *small[:-2], *short, "--run.dir", f"scratch-{draw}"]
        assert script("recipes/supervised.py", *words)[0] == 0
    assert script("eval/linear_probe.py", "--backbone", backbone, *few)[0] == 0
    assert script("eval/linear_probe.py", "--backbone", backbone, *few, "--linear.protocol", "logistic")[0] == 0
    kept = np.load("run/results/knn-20-labels-draw-0.npz")
    rows = json.loads(Path("run/results/knn-20-labels-draw-0.json").read_text())["rows"]
    assert kept["units"].mean() == pytest.approx(next(r["top1"] for r in rows if r["headline"]), rel=1e-5)
    status, out, err = script("eval/report.py", "run", "scratch-0", "scratch-1", "--out", "report")
    assert status == 0, err
    assert err == "note: results of logistic are left out; a report has one linear probe, linear-cached\n"
    assert out.startswith("With 20 labels: ") and "95 % interval" in out
    text = Path("report/report.md").read_text()
    assert "it is not recorded whether the baseline was tuned" in text


def test_features_are_kept_for_draws_and_other_protocols(backbone: str, script) -> None:
    def judged(*words: str, name: str = "knn", file: str = "eval/knn.py", precision: str = "fp32") -> dict[str, Any]:
        status, _, err = script(file, "--backbone", backbone, "--eval.precision", precision, *words)
        assert status == 0, err
        return json.loads(Path(f"run/results/{name}.json").read_text())

    def kept() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in Path("run/features").iterdir()}

    fresh = judged("--eval.keep_features", "false")
    assert not Path("run/features").exists()
    first, before = judged(), kept()
    assert len(before) == 3  # the backbone, random weights and pixels; training and test images are of one source
    again, few = judged(), judged("--eval.labels", "20", name="knn-20-labels-draw-0")
    logistic = ["--linear.protocol", "logistic", "--linear.grid", "[0.1]", "--eval.labels", "20"]
    judged(*logistic, name="logistic-20-labels-draw-0", file="eval/linear_probe.py")
    assert kept() == before
    for result in (first, again):
        assert (result["rows"], result["protocol_hash"]) == (fresh["rows"], fresh["protocol_hash"])
    assert few["protocol_hash"] == fresh["protocol_hash"]
    alone = judged("--eval.labels", "20", "--eval.keep_features", "false", name="knn-20-labels-draw-0")
    for one, other in zip(few["rows"], alone["rows"], strict=True):
        assert one["top1"] == pytest.approx(other["top1"], abs=0.3)  # features differ by rounding at most
    # Random weights of another seed are another network; bf16 is another protocol.
    judged("--seed", "1", name="knn-seed-1")
    assert len(kept()) == 4
    rounded = judged("--eval.baselines", "false", precision="bf16")
    assert len(kept()) == 5
    assert rounded["protocol"] == fresh["protocol"] | {"arithmetic": "bf16"}


def test_a_metric_may_be_chosen_and_must_fit(backbone: str, script) -> None:
    words = ["--backbone", backbone, "--eval.baselines", "false", "--eval.metric"]
    status, out, err = script("eval/knn.py", *words, "macro_f1")
    assert status == 0, err
    assert "macro-F1 %" in out
    assert json.loads(Path("run/results/knn.json").read_text())["protocol"]["metric"] == "macro_f1"
    assert "note: the result" not in script("eval/knn.py", *words, "macro_f1")[1]
    replaced = "note: this replaces the result of other options (knn.k 20 -> 5) that stood in this file"
    assert replaced in script("eval/knn.py", *words, "macro_f1", "--knn.k", "5")[1]
    status, _, err = script("eval/knn.py", *words, "mean_absolute_error")
    assert status == 1
    assert "--eval.metric mean_absolute_error does not fit" in err


def test_images_smaller_than_the_windows_of_training_are_used_whole(script, small: list[str]) -> None:
    for folder, side in (("large", 24), ("little", 12)):
        for i in range(12):
            path = Path(folder, "ab"[i % 2], f"{i}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    words = [*small, "--data.path", "large", "--data.window", "16", "--model.img_size", "16", "--model.patch_size", "8"]
    status, _, err = script("recipes/mae.py", *words, "--fit.epochs", "1", "--run.dir", "run")
    assert status == 0, err
    knn = ["eval/knn.py", "--backbone", "run", "--eval.baselines", "false", "--eval.data.path"]
    status, _, err = script(*knn, "little")
    assert status == 0, err
    assert "trained on windows of 16 px; most images of little have no more than 12 px and are used whole" in err
    status, _, err = script(*knn, "large")
    assert status == 0 and "used whole" not in err


def test_a_metric_without_a_value_is_said(backbone: str, script) -> None:
    for split, levels in (("train", (20, 200)), ("test", (20,))):
        for level in levels:
            folder = Path("photos", split, str(level))
            folder.mkdir(parents=True)
            for i in range(6):
                Image.fromarray(np.full((8, 8), level + i + 6 * (split == "test"), np.uint8)).save(folder / f"{i}.png")
    words = ["--backbone", backbone, "--eval.data.path", "photos", "--run.dir", "other", "--eval.metric", "auroc"]
    status, out, err = script("eval/knn.py", *words)
    assert status == 0, err
    assert "AUROC has no value for the labels of these 6 test images" in out


@pytest.mark.parametrize(("kind", "leads"), [("multilabel", "average_precision"), ("regression", "r2")])
def test_neighbours_for_several_labels_and_for_numbers(
    backbone: str, script, monkeypatch: pytest.MonkeyPatch, kind: Kind, leads: str
) -> None:
    """Digits with two labels each (even, above four), or with their value to predict."""

    def relabelled(data: DataConfig, labelled: LabelledDataConfig) -> Labelled:
        found = open_labelled(data, labelled)
        parts = []
        for part in (found.train, found.test):
            digit = part.labels
            assert digit is not None
            several = np.stack([digit % 2 == 0, digit > 4], axis=1).astype(np.float64)
            labels = several if kind == "multilabel" else digit[:, None].astype(np.float64)
            names = ("even", "large") if kind == "multilabel" else ("value",)
            parts.append(replace(part, labels=labels, classes=names, kind=kind))
        return found._replace(train=parts[0], test=parts[1])

    monkeypatch.setattr("ssl_vit.evaluation.session.open_labelled", relabelled)
    status, out, err = script("eval/knn.py", "--backbone", backbone, "--eval.labels", "200")
    assert status == 0, err
    result = json.loads(Path("run/results/knn-200-labels-draw-0.json").read_text())
    assert (result["protocol"]["kind"], result["protocol"]["metric"]) == (kind, leads)
    pixels = next(r for r in result["rows"] if r["method"] == "raw pixels" and r["headline"])
    assert pixels[leads] > (90 if kind == "multilabel" else 0.7)
    assert ("mean AP %" if kind == "multilabel" else "MAE") in out
    assert "raw pixels" in out.partition("No gain: ")[2]


def test_a_test_class_that_cannot_be_learnt_is_named_and_counted_as_wrong(backbone: str, script) -> None:
    rng = np.random.default_rng(0)
    for split, classes in (("train", ("dark", "grey")), ("test", ("bright", "dark", "grey"))):
        for name in classes:
            folder = Path("photos", split, name)
            folder.mkdir(parents=True)
            level = {"bright": 200, "grey": 120, "dark": 20}[name]
            for i in range(6):
                Image.fromarray((level + rng.integers(0, 40, (8, 8))).astype(np.uint8)).save(folder / f"{i}.png")
    status, _, err = script("eval/knn.py", "--backbone", backbone, "--eval.data.path", "photos", "--run.dir", "other")
    assert status == 0, err
    assert "no training image has the label bright, but 6 of the 18 test images do" in err
    assert err.count("warning:") == 1
    (result,) = Path("other/results").glob("knn-on-*.json")
    rows = json.loads(result.read_text())["rows"]
    assert {row["per_class"]["bright"] for row in rows} == {0.0}
    assert {row["images"] for row in rows} == {18}

"""Result files: one form, read back whole, and compared only where that means something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ssl_vit.configs import EvalConfig, to_dict
from ssl_vit.core import arithmetic
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.session import result_of, warn_unlearnable
from ssl_vit.exports.origin import made_with
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.runs.results import compare, read_results

from made_results import BACKBONE, KNN, images, labelled, write


def test_tf32_is_part_of_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = write(tmp_path / "exact" / "results" / "knn.json", {"MAE": 50.0})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (8, 0))
    monkeypatch.setattr("ssl_vit.core.arithmetic._rounded", [True])
    rounded = write(tmp_path / "rounded" / "results" / "knn.json", {"MAE": 50.0})
    half = write(tmp_path / "half" / "results" / "knn.json", {"MAE": 50.0}, options={**KNN, "arithmetic": "bf16"})
    found = [json.loads(path.read_text())["protocol"].get("arithmetic") for path in (exact, rounded, half)]
    assert found == [None, "tf32", "bf16"]
    with pytest.raises(UserError, match="arithmetic None -> tf32"):
        compare(read_results([exact, rounded]))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (7, 5))  # has no such products
    older = write(tmp_path / "older" / "results" / "knn.json", {"MAE": 50.0})
    assert "arithmetic" not in json.loads(older.read_text())["protocol"]


def test_exact_arithmetic_is_exact_in_convolutions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    monkeypatch.setattr("torch.set_float32_matmul_precision", chosen.append)
    monkeypatch.setattr("torch.backends.cudnn.allow_tf32", True)
    monkeypatch.setattr("ssl_vit.core.arithmetic._rounded", [False])
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (9, 0))
    for rounded in (True, False):
        arithmetic.choose_tf32(rounded)
        assert (torch.backends.cudnn.allow_tf32, arithmetic.rounds_to_tf32()) == (rounded, rounded)
    assert chosen == ["high", "highest"]


def table(*paths: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    found = compare(read_results(paths))
    return {row[:2]: row[2:] for row in found.rows}


def test_axes_are_not_in_the_protocol_and_what_has_meaning_is() -> None:
    def hashed(**changes: Any) -> str:
        words: dict[str, Any] = {"data": labelled(), "size": 8, "metric": "top1", "cfg": EvalConfig(), "seed": 0}
        return result_of("knn", [], changes.pop("options", KNN), **{**words, **changes})["protocol_hash"]

    same = hashed()
    axes = EvalConfig(labels=10, draw=3, batch_size=7, baselines=False)
    assert hashed(cfg=axes) == hashed(seed=5) == hashed(data=labelled(20)) == same
    assert hashed(options={**KNN, "eval": to_dict(axes)}) == same
    others = [hashed(options={"knn": {"k": 10, "temperature": 0.07}}), hashed(size=16), hashed(metric="balanced"),
              hashed(data=labelled(source="t"))]  # fmt: skip
    assert len({same, *others}) == 5


def test_options_that_change_no_number_are_not_in_a_training_protocol() -> None:
    def protocol(recipe: SupervisedRecipe) -> dict[str, Any]:
        options = to_dict(recipe)
        result = result_of(
            "supervised", [], options, data=labelled(), size=8, metric="top1", cfg=recipe.eval, seed=recipe.seed
        )
        assert options == to_dict(recipe)  # nothing is taken from the caller's own
        return {k: v for k, v in result["protocol"].items() if k != "seed"}

    plain = SupervisedRecipe()
    assert protocol(replace(plain, fit=replace(plain.fit, log_every=7, micro_batch=4))) == protocol(plain)
    assert protocol(replace(plain, fit=replace(plain.fit, epochs=7.0))) != protocol(plain)


def test_labels_drawn_from_other_training_images_have_another_protocol() -> None:
    data = labelled()
    whole = data._replace(whole=data.train.fingerprint)
    drawn = whole._replace(train=data.train.subset(np.arange(4)))
    other = data._replace(whole="another")
    hashes = [
        result_of("knn", [], KNN, data=d, size=8, metric="top1", cfg=EvalConfig(), seed=0)["protocol_hash"]
        for d in (whole, drawn, other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_mean_and_deviation_over_draws(tmp_path: Path) -> None:
    paths = []
    for draw, value in enumerate((80.0, 90.0, 100.0)):
        path = tmp_path / "results" / f"{draw}.json"
        cfg = EvalConfig(labels=10, draw=draw)
        paths.append(write(path, {"MAE": value, "raw pixels": 50.0}, cfg=cfg, data=labelled(10)))
    whole = write(tmp_path / "results" / "all.json", {"MAE": 99.0})
    found = compare(read_results([*paths, whole]))
    assert found.headings == ("method", "evaluation", "10 labels", "40 labels")
    assert found.rows[0] == ("MAE", "knn", "90.0 ± 10.0 (3)", "99.0 (1)")
    assert found.rows[1] == ("raw pixels", "knn", "50.0 ± 0.0 (3)", "-")
    text = found.markdown()
    assert "| MAE | knn | 90.0 ± 10.0 (3) | 99.0 (1) |" in text
    assert "photos: top-1 %" in text
    assert "knn.k 20" in text
    assert read_results([whole])[0].protocol_hash in text


def test_several_evaluations_and_the_labelled_baseline_stand_in_one_table(tmp_path: Path) -> None:
    one = write(tmp_path / "results" / "knn.json", {"MAE": 80.0})
    two = write(tmp_path / "results" / "linear.json", {"MAE": 85.0}, method="linear_probe", options={"linear": {}})
    three = write(tmp_path / "b" / "results" / "s.json", {"from scratch": 70.0}, method="supervised", backbone=None)
    found = table(tmp_path, three)
    assert found == {
        ("MAE", "knn"): ("80.0 (1)",),
        ("MAE", "linear_probe"): ("85.0 (1)",),
        ("from scratch", "supervised"): ("70.0 (1)",),
    }
    assert table(one, one, tmp_path, two, three) == found  # naming a file twice counts it once


def test_an_unfair_pair_is_called_one(tmp_path: Path) -> None:
    tuned = write(
        tmp_path / "t" / "results" / "t.json",
        {"MAE": 80.0},
        method="finetune",
        options={"fit": {"epochs": 100}},
        size=16,
    )
    scratch = write(
        tmp_path / "s" / "results" / "s.json",
        {"from scratch": 70.0},
        method="supervised",
        options={"fit": {"epochs": 10}},
        backbone=None,
    )
    said = compare(read_results([tuned, scratch])).notes[0]
    assert said.startswith("NOT A FAIR PAIR")
    assert "fit.epochs 100 -> 10" in said
    assert "view.input 16 -> 8" in said
    like = write(
        tmp_path / "l" / "results" / "l.json", {"from scratch": 70.0}, method="supervised", size=16, backbone=None,
        options={"fit": {"epochs": 100}},
    )  # fmt: skip
    assert not any("FAIR" in note for note in compare(read_results([tuned, like])).notes)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"options": {"knn": {"k": 10, "temperature": 0.07}}}, r"protocols of knn \(knn\.k 20 -> 10\)"),
        ({"size": 16}, r"protocols of knn \(view\.input 8 -> 16\)"),
        ({"data": labelled(source="t")}, r"not judged alike \(test\.fingerprint \w+ -> \w+\)"),
        ({"metric": "balanced"}, r"not judged alike \(metric top1 -> balanced\)"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    one = write(tmp_path / "a" / "results" / "knn.json", {"MAE": 80.0})
    two = write(tmp_path / "b" / "results" / "knn.json", {"MAE": 90.0}, **change)
    with pytest.raises(UserError, match=named) as refused:
        table(one, two)
    assert str(one) in str(refused.value)
    assert str(two) in str(refused.value)
    # Another evaluation has its own protocol, but never its own test images.
    three = write(tmp_path / "c" / "results" / "x.json", {"MAE": 90.0}, method="linear_probe", **change)
    if {"data", "metric"} & set(change):
        with pytest.raises(UserError, match="not judged alike"):
            table(one, three)
    else:
        assert len(table(one, three)) == 2


def test_seeds_are_averaged_and_other_backbones_are_not(tmp_path: Path) -> None:
    def backbone(weights: str, seed: int, ratio: float) -> dict[str, Any]:
        return {**BACKBONE, "weights": weights, "options": {"seed": seed, "mae": {"mask_ratio": ratio}}}

    one = write(tmp_path / "a" / "results" / "knn.json", {"MAE": 80.0, "raw pixels": 60.0})
    two = write(
        tmp_path / "b" / "results" / "knn.json", {"MAE": 90.0, "raw pixels": 60.0}, backbone=backbone("w1", 1, 0.5)
    )
    assert table(one, two) == {("MAE", "knn"): ("85.0 ± 7.1 (2)",), ("raw pixels", "knn"): ("60.0 (1)",)}
    three = write(
        tmp_path / "c" / "results" / "knn.json", {"MAE": 70.0, "raw pixels": 60.0}, backbone=backbone("w2", 0, 0.75)
    )
    assert table(one, two, three) == {
        ("MAE (mae.mask_ratio 0.5)", "knn"): ("85.0 ± 7.1 (2)",),
        ("MAE (mae.mask_ratio 0.75)", "knn"): ("70.0 (1)",),
        ("raw pixels", "knn"): ("60.0 (1)",),
    }
    foreign = write(
        tmp_path / "d" / "results" / "knn.json", {"MAE": 50.0}, backbone={"weights": "w3", "folder": "elsewhere"}
    )
    assert ("MAE (backbone elsewhere)", "knn") in table(one, foreign)


def test_two_values_for_the_same_thing_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "results" / "knn.json", {"MAE": 80.0})
    two = write(tmp_path / "b" / "results" / "knn.json", {"MAE": 80.5})
    with pytest.raises(UserError, match="different values for MAE, 40 labels, same draw and seed"):
        table(one, two)


def test_other_numbers_of_readable_images_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "results" / "knn.json", {"MAE": 80.0})
    content = json.loads(one.read_text())
    content["rows"].append({"method": "raw pixels", "top1": 1.0, "images": 2})
    one.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"readable test images: 3 in .* 2 in "):
        table(one)


def test_numbers_in_units_keep_their_digits(tmp_path: Path) -> None:
    paths = []
    for draw, value in enumerate((0.01234, 0.01434)):
        path, cfg = tmp_path / "results" / f"{draw}.json", EvalConfig(labels=4, draw=draw)
        paths.append(write(path, {"MAE": value}, metric="mean_absolute_error", cfg=cfg, data=labelled(4)))
    assert table(*paths)[("MAE", "knn")] == ("0.01334 ± 0.001414 (2)",)


def test_bad_files_are_named(tmp_path: Path) -> None:
    good = write(tmp_path / "results" / "knn.json", {"MAE": 80.0})
    content = json.loads(good.read_text())
    cases = {
        "half": (good.read_text()[:50], "cannot be read as JSON"),
        "binary": ("\x00", "cannot be read as JSON"),
        "list": ("[1, 2]", "no result file"),
        "foreign": ('{"about": {}, "rows": []}', "no result file"),
        "old": (json.dumps({k: v for k, v in content.items() if k != "draw"}), "lacks draw: an older version"),
        "metric": (json.dumps({**content, "rows": [{"method": "MAE", "mae": 1.0}]}), "mae is mean_absolute_error now"),
        "edited": (json.dumps({**content, "protocol": {**content["protocol"], "pool": "cls"}}), "was edited"),
    }
    for name, (text, said) in cases.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        with pytest.raises(UserError, match=rf"{re.escape(str(path))} .*{said}"):
            read_results([path])
    with pytest.raises(UserError, match=r"there is no file or folder .*nowhere"):
        read_results([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"empty is no run, and holds no results/\*\.json; give result files or run dir"
    ):
        read_results([tmp_path / "empty"])
    for product in ("environment.json", "backbone"):
        (tmp_path / product[:3] / product).mkdir(parents=True)
        with pytest.raises(UserError, match=rf"{product[:3]} holds no results/\*\.json; judge it first"):
            read_results([tmp_path / product[:3]])
    with pytest.raises(UserError, match=r"nowhere/env; give result files or run directories$"):
        read_results([tmp_path / "nowhere" / "env"])
    with pytest.raises(UserError, match=rf"; did you mean {tmp_path}/env\?"):
        read_results([tmp_path / "enw"])


def test_a_run_directory_has_its_fine_tunings_too(tmp_path: Path) -> None:
    write(tmp_path / "results" / "knn.json", {"MAE": 80.0})
    write(tmp_path / "finetune" / "abc" / "results" / "finetune.json", {"MAE, fine-tuned": 90.0}, method="finetune")
    assert set(table(tmp_path)) == {("MAE", "knn"), ("MAE, fine-tuned", "finetune")}


def test_options_of_the_run_that_made_a_backbone(tmp_path: Path) -> None:
    assert made_with(tmp_path / "backbone") == {}
    (tmp_path / "config.yaml").write_text("- somebody: else's\n")
    assert made_with(tmp_path / "backbone") == {}
    (tmp_path / "config.yaml").write_text("seed: 3\nrun: {dir: x}\nfit: {epochs: 5, log_every: 1}\neval: {labels: 9}\n")
    assert made_with(tmp_path / "backbone") == {"seed": 3, "fit": {"epochs": 5}, "eval": {"labels": 9}}


def test_classes_without_training_label_are_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    warn_unlearnable(Labelled(images([0, 1]), images([0, 1]), ""))  # nobody needs the third
    assert capsys.readouterr().err == ""
    warn_unlearnable(Labelled(images([0, 0]), images([0, 1, 2, 2]), ""))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "bee, cat" in said
    assert "3 of the 4 test images" in said
    train, test = (replace(images([0, 0]), kind="multilabel", labels=np.eye(3)[rows]) for rows in ([0, 1], [0, 2]))
    warn_unlearnable(Labelled(train, test, ""))
    assert "label cat" in capsys.readouterr().err
    both = replace(test, labels=np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]))
    warn_unlearnable(Labelled(replace(train, labels=np.eye(3)[[0, 0]]), both, ""))
    assert "label bee, cat, but 1 of the 2 test images do" in capsys.readouterr().err  # one image with two labels
    warn_unlearnable(Labelled(replace(train, kind="regression"), replace(test, kind="regression"), ""))
    assert capsys.readouterr().err == ""


def test_reading_results_needs_no_torch() -> None:
    program = "import sys; import ssl_vit.runs.results; sys.exit(bool({'torch', 'sklearn', 'timm'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

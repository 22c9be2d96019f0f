"""Every promise of the fair-baseline contract is seen to be kept, and seen to be broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.report.findings.contract import Item, broken, check, counted
from ssl_vit.report.findings.limits import limits
from ssl_vit.report.findings.recommendation import recommend
from ssl_vit.report.findings.records import read_verdict

from made_verdict import PRETRAINING, SMALL, TRAINING, Curves, make_verdict, no_leaks

POOL = {"kind": "exact", "between": "test-pool", "pairs": 1, "images": 1, "leak": True, "test": [3],
        "sentence": "1 of 40 test images has an exact copy in the pre-training pool."}  # fmt: skip
TRAIN = {**POOL, "between": "test-train", "sentence": "1 of 40 test images has an exact copy in the training images."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_verdict(
        tmp_path / "v", SMALL, labels=(10, 100), draws=(10, 5), images=40, classes=("a", "b"), leaks=no_leaks()
    )


def items(folder: Path, edit: Callable[[dict[str, Any]], None] | None = None) -> tuple[Item, ...]:
    path = folder / "verdict.json"
    about = json.loads(path.read_text())
    if edit:
        edit(about)
    path.write_text(json.dumps(about))
    verdict = read_verdict(folder)
    return (*check(verdict), *counted(verdict))


def one(found: tuple[Item, ...], claim: str) -> Item:
    (item,) = [item for item in found if claim in item.claim]
    return item


def give(folder: Path, of: str, flops: float | None) -> None:
    """Other costs to results whose names begin so."""
    for path in folder.glob(f"results/{of}*.json"):
        told = json.loads(path.read_text())
        told["verdict"]["cost"]["flops"] = flops
        path.write_text(json.dumps(told))


def test_all_is_kept_where_all_was_done(folder: Path) -> None:
    found = items(folder)
    assert [item.claim for item in found if not item.kept] == [] and len(found) == 19
    assert broken(found) == ()


@pytest.mark.parametrize(
    ("claim", "reason", "edit"),
    [
        ("As many tuning", "different numbers of tuning", lambda a: a["tuning"]["studies"][0]["trials"].pop()),
        ("Every method is tuned", "not tuned", lambda a: a["tuning"].update(studies=[])),
        ("Every method is tuned", "not recorded", lambda a: a.pop("tuning")),
        ("Every method is tuned", "from scratch",
         lambda a: [t.update(lr=1e-3) for t in a["tuning"]["studies"][0]["trials"]]),
        ("Every method is tuned", "MAE",
         lambda a: a["tuning"]["studies"][1].update(
             trials=[t | {"layer_decay": 0.65 + i / 100} for i, t in enumerate(a["tuning"]["studies"][1]["trials"])])),
    ],
)  # fmt: skip
def test_what_is_not_kept_refuses_the_verdict(
    folder: Path, claim: str, reason: str, edit: Callable[[dict[str, Any]], None]
) -> None:
    found = items(folder, edit)
    assert not one(found, claim).kept and any(reason in words for words in broken(found))


def test_an_earlier_step_is_only_printed(folder: Path) -> None:
    found = items(folder, lambda a: a["methods"]["mae"]["pretraining"][0].update(exported=400))
    item = one(found, "Checkpoints")
    assert item.kept is False and item.detail == "MAE, seed 0: step 400 of 1,800" and broken(found) == ()


def test_more_labels_for_tuning_than_for_any_number_are_only_printed(tmp_path: Path) -> None:
    found = items(make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, leaks=no_leaks(), tuned=200))
    item = one(found, "Labels used for tuning")
    assert item.kept is False and "with 200 labels" in item.detail and broken(found) == ()


def test_baseline_without_the_cost_of_pre_training(tmp_path: Path) -> None:
    found = items(make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, longer=None, leaks=no_leaks()))
    assert broken(found) == ("the baseline was not trained at the FLOPs of pre-training and fine-tuning",)


def test_other_rules_of_training_are_seen(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, protocols={"mae": "mixup"})
    item = one(items(folder), "Same training data")
    assert item.kept is False and item.detail == "their protocols differ; MAE: rules mixup -> one"
    assert set(item.each) == {"mae"} and broken(items(folder), "mae") == ()  # findings has the words


def test_below_the_labels_of_tuning_options_are_the_usual_ones(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, leaks=no_leaks(), tuned=100)
    found = items(folder)
    assert one(found, "Labels used for tuning").kept
    item = one(found, "Every method is tuned")
    assert item.kept is False and "not with 10 labels, where every method took its usual options" in item.detail
    assert broken(found) == ()  # all took them
    said = limits(read_verdict(folder))
    assert said == ("Options were tuned with all 100 labels only; with fewer every method took its usual ones.",)


def test_few_draws_are_printed(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=(10, 100), draws=(9, 2), seeds=2, images=40, leaks=no_leaks())
    found = items(folder)
    assert [(item.kept, item.detail) for item in found if "draws" in item.claim] == [(False, "9"), (False, "2")]
    assert one(found, "pre-training seeds").detail == "2"
    assert broken(found) == ()


def public(folder: Path, **told: Any) -> Path:
    """A verdict with public weights of another network."""
    curves: Curves = {**SMALL, ("public", "train"): (75.0, 88.0)}
    make_verdict(folder, curves, labels=(10, 100), images=40, leaks=no_leaks(), protocols=told.pop("protocols", None))
    items(folder, lambda a: a["methods"]["public"].update({"architecture_hash": "wide", "network": "ViT-S"} | told))
    return folder


def test_another_network_refuses_the_verdict_on_it_alone(tmp_path: Path) -> None:
    found = items(public(tmp_path / "v"))
    item = one(found, "same network")
    assert item.kept is False and item.detail.endswith("; public weights: ViT-S") and "MAE" in item.detail
    assert broken(found) == () and broken(found, "mae") == ()
    (reason,) = broken(found, "public")
    assert reason.startswith("the network of public weights is another one (ViT-S) than the baseline's (ViT, 64 wide")
    assert "not one of pre-training alone" in reason
    (unknown,) = broken(items(public(tmp_path / "w", architecture_hash=None)), "public")
    assert unknown == "it is not recorded whether the baseline is the same network"


def test_the_longer_baseline_must_have_had_the_flops(folder: Path) -> None:
    claim, whole = "at least the FLOPs", PRETRAINING + TRAINING
    give(folder, "scratch-train-100-?-longer", 0.985 * whole)  # the last step is a whole one
    assert one(items(folder), claim).kept and broken(items(folder), "mae") == ()
    give(folder, "scratch-train-100-?-longer", 0.9 * whole)
    found = items(folder)
    assert one(found, claim).kept is False and broken(found) == ()
    assert broken(found, "mae") == ("the baseline had only 90 % of the FLOPs of MAE pre-training and fine-tuning",)
    give(folder, "scratch-train-100-?-longer", None)
    assert one(items(folder), claim).kept is None


def test_flops_at_some_numbers_of_labels_are_what_the_verdict_stands_on(folder: Path) -> None:
    for path in folder.glob("results/scratch-train-10-?-longer.*"):
        path.unlink()
    found = items(folder, lambda a: [s.update(labels=100) for s in a["tuning"]["studies"]])
    item = one(found, "at least the FLOPs")
    assert (
        item.kept is False
        and item.reason == ""
        and item.detail.startswith("with 100 labels, on which the verdict stands; not with 10; 100 %")
    )


@pytest.mark.parametrize(("metric", "level"), [("top1", None), ("balanced", "10.0"), ("macro_f1", "")])
def test_networks_that_learned_nothing_are_said_to_have(metric: str, level: str | None, tmp_path: Path) -> None:
    curves: Curves = {("scratch", "train"): (9.0, 10.0), ("mae", "train"): (10.0, 9.0), ("pixels", "knn"): (9.0, 9.0)}
    v = make_verdict(tmp_path / "v", curves, labels=(10, 100), longer=(9.0, 9.0), metric=metric)
    told = json.loads((v / "verdict.json").read_text())["test"]["labels"]
    often = 100 * max(map(told.count, told)) / len(told)
    level = f"{often:.1f}" if level is None else level
    words = f"Guessing gives {level} %, and nothing was clearly above that"
    assert any(one.startswith(words) for one in limits(read_verdict(v))) == bool(level)
    curves = {**curves, ("pixels", "knn"): (10.0, 60.0)}
    learned = make_verdict(tmp_path / "w", curves, labels=(10, 100), longer=(9.0, 9.0), metric=metric)
    assert not any(one.startswith("Guessing") for one in limits(read_verdict(learned)))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda a: a["plan"].update(pretraining=0.14, length=0.1),
         "Within the budget of 10 min, pre-training had 14 % of its usual length, and training on labels 10 %: "
         "longer training may change this."),
        (lambda a: a["provenance"]["config"].update(verdict={"pretraining": 1.0, "length": 0.5, "backbones": None}),
         "Within the budget of 10 min, training on labels had 50 % of its usual length: longer training on labels "
         "may change this."),
        (lambda a: (a["plan"].update(budget=None), a["provenance"]["config"].update(verdict={"pretraining": 0.05})),
         "Pre-training had 5.0 % of its usual length: longer pre-training may change this."),
        (lambda a: a["provenance"]["config"].update(verdict={
            "pretraining": 0.05, "backbones": "runs/mae-0, runs/mae-1,runs/mae-2"}), None),
    ],
)  # fmt: skip
def test_what_was_cut_short_is_said_at_the_top(
    folder: Path, edit: Callable[[dict[str, Any]], None], words: str | None
) -> None:
    items(folder, edit)
    assert limits(read_verdict(folder)) == (() if words is None else (words,))


def test_leaks(folder: Path) -> None:
    def of(*findings: dict[str, Any]) -> tuple[Item, Item, tuple[str, ...]]:
        (folder / "leaks.json").write_text(json.dumps(no_leaks(findings=list(findings))))
        found = items(folder)
        pool, others = [item for item in found if item.claim.startswith("No test image among")]
        return pool, others, broken(found)

    pool, others, reasons = of(POOL, TRAIN)
    assert pool.kept is False and "pre-training pool" in pool.detail and "training images" in others.detail
    assert reasons == ()  # how much a leak matters is looked at for every difference: test_leaking.py
    pool, others, reasons = of(TRAIN)
    assert pool.kept and others.kept is False and reasons == ()
    pool, others, reasons = of({**TRAIN, "leak": False})
    assert pool.kept and others.kept and reasons == ()


def test_declared_test_images_in_the_pool_refuse_nothing(folder: Path) -> None:
    (folder / "leaks.json").write_text(json.dumps(no_leaks(findings=[POOL])))
    found = items(folder, lambda a: a.update(transductive=True))
    assert broken(found) == () and any("--data.transductive" in item.detail for item in found)


def test_a_guard_that_has_not_looked_is_no_guard(folder: Path) -> None:
    (folder / "leaks.json").unlink()
    assert broken(items(folder)) == ("the leak guard has not looked for test images in the pool",)


ON_A_CNN: Curves = {
    ("scratch", "train"): (40.0, 80.0), ("cnn", "train"): (45.0, 84.0), ("lejepa@cnn", "train"): (75.0, 92.0),
    ("pixels", "knn"): (50.0, 70.0),
}  # fmt: skip


def test_a_method_on_a_cnn_is_compared_with_that_cnn(tmp_path: Path) -> None:
    options: dict[str, Any] = {"labels": (10, 100), "images": 40, "leaks": no_leaks()}
    folder = make_verdict(tmp_path / "v", ON_A_CNN, longer_cnn=(47.0, 85.0), **options)
    found = items(folder)
    assert one(found, "same network").kept
    assert one(found, "same network").detail == "CNN, LeJEPA on a CNN: ResNet of 4 blocks, 96 wide"
    assert one(found, "with at least the FLOPs").kept and one(found, "last step").kept
    assert broken(found) == () and broken(found, "lejepa@cnn") == ()
    attributions = recommend(read_verdict(folder)).attributions
    assert [(one.refused, one.way and one.way.start) for one in attributions] == [("", "lejepa@cnn")] * 2


def test_the_vits_longer_baseline_is_none_of_a_cnn(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", {**ON_A_CNN, ("mae", "train"): (60.0, 82.0)}, labels=(10, 100), images=40,
                          leaks=no_leaks())  # fmt: skip
    found = items(folder)
    assert broken(found) == () and broken(found, "mae") == ()
    assert broken(found, "lejepa@cnn") == ("the baseline was not trained at the FLOPs of pre-training and fine-tuning",)
    assert {one.way and one.way.start for one in recommend(read_verdict(folder)).attributions} == {"mae"}


def test_more_flops_and_another_network_are_seen_of_a_method_on_a_cnn(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", ON_A_CNN, labels=(10, 100), images=40, longer_cnn=(47.0, 85.0),
                          leaks=no_leaks())  # fmt: skip

    def dear(about: dict[str, Any]) -> None:
        for run in about["methods"]["lejepa@cnn"]["pretraining"]:
            run["flops"] = 100 * PRETRAINING

    assert "the baseline had only 1" in broken(items(folder, dear), "lejepa@cnn")[0]
    other = items(folder, lambda about: about["methods"]["lejepa@cnn"].update(architecture_hash="wide"))
    assert "is another one" in broken(other, "lejepa@cnn")[0]

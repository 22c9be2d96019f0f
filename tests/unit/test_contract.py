"""Every promise of the fair-baseline contract is seen to be kept, and seen to be broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.report.contract import Item, broken, check
from ssl_vit.report.records import read_verdict

from made_verdict import SMALL, make_verdict, no_leaks

POOL = {"kind": "exact", "between": "test-pool", "pairs": 1, "images": 1, "leak": True, "test": [3],
        "sentence": "1 of 40 test images have an exact copy in the pre-training pool."}  # fmt: skip
TRAIN = {**POOL, "between": "test-train", "sentence": "1 of 40 test images have an exact copy in the training images."}


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
    return check(read_verdict(folder))


def test_all_is_kept_where_all_was_done(folder: Path) -> None:
    found = items(folder)
    assert [item.claim for item in found if not item.kept] == [] and len(found) == 12
    assert broken(found) == ()


@pytest.mark.parametrize(
    ("claim", "reason", "edit"),
    [
        ("same network", "another network", lambda a: a["methods"]["mae"].update(architecture_hash="wider")),
        ("same network", "not recorded", lambda a: a["methods"]["scratch"].update(architecture_hash=None)),
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
    (item,) = [item for item in found if item.claim.startswith(claim) or claim in item.claim]
    assert not item.kept and any(reason in words for words in broken(found))


@pytest.mark.parametrize(
    ("claim", "edit"),
    [
        ("Checkpoints", lambda a: a["methods"]["mae"]["pretraining"][0].update(checkpoint="best k-NN of step 400")),
        ("At least 3 pre-training seeds", lambda a: a["methods"]["mae"]["pretraining"].pop()),
        ("Labels used for tuning", lambda a: [s.update(labels=200) for s in a["tuning"]["studies"]]),
    ],
)
def test_what_is_only_printed(folder: Path, claim: str, edit: Callable[[dict[str, Any]], None]) -> None:
    found = items(folder, edit)
    (item,) = [item for item in found if item.claim.startswith(claim)]
    assert item.kept is False and item.detail and broken(found) == ()


def test_baseline_without_the_cost_of_pre_training(tmp_path: Path) -> None:
    found = items(make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, longer=None, leaks=no_leaks()))
    assert broken(found) == ("the baseline was not trained at the FLOPs of pre-training and fine-tuning",)


def test_other_rules_of_training_are_seen(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=(10, 100), images=40, protocols={"mae": "mixup"})
    (item,) = [item for item in items(folder) if item.claim.startswith("Same images seen")]
    assert item.kept is False and item.detail.startswith("their protocols differ")


def test_below_the_labels_of_tuning_options_are_the_usual_ones(folder: Path) -> None:
    found = items(folder, lambda a: [s.update(labels=100) for s in a["tuning"]["studies"]])
    (item,) = [item for item in found if item.claim.startswith("Labels used for tuning")]
    assert item.kept and item.detail.endswith("with 10 every method took its usual options")


def test_few_draws_are_printed(tmp_path: Path) -> None:
    folder = make_verdict(tmp_path / "v", SMALL, labels=(10, 100), draws=(9, 4), images=40, leaks=no_leaks())
    found = [item for item in items(folder) if "draws" in item.claim]
    assert [(item.kept, item.detail) for item in found] == [(False, "9"), (False, "4")]
    assert broken(items(folder)) == ()


def test_leaks(folder: Path) -> None:
    def of(*findings: dict[str, Any]) -> tuple[Item, Item, tuple[str, ...]]:
        (folder / "leaks.json").write_text(json.dumps(no_leaks(findings=list(findings))))
        found = items(folder)
        pool, others = [item for item in found if item.claim.startswith("No test image among")]
        return pool, others, broken(found)

    pool, others, reasons = of(POOL, TRAIN)
    assert pool.kept is False and "pre-training pool" in pool.detail and "training images" in others.detail
    assert reasons == ("test images are among the images to pre-train on",)
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

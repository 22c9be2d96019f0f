"""A look at a verdict that is still being made: which ways are worth another draw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssl_vit.configs import ResolvedModel
from ssl_vit.statistics.advice import Way
from ssl_vit.verdict.looking import worth_more
from ssl_vit.verdict.options import verdict_recipe
from ssl_vit.verdict.study import Study

from made_verdict import make_verdict

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, pool="mean")
STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(), kind="class", metric="top1", labels=(10, 100),
    starts=("scratch", "mae"), preset="digits", model=MODEL, networks={}, given={}, epochs={}, base_lr={}, tuned=(),
    matched=(), judged=100, heads=(5120, 640),
)  # fmt: skip
CURVES = {
    ("scratch", "train"): (20.0, 80.0), ("mae", "train"): (60.0, 80.0), ("mae", "linear"): (85.0, 60.0),
}  # fmt: skip


def test_what_is_settled_or_worse_needs_no_further_draw(tmp_path: Path) -> None:
    for name in ("results", "pictures"):
        (tmp_path / name).mkdir()
    make_verdict(tmp_path, CURVES, labels=(10, 100), images=400, longer=None)
    (tmp_path / "verdict.json").unlink()
    study = replace(STUDY, folder=tmp_path)
    test = {"labels": [i % 10 for i in range(400)], "clusters": None}
    both = {Way("scratch", "train"), Way("mae", "train")}
    found = worth_more(study, 4, 10, {"mae": 3e13}, test)
    assert found[10] == frozenset() and found[100] <= both
    assert not worth_more(study, 2, 10, {"mae": 3e13}, test)[10] - {Way("mae", "linear"), *both}
    few = worth_more(study, 2, 10, {"mae": 3e13}, test)
    assert both <= few[100], "two draws tell nothing of what was trained"

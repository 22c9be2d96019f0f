"""What a verdict opens with: which networks stand beside the Vision Transformer, and which a plan keeps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ssl_vit.configs import ModelConfig, PoolConfig, RunConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.verdict.counting import may_go_on, refuse_by_counting
from ssl_vit.verdict.opening import Opened, decided, open_study
from ssl_vit.verdict.options import Comparison, VerdictConfig, verdict_recipe


def images(name: str, seed: int, side: int, count: int = 40) -> ImageSet:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 1, side, side), dtype=np.uint8)
    return ImageSet(
        name, ArrayRows(pixels, name), np.arange(count), Format(1, 8), Sizes((side, side), side), f"{name}-{seed}",
        labels=np.arange(count) % 2, classes=("a", "b"),
    )  # fmt: skip


def opened(folder: Path, model: str, side: int = 32, jobs: int | None = 1, **options: object) -> Opened:
    asked = VerdictConfig(**{"methods": "lejepa,cnn", **options})
    cfg = verdict_recipe()(data=PoolConfig(path="made"), model=ModelConfig(model, img_size=side), verdict=asked)
    data = Labelled(images("train", 0, side), images("test", 1, side), "made", "whole")
    return open_study(decided(cfg, folder, images("pool", 0, side), data, jobs), jobs)


@pytest.mark.parametrize(
    ("model", "side", "jobs", "cnn", "size", "first"),
    [("vit_micro", 32, 1, "resnet_micro", 32, "cnn"), ("vit_mini", 32, 1, "resnet_mini", 32, "cnn"),
     ("vit_mini", 32, None, "test_resnet", 64, "mae"), ("vit_micro", 8, 1, "test_resnet", 32, "mae"),
     ("resnet_mini", 32, 1, "test_resnet", 64, "mae")],
)  # fmt: skip
def test_the_cnn_of_a_study(
    model: str, side: int, jobs: int | None, cnn: str, size: int, first: str, tmp_path: Path
) -> None:
    study = opened(tmp_path, model, side, jobs).study
    assert (study.networks["cnn"].name, study.networks["cnn"].img_size) == (cnn, size)
    assert study.worth[0] == first
    assert "lejepa@cnn" in study.starts


def test_the_longer_baseline_is_where_options_are_tuned(tmp_path: Path) -> None:
    """At other numbers of labels nothing may be said of pre-training, and it would be trained for nothing."""
    asked = VerdictConfig(methods="mae,pixels", labels=(10, 100))
    cfg = verdict_recipe()(data=PoolConfig(path="made"), model=ModelConfig("vit_micro", img_size=8), verdict=asked)
    data = Labelled(images("train", 0, 8, 400), images("test", 1, 8), "made", "whole")
    study = decided(cfg, tmp_path, images("pool", 0, 8), data, 1).study
    assert (study.labels, study.tuned, study.matched) == ((10, 100, 400), (100, 400), (100, 400))


def test_a_plan_that_is_there_has_its_networks(tmp_path: Path) -> None:
    told = tmp_path / "network.json"
    assert opened(tmp_path, "vit_micro").study.networks["cnn"].name == "resnet_micro"
    before = json.loads(told.read_text())
    before["cnn"] |= {"name": "test_resnet", "img_size": 64}  # as another version chose
    told.write_text(json.dumps(before))
    plan = {"budget": 1800.0, "model": {"name": "vit_micro", "img_size": 32}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    study = opened(tmp_path, "vit_micro").study
    assert study.networks["cnn"] == replace(ModelConfig("test_resnet"), img_size=64, pool="mean")
    assert json.loads(told.read_text())["cnn"]["name"] == "test_resnet"
    assert opened(tmp_path, "vit_micro", budget="1h").study.networks["cnn"].name == "resnet_micro"


def asked(model: str, **options: object) -> Comparison:
    verdict = VerdictConfig(**{"methods": "lejepa,cnn", **options})
    return verdict_recipe()(data=PoolConfig(path="made"), model=ModelConfig(model, img_size=32), verdict=verdict)


MADE = Labelled(images("train", 0, 32), images("test", 1, 32), "made", "whole")


@pytest.mark.parametrize("methods", ["mae,cnn", "mae,cnn,public", None])
def test_a_budget_that_the_fastest_core_would_not_keep_is_refused(methods: str | None) -> None:
    def refused(budget: float, spent: float = 4.0) -> float | None:
        cfg = asked("vit_micro", methods=methods, budget=f"{budget:.0f}s")
        try:
            refuse_by_counting(cfg, images("pool", 0, 32), MADE, 1, spent)
        except UserError as error:
            told = re.fullmatch(rf"--verdict.budget: {budget:.0f} s is too short to recommend anything; by counting, "
                                r"the least that can takes \d+ s or more here \(three draws at 3 numbers of labels\); "
                                r"give more than (\d+) s, or leave the option out", str(error))  # fmt: skip
            assert told, error
            return float(told[1])
        return None

    least = refused(20)
    assert least is not None and least > 20 and refused(1.05 * least) is None
    assert refused(1.05 * least, spent=10.0) is not None, "some of it is gone"


@pytest.mark.parametrize(("folder", "named", "goes_on"), [
    ("v", "v", True), ("v", "w", False), ("v", None, False), ("runs/verdict-made-01234567", None, True),
    ("runs/verdict-made-01234567", "v", False), ("runs/mae-made-01234567", None, False),
])  # fmt: skip
def test_what_may_go_on_is_not_counted(
    folder: str, named: str | None, goes_on: bool, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir(parents=True)
    (Path(folder) / "plan.json").write_text("{}")
    assert may_go_on(replace(asked("vit_micro"), run=RunConfig(named))) is goes_on

"""What a verdict remembers of leaks, and what an earlier start with other options leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.configs import ModelConfig, PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.runs.directory import RunDir
from ssl_vit.verdict.leaks import look_for_leaks
from ssl_vit.verdict.opening import decided, open_images, open_study
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe

CPU = torch.device("cpu")
WARN, STOP = PoolConfig(on_leak="warn"), PoolConfig(on_leak="stop")


def images(name: str, seed: int, groups: np.ndarray | None = None) -> ImageSet:
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 1, 16, 16), dtype=np.uint8)
    rows = ArrayRows(pixels, name)
    return ImageSet(
        name, rows, np.arange(8), Format(1, 8), Sizes((16, 16), 16), f"{name}-{seed}", labels=np.arange(8) % 2,
        classes=("a", "b"), groups=groups,
    )  # fmt: skip


TRAIN, TEST, OTHERS = images("train", 0), images("test", 1), images("others", 2)
COPIED = images("pool", 1)
"""A pool that holds the test images."""


def looked(place: Path, cfg: PoolConfig, pool: ImageSet, train: ImageSet = TRAIN) -> bool:
    """Whether the leak guard looked (again)."""
    before = (place / "leaks.json").stat().st_mtime_ns if (place / "leaks.json").exists() else None
    look_for_leaks(cfg, RunDir(place, True), pool, Labelled(train, TEST, "made", "whole"), CPU)
    return (place / "leaks.json").stat().st_mtime_ns != before


def leaks(place: Path) -> list[bool]:
    return [finding["leak"] for finding in json.loads((place / "leaks.json").read_text())["findings"]]


def test_the_guard_looks_once_and_again_at_other_images(tmp_path: Path) -> None:
    assert looked(tmp_path, STOP, OTHERS)
    assert not looked(tmp_path, STOP, OTHERS)
    assert looked(tmp_path, WARN, COPIED)
    assert leaks(tmp_path) == [True]
    grouped = replace(TRAIN, groups=np.arange(8))
    assert looked(tmp_path, WARN, OTHERS, grouped)
    assert looked(tmp_path, WARN, OTHERS, replace(TRAIN, groups=np.arange(8) // 2))


def test_a_declaration_counts_for_the_start_that_makes_it(tmp_path: Path) -> None:
    looked(tmp_path, replace(STOP, transductive=True), COPIED)
    assert leaks(tmp_path) == [False]
    with pytest.raises(UserError, match="8 of 8 test images leak"):
        looked(tmp_path, STOP, COPIED)
    assert looked(tmp_path, WARN, COPIED)
    assert leaks(tmp_path) == [True]


def test_leaks_that_were_warned_of_stop_where_that_is_asked_for(tmp_path: Path) -> None:
    looked(tmp_path, WARN, COPIED)
    assert not looked(tmp_path, WARN, COPIED)
    with pytest.raises(UserError, match="8 of 8 test images leak"):
        looked(tmp_path, STOP, COPIED)


def test_what_stops_a_verdict_is_shown_and_named(tmp_path: Path) -> None:
    page = tmp_path / "leaks.html"
    with pytest.raises(UserError) as stopped:
        looked(tmp_path, STOP, COPIED)
    assert f"(all in {page}); have copies left out with --data.on_leak drop, declare" in str(stopped.value)
    text = page.read_text()
    assert "Nothing was trained: 8 of 8 test images leak" in text
    assert text.count("<img src=") == 16  # both of every pair
    told = json.loads((tmp_path / "leaks.json").read_text())
    assert told["affected_images"] == [TEST.where(i) for i in range(8)]
    assert "\n".join(told["affected_images"]) in text
    assert looked(tmp_path, WARN, COPIED)  # looked before, but it is told what of
    assert not page.exists()


def test_nothing_is_shown_where_nothing_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looked(tmp_path, WARN, COPIED)
    looked(tmp_path, STOP, OTHERS)
    assert not (tmp_path / "leaks.html").exists()
    assert "leaks.html" not in capsys.readouterr().err


def test_an_untrained_network_of_other_options_does_not_stay(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(10):
            pixels = np.random.default_rng(i).integers(0, 256, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    model = ModelConfig(img_size=16, patch_size=8, width=16, depth=1, heads=2)
    cfg = verdict_recipe()(
        data=PoolConfig(path=str(tmp_path / "images")), model=model,
        verdict=VerdictConfig(methods="public", public="vit_no_such.name"),
    )  # fmt: skip
    pool, _, data = open_images(cfg)
    with pytest.raises(UserError, match="neither a folder nor a timm model"):
        open_study(decided(cfg, tmp_path / "v", pool, data, None), None)
    wider = replace(cfg, model=replace(model, width=32), verdict=VerdictConfig(methods="pixels"))
    open_study(decided(wider, tmp_path / "v", pool, data, None), None)
    about = json.loads((tmp_path / "v" / "runs" / "untrained" / "backbone" / "config.json").read_text())
    assert about["model_args"]["embed_dim"] == 32

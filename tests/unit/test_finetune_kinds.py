"""Training on several labels per image and on numbers: what is judged is in the labels' own terms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ssl_vit.configs import ResolvedAugment, ResolvedFit, ResolvedModel, ResolvedOptim
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.data.targets import Kind
from ssl_vit.evaluation import labelled_run
from ssl_vit.methods.supervised import ResolvedSupervised, ResolvedSupervisedRecipe
from ssl_vit.models.build import build_backbone
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images whose upper and left parts are bright or not, and how much of each."""
    rng = np.random.default_rng(seed)
    amount = rng.uniform(0, 1, (n, 2))
    pixels = np.full((n, 1, 8, 8), 40.0) + rng.normal(0, 4, (n, 1, 8, 8))
    pixels[:, :, :4] += 90 * amount[:, 0, None, None, None]
    pixels[:, :, :, :4] += 90 * amount[:, 1, None, None, None]
    return pixels.round().clip(0, 255).astype(np.uint8), amount


def labelled(kind: Kind) -> Labelled:
    parts = []
    for n, seed in ((256, 0), (100, 1)):
        pixels, amount = halves(n, seed)
        labels = (amount > 0.5).astype(np.float64) if kind == "multilabel" else 1000 + amount * np.array([50.0, 2000.0])
        sizes = Sizes((8, 8), 8)
        parts.append(
            ImageSet(
                "x",
                ArrayRows(pixels, "x"),
                np.arange(n),
                Format(1, 8),
                sizes,
                "",
                labels=labels,
                classes=("top", "left"),
                kind=kind,
            )
        )
    return Labelled(parts[0], parts[1], "made")


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_what_is_learned(kind: Kind, tmp_path: Path) -> None:
    data = labelled(kind)
    accelerator = launch.start("fp32", 0)
    torch.manual_seed(0)
    model = ResolvedModel("vit_tiny_patch16_224", 8, 4, 32, 2, 2, "sincos", "mean")
    cfg = ResolvedSupervisedRecipe(
        preset="digits", model=model,
        supervised=ResolvedSupervised("mean", mixup=0.0, cutmix=0.0, drop_path=0.0, ema_decay=0.9),
        augment=ResolvedAugment((1.0, 1.0), flip=False, policy="none", erasing=0.0),
        optim=ResolvedOptim(lr=3e-3, base_lr=1e-3),
        fit=ResolvedFit(epochs=40.0, min_steps=0, batch_size=64, micro_batch=64, precision="fp32"),
    )  # fmt: skip
    trained = labelled_run.train_on_labels(
        build_backbone(model, 1), data, measure_scale(data.train), cfg, size=8, run=RunDir(tmp_path, True),
        accelerator=accelerator, quiet=True,
    )  # fmt: skip
    metrics = trained.metrics
    assert trained.answers["units"].mean() == pytest.approx(
        metrics[labelled_run.headline(kind, data.test.labels)], rel=1e-4
    )
    if kind == "multilabel":
        assert metrics["average_precision"] > 90
        assert metrics["macro_f1"] > 85
    else:  # in the units of the labels, whose deviations are about 14 and 577
        assert metrics["per_target"]["top"]["mean_absolute_error"] < 5
        assert metrics["per_target"]["left"]["mean_absolute_error"] < 200
        assert metrics["r2"] > 0.7

"""Result files as an evaluation writes them, of made-up numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ssl_vit.configs import EvalConfig, LabelsConfig
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.session import result_of
from ssl_vit.runs.directory import RunDir

KNN = {"knn": {"k": 20, "temperature": 0.07}}
BACKBONE = {"weights": "w0", "folder": "runs/a/backbone", "options": {"seed": 0, "mae": {"mask_ratio": 0.5}}}


def images(labels: list[int], name: str = "photos", source: str = "s") -> ImageSet:
    pixels = np.zeros((len(labels), 1, 8, 8), dtype=np.uint8)
    return ImageSet(
        name, ArrayRows(pixels, name), np.arange(len(labels)), Format(1, 8), Sizes((8, 8), 8), source,
        labels=np.array(labels, dtype=np.int64), classes=("ape", "bee", "cat"),
    )  # fmt: skip


def labelled(train: int = 40, source: str = "s") -> Labelled:
    return Labelled(images([0, 1] * (train // 2)), images([0, 1, 1], source=source), "a fifth")


def write(
    path: Path,
    top1: dict[str, float],
    *,
    method: str = "knn",
    options: dict[str, Any] | None = None,
    data: Labelled | None = None,
    size: int = 8,
    metric: str = "top1",
    cfg: EvalConfig | LabelsConfig | None = None,
    seed: int = 0,
    backbone: dict[str, Any] | None = BACKBONE,
) -> Path:
    """A result file of some methods' values, the backbone's first."""
    rows = [{"method": name, metric: value, "images": 3} for name, value in top1.items()]
    result = result_of(
        method,
        rows,
        options or KNN,
        data=data or labelled(),
        size=size,
        metric=metric,
        cfg=cfg or EvalConfig(),
        seed=seed,
    )
    RunDir(path.parent.parent, True).write_result(path.stem, {**result, "backbone": backbone})
    return path

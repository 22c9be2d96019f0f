"""The whole way in small, as part of the quick tier: pre-training, judging, and a report of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch

pytestmark = pytest.mark.quick

SHORT = ["--eval.labels", "20", "--fit.epochs", "1", "--fit.min_steps", "3", "--fit.batch_size", "16"]


def test_from_images_to_a_report(backbone: str, script, small: list[str]) -> None:
    for name in ("metrics.jsonl", "config.yaml", "environment.json", "figures/reconstructions.png"):
        assert Path(backbone, name).stat().st_size > 0
    assert timm.create_model(f"local-dir:{backbone}/backbone", pretrained=True)(torch.zeros(1, 1, 8, 8)).shape == (
        1,
        16,
    )
    for draw in ("0", "1"):
        words = [*SHORT, "--eval.draw", draw]
        for name, more in (
            ("eval/knn.py", words[:2] + words[-2:]),
            ("eval/finetune.py", words),
        ):
            status, _, err = script(name, "--backbone", backbone, *more)
            assert status == 0, err
        status, _, err = script("recipes/supervised.py", *small[:-2], *words, "--run.dir", f"scratch-{draw}")
        assert status == 0, err
    rows = json.loads(Path("run/results/knn-20-labels-draw-0.json").read_text())["rows"]
    assert {row["method"] for row in rows} == {"MAE", "random weights", "raw pixels"}
    status, out, err = script("eval/report.py", "run", "scratch-0", "scratch-1", "--out", "report")
    assert status == 0, err
    assert out.startswith("With 20 labels: ")
    for name in ("report.html", "report.md"):
        assert "raw pixels" in Path("report", name).read_text()

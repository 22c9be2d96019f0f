"""What the JPEG copy costs: networks of another checkout, judged and trained further on a table of files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.nn.functional import pad

FURTHER = ["--further", "resnet20", "--epochs", "90"]
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
THEIRS = """
from torch import nn
def resnet20():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
"""


def table(path: Path, classes: list[int]) -> None:
    """Dark images of class 0 and bright ones of class 1."""
    rows = []
    for i, kind in enumerate(classes):
        held = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), 40 + 150 * kind + i % 7, np.uint8)).save(held, "PNG")
        rows.append({"bytes": held.getvalue(), "path": None})
    pq.write_table(pa.table({"image": rows, "label": classes}), path)


def test_networks_are_judged_and_trained_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import jpeg_copy

    (tmp_path / "pretrained_models").mkdir()
    (tmp_path / "resnet.py").write_text(THEIRS)
    wrong = {"module.2.weight": torch.tensor([[2.0] * 3, [-2.0] * 3]), "module.2.bias": torch.zeros(2)}
    torch.save({"state_dict": wrong, "best_prec1": 91.5}, tmp_path / "pretrained_models/resnet20-12.th")
    table(tmp_path / "train.parquet", [0, 1] * 64)
    table(tmp_path / "test.parquet", [0, 1, 1, 1])
    words = [
        "--data",
        str(tmp_path),
        "--networks",
        str(tmp_path),
        "--further",
        "resnet20",
        "--epochs",
        "90",
        "--out",
        str(tmp_path / "out"),
    ]
    monkeypatch.setattr("sys.argv", ["jpeg_copy.py", *words])
    jpeg_copy.main()
    result = json.loads((tmp_path / "out/jpeg_copy.json").read_text())
    [row] = result["rows"]
    assert row == {"network": "resnet20", "lossless": 91.5, "as it is": 0.0, "epochs": 90, "trained further": 100.0}
    text = (tmp_path / "out/jpeg_copy.md").read_text()
    assert "| resnet20 | 91.50 | 0.00 | 100.00 | 90 |" in text and str(tmp_path) not in text
    command = "python benchmarks/jpeg_copy.py --data FOLDER --networks CHECKOUT --further resnet20 --epochs 90"
    assert result["about"]["command"] == command and command in text
    assert "epoch 90 of 90" in capsys.readouterr().out
    for words, said in ((["--only", "resnet32"], "no trained network"), (["--networks", "."], "is no checkout of")):
        monkeypatch.setattr("sys.argv", ["jpeg_copy.py", "--data", str(tmp_path), "--networks", str(tmp_path), *words])
        with pytest.raises(SystemExit, match=said):
            jpeg_copy.main()


def test_every_image_is_moved_by_up_to_four_pixels_and_half_are_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from jpeg_copy import varied

    pixels = 1 + torch.arange(64 * 3 * 6 * 5).reshape(64, 3, 6, 5).float()
    found = varied(pixels, torch.Generator().manual_seed(0))
    assert found.shape == pixels.shape
    moves = set()
    for image, made in zip(pixels, found, strict=True):
        wide = pad(image, [4] * 4)
        crops = {(down, right): wide[:, down : down + 6, right : right + 5] for down in range(9) for right in range(9)}
        places = [(*at, False) for at, crop in crops.items() if torch.equal(made, crop)]
        places += [(*at, True) for at, crop in crops.items() if torch.equal(made, crop.flip(2))]
        assert places
        moves.add(places[0])
    assert {move[0] for move in moves} == {move[1] for move in moves} == set(range(9))
    assert {move[2] for move in moves} == {False, True}

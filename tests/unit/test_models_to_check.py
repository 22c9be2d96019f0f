"""The networks in docs/models reach what their table says, with the command that stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from made_scripts import ROOT, InProcess

MODELS = ROOT / "docs" / "models"
ROWS = re.findall(
    r"^\| \[(\w+)\].*\| ([\d.]+)(?: \(raw[^|]*)? \| `ssl-vit (.*)` \|$", (MODELS / "README.md").read_text(), re.M
)


def test_every_network_is_in_the_table_and_small() -> None:
    assert {name for name, _, _ in ROWS} == {path.name for path in MODELS.iterdir() if path.is_dir()}
    assert all(path.stat().st_size < 12e6 for path in MODELS.glob("*/model.safetensors"))


@pytest.mark.parametrize(("name", "expected", "command"), [row for row in ROWS if row[0] == "digits"])
def test_the_number_comes_out(name: str, expected: str, command: str, script: InProcess, tmp_path: Path) -> None:
    kind, *words = command.replace("docs/models", str(MODELS)).split()
    status, _, err = script(f"eval/{kind}.py", *words)
    assert status == 0, err
    rows = json.loads((tmp_path / "runs/check/results/knn.json").read_text())["rows"]
    found = next(row["top1"] for row in rows if row["method"] == "MAE" and row["k"] == 20)
    assert found == pytest.approx(float(expected), abs=0.6)  # two of 359 images
    assert not list((MODELS / name).glob("results"))

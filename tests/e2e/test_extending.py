"""The code in docs/extending.md does what the page says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ssl_vit.configs import EvalConfig, FitConfig, LinearConfig, LinearRecipe, ModelConfig, RunConfig
from ssl_vit.configs.protocols import _HERE, PROTOCOLS, Protocol
from ssl_vit.evaluation.judging import evaluate
from ssl_vit.training.pretraining import pretrain

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The page's modules that are found by their names, as though the files were there."""
    found: dict[str, ModuleType] = {}
    for name in ("methods.rotation", "objectives.rotation", "evaluation.protocols.centroid", "data.sources.npz"):
        block = re.search(
            rf"^```python\n# ssl_vit/{name.replace('.', '/')}\.py\n(.*?)^```", PAGE.read_text(), re.M | re.S
        )
        assert block is not None, name
        found[name] = ModuleType(f"ssl_vit.{name}")
        monkeypatch.setitem(sys.modules, f"ssl_vit.{name}", found[name])
        exec(compile(block[1], f"{PAGE}: {name}", "exec"), vars(found[name]))
    yield found


def test_a_method_trains_and_goes_on(written: dict[str, ModuleType], tmp_path: Path) -> None:
    method = written["methods.rotation"]
    recipe = method.RotationRecipe(
        run=RunConfig(str(tmp_path)), model=ModelConfig(width=16, depth=2, heads=2),
        fit=FitConfig(epochs=1.0, batch_size=128, log_every=1),
    )  # fmt: skip
    run = pretrain(method.METHOD, recipe)
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(0 <= line["right"] <= 1 for line in lines)
    assert json.loads((run.backbone / "config.json").read_text())["ssl_vit"]["method"] == "rotation"


def test_a_source_gives_images_and_labels(written: dict[str, ModuleType], tmp_path: Path) -> None:
    images = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 1, 8, 8)
    np.savez(tmp_path / "few.npz", images=images, labels=np.array(["b", "a", "b"]))
    (part,) = written["data.sources.npz"].open_npz(tmp_path / "few.npz", labelled=True).values()
    assert np.array_equal(part.rows.raw(2), images[2])
    assert [part.classes[i] for i in part.labels] == ["b", "a", "b"]
    assert written["data.sources.npz"].open_npz(tmp_path / "few.npz", labelled=False)["all"].labels is None


@pytest.mark.usefixtures("written")
def test_a_protocol_is_run_by_its_entry(monkeypatch: pytest.MonkeyPatch, tiny_run: Path, tmp_path: Path) -> None:
    entry = re.search(r"^```python\n(Protocol\(.*)\n```", PAGE.read_text(), re.M)
    assert entry is not None
    protocol = eval(entry[1], {"Protocol": Protocol, "_HERE": _HERE})
    monkeypatch.setitem(PROTOCOLS, "centroid", protocol)
    cfg = LinearRecipe(
        str(tiny_run), run=RunConfig(str(tmp_path)), eval=EvalConfig(labels=100), linear=LinearConfig("centroid")
    )
    found = evaluate(cfg, protocol)
    assert [row["method"] for row in found.rows] == ["MAE", "random weights", "raw pixels"]
    assert found.path.name.startswith("centroid")
    assert found.rows[2]["top1"] > 50  # class means of pixels

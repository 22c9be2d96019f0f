"""The code in docs/extending.md does what the page says."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ssl_vit.configs import (
    DataConfig,
    EvalConfig,
    FitConfig,
    LabelledDataConfig,
    LinearConfig,
    LinearRecipe,
    ModelConfig,
    RunConfig,
)
from ssl_vit.configs.protocols import _HERE, PROTOCOLS, Protocol
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources import locate
from ssl_vit.data.sources.known import open_known
from ssl_vit.data.sources.opening import open_labelled
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


@pytest.fixture
def opening(written: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """``_open_file`` with the page's branch at its top."""
    branch = re.search(r"at the top of `_open_file`:\n\n```python\n(.*?)```", PAGE.read_text(), re.S)
    assert branch is not None
    source = textwrap.dedent(inspect.getsource(locate._open_file))
    head, _, body = source.partition("\n")
    changed = dict(vars(locate))
    exec(compile(f"from __future__ import annotations\n{head}\n{branch[1]}{body}", str(PAGE), "exec"), changed)
    monkeypatch.setattr(locate, "_open_file", changed["_open_file"])


@pytest.mark.usefixtures("opening")
def test_the_new_source_is_opened_by_its_path(tmp_path: Path) -> None:
    """With labels it is judged on, without them it can still be looked at; what is wrong is told in one line."""
    rng = np.random.default_rng(0)
    path, images = tmp_path / "few.npz", rng.integers(0, 255, (20, 1, 8, 8)).astype(np.uint8)
    data, judged = DataConfig(path=str(path)), LabelledDataConfig()
    np.savez(path, images=images, labels=np.repeat(["b", "a"], 10))
    found = open_labelled(data, judged)
    assert (len(found.train), len(found.test), found.train.classes) == (16, 4, ("a", "b"))
    assert found.labels == "array labels of few.npz: all 20 images have a label"
    np.savez(path, images=images)
    assert len(open_known(data)[0]) == 20 and open_known(data)[1] is None
    with pytest.raises(UserError, match=r"labels are needed, but .*few\.npz has none"):
        open_labelled(data, judged)
    with pytest.raises(UserError, match=r"--data\.label_column .* names a column of a table .* is one of arrays"):
        open_known(DataConfig(path=str(path), label_column="kind"))
    for wrong, told in (
        ({"images": images.astype(float)}, "needs an array images"),
        ({"pictures": images}, "needs an array images"),
        ({"images": images, "labels": np.zeros((20, 2))}, r"has labels \[20, 2\] for 20 images"),
    ):
        np.savez(path, **wrong)
        with pytest.raises(UserError, match=told):
            open_labelled(data, judged)
    for damaged in (b"nothing", b"PK\x03\x04 and nothing", b""):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged, or no \.npz file"):
            open_known(data)


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

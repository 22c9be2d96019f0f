"""The table of evaluation protocols: whole, and enough for a protocol that nothing else knows."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
from ssl_vit.configs import (
    EvalConfig,
    KNNRecipe,
    LinearConfig,
    LinearRecipe,
    ResolvedModel,
    flat,
    to_dict,
)
from ssl_vit.configs.metrics import Kind
from ssl_vit.configs.protocols import PROTOCOLS, Protocol, by_method, probe_named
from ssl_vit.core.errors import UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.evaluation.answers import answers_of
from ssl_vit.evaluation.judging import Judged, evaluate
from ssl_vit.evaluation.metrics import judge
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.supervised import FinetuneRecipe
from ssl_vit.models.build import build_backbone
from ssl_vit.report.findings.runs import read_runs
from ssl_vit.runs.results import compare, read_results

TOY = Protocol("toy", "largest-class", "linear", "toy_protocol:judge_toy", ("linear.protocol",))


@pytest.fixture
def backbone(tmp_path: Path) -> Path:
    model = ResolvedModel("vit_tiny_patch16_224", 8, 4, width=16, depth=1, heads=2, positions="learnable", pool="mean")
    network = build_backbone(model, 1)
    about = {"objective": "MAE", "data": {"path": "digits"}, "eval_data": {}}
    export_backbone(network, tmp_path / "run" / "backbone", PixelScale((0.5,), (0.2,), 8), "mean", about)
    return tmp_path / "run"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol that answers the largest class: one function, and one line of the table."""

    def judge_toy(cfg: LinearRecipe, session: Any, accelerator: Any) -> Judged:
        train, test = session.data.train, session.data.test
        scores = np.tile(np.bincount(train.labels, minlength=len(test.classes)).astype(float), (len(test), 1))
        rows = [{"method": "MAE", **judge("class", scores, test.labels, test.classes)}]
        answers = answers_of("class", session.metric, scores, test.labels, test.classes, positions=np.arange(len(test)))
        return Judged(rows, {"linear": {"protocol": "toy"}}, "the largest class", answers, {"method": "features"})

    module = ModuleType("toy_protocol")
    module.judge_toy = judge_toy  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "toy_protocol", module)
    monkeypatch.setitem(PROTOCOLS, "toy", TOY)


def test_the_table_is_whole() -> None:
    recipes = {"knn": KNNRecipe(), "linear": LinearRecipe(), "train": FinetuneRecipe()}
    for name, one in PROTOCOLS.items():
        assert one.name == name and by_method(one.method) is one
        assert one.kinds and set(one.kinds) <= set(get_args(Kind))
        options = flat(to_dict(recipes[one.use]))
        known = {*options, *(option.partition(".")[0] for option in options)}
        assert set(one.reads) <= known
        if one.run:
            module, _, function = one.run.partition(":")
            assert callable(getattr(import_module(module), function))
    assert len({one.result for one in PROTOCOLS.values()}) == len(PROTOCOLS)
    linear = [name for name, one in PROTOCOLS.items() if one.use == "linear"]
    assert all(f"{name}:" in flat_help() or f"{name} and" in flat_help() for name in linear)


def flat_help() -> str:
    """What ``--help`` says of ``--linear.protocol``."""
    source = Path(sys.modules[LinearConfig.__module__].__file__ or "").read_text()
    return " ".join(source.partition("protocol: str")[2].partition("pool:")[0].split())


def test_an_unknown_protocol_lists_the_table(toy: None) -> None:
    with pytest.raises(UserError, match=r"--linear\.protocol cashed is none of cached, .*, toy; did you mean cached"):
        probe_named("cashed")
    with pytest.raises(UserError, match="none of"):
        probe_named("knn")


def test_a_protocol_of_the_table_runs_and_stands_in_tables(
    toy: None, backbone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = LinearRecipe(str(backbone), eval=EvalConfig(labels=100), linear=LinearConfig("toy"))
    found = evaluate(cfg, probe_named("toy"))
    assert found.path == backbone / "results" / "largest-class-100-labels-draw-0.json"
    assert found.metric == "top1" and 8 < found.rows[0]["top1"] < 12
    out = capsys.readouterr().out
    assert "digits: the largest class" in out and out.endswith(f"Result: {found.path}\n")
    assert found.path.with_suffix(".npz").exists()
    assert json.loads(found.path.read_text())["method"] == "largest-class"
    table = compare(read_results([backbone]))
    assert [row[:2] for row in table.rows] == [("MAE", "largest-class")]
    assert [(s.start, s.use, s.labels) for s in read_runs([backbone]).scores] == [("mae", "linear", 100)]


def test_what_a_protocol_does_not_read_is_refused(toy: None, backbone: Path) -> None:
    for options, name in ((LinearConfig("toy", folds=3), "folds"), (LinearConfig("toy", pool="cls"), "pool")):
        with pytest.raises(UserError, match=rf"--linear.{name} has no effect with --linear.protocol toy, which reads"):
            evaluate(LinearRecipe(str(backbone), linear=options), probe_named("toy"))

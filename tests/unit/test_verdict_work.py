"""Units of work whose training diverges: the verdict goes on, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssl_vit.core.errors import Diverged
from ssl_vit.runs.directory import to_yaml
from ssl_vit.verdict import work
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate

from made_study import STUDY

TUNED = Candidate(9.0, 0.05, 1.0, 1.0)


def study_in(place: Path) -> Study:
    return replace(STUDY, folder=place, recipe=verdict_recipe()(verdict=VerdictConfig(seeds=1)))


def trains(largest: float) -> Callable[[str], Callable[[Any], None]]:
    """Scripts that diverge above a learning rate."""

    def main(config: Any) -> None:
        run = Path(config.run.dir)
        (run / "results").mkdir(parents=True)
        (run / "config.yaml").write_text(to_yaml(config))
        if config.optim.lr is None or config.optim.lr > largest:
            raise Diverged("the loss is not finite")
        result = {"rows": [{"method": "x", "top1": 50.0}], "protocol": {"optim": {"lr": config.optim.lr}}}
        (run / "results" / "r.json").write_text(json.dumps(result))
        np.savez(run / "results" / "r.npz", units=np.full(2, 50.0))
        (run / "metrics.jsonl").write_text(json.dumps({"step": 4, "loss": 1.0}) + "\n")
        timing = {"step": 4, "images_per_second": 8.0, "peak_memory": 1}
        (run / "timing.jsonl").write_text(json.dumps(timing) + "\n")
        (run / "environment.json").write_text(json.dumps({"hardware": {}}))

    return lambda script: main


def trained(place: Path, monkeypatch: pytest.MonkeyPatch, largest: float, chosen: Candidate) -> dict[str, Any]:
    monkeypatch.setattr(work, "main_of", trains(largest))
    return work.training(study_in(place), "scratch", 1000, 3, chosen)


def test_the_usual_options_take_the_place_of_tuned_ones_that_diverge(tmp_path: Path, monkeypatch) -> None:
    usual = study_in(tmp_path).usual("scratch", 1000)
    found = trained(tmp_path, monkeypatch, usual.lr, TUNED)
    key = "scratch-train-1000-labels-draw-3"
    assert found["value"] == 50.0
    assert found["note"] == (
        "from scratch with 1,000 labels, draw 3: training with the tuned options diverged, so the usual ones were taken"
    )
    assert all((tmp_path / name).exists() for name in found["files"])
    assert found["files"] == [f"results/{key}.json", f"results/{key}.npz"]
    told = json.loads((tmp_path / "results" / f"{key}.json").read_text())["verdict"]
    assert f"--optim.lr {usual.lr}" in told["command"]
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("tuned", [True, False])
def test_a_number_is_missing_where_the_usual_options_diverge_too(tmp_path: Path, monkeypatch, tuned: bool) -> None:
    chosen = TUNED if tuned else study_in(tmp_path).usual("scratch", 1000)
    found = trained(tmp_path, monkeypatch, 0.0, chosen)
    assert found == {
        "failed": "diverged",
        "note": "from scratch with 1,000 labels, draw 3: training diverged, so there is no number",
    }
    assert not (tmp_path / "results").exists()
    assert not list((tmp_path / "work").iterdir())


def test_what_does_not_diverge_needs_no_note(tmp_path: Path, monkeypatch) -> None:
    assert "note" not in trained(tmp_path, monkeypatch, 10.0, TUNED)


def test_pre_training_that_diverges_leaves_its_method_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(work, "main_of", trains(0.0))
    assert work.pretrain(study_in(tmp_path), "mae", 0) == {"failed": "the loss is not finite"}


def test_a_trial_that_diverges_has_no_score(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(work, "main_of", trains(0.0))
    assert work.trial(study_in(tmp_path), "mae", 1000, 1, TUNED)["score"] is None
    assert not list((tmp_path / "work").iterdir())


def test_a_trial_without_any_metric_has_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No held-out image has one of several labels: then the usual options are taken."""

    def nothing(script: str) -> Callable[[Any], None]:
        def main(config: Any) -> None:
            trains(1.0)(script)(config)
            told = Path(config.run.dir) / "results" / "r.json"
            told.write_text(told.read_text().replace('"top1": 50.0', '"top1": null'))

        return main

    monkeypatch.setattr(work, "main_of", nothing)
    usual = study_in(tmp_path).usual("scratch", 1000)
    assert work.trial(study_in(tmp_path), "scratch", 1000, 0, usual._replace(lr=1e-3))["score"] is None
    monkeypatch.setattr(work, "main_of", trains(1.0))
    assert work.trial(study_in(tmp_path), "scratch", 1000, 1, usual._replace(lr=1e-3))["score"] == 50.0

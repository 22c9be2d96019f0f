"""The run directory: what it records, and what it refuses to mix."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.configs import FitConfig, PoolConfig, RunConfig, parse
from ssl_vit.configs.evaluation import JudgedMetricConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.core.notices import forget
from ssl_vit.methods.mae import MAEConfig, MAERecipe
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.verdict.options import Comparison, VerdictConfig, verdict_recipe


def started(run: RunDir) -> RunDir:
    run.log({"step": 1, "loss": 1.0})
    return run


def recipe(path: Path, **changes: object) -> MAERecipe:
    return replace(MAERecipe(run=RunConfig(str(path))), **changes)  # pyright: ignore[reportArgumentType]


def opened(config: MAERecipe, fingerprint: str = "f") -> RunDir:
    return open_run("mae", config, data="digits", fingerprint=fingerprint, writes=True, accelerator={"processes": 1})


def test_config_loads_back_and_environment_says_where_it_ran(tmp_path: Path) -> None:
    config = recipe(tmp_path / "run", mae=MAEConfig(mask_ratio=0.6))
    run = opened(config)
    assert parse(MAERecipe, "", ["--config", str(run.path / "config.yaml")]) == config
    about = json.loads((run.path / "environment.json").read_text())
    assert {"torch", "timm", "accelerate", "python", "ssl_vit"} <= set(about["versions"])
    assert about["hardware"]["processes"] == 1
    assert {"command", "commit", "data_fingerprint"} <= set(about)


def test_the_same_run_may_be_opened_again_with_options_that_change_nothing(tmp_path: Path) -> None:
    started(opened(recipe(tmp_path / "run")))
    again = recipe(
        tmp_path / "run",
        fit=FitConfig(epochs=900.0, log_every=3),
        data=PoolConfig(workers=3, cache="none", on_leak="warn"),
    )
    assert opened(again).path == tmp_path / "run"


def test_another_config_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    run = started(opened(recipe(tmp_path / "run")))
    before = (run.path / "config.yaml").read_text()
    with pytest.raises(UserError, match=r"mae\.mask_ratio .* -> 0\.5"):
        opened(recipe(tmp_path / "run", mae=MAEConfig(mask_ratio=0.5)))
    assert (run.path / "config.yaml").read_text() == before


def test_other_images_are_refused(tmp_path: Path) -> None:
    started(opened(recipe(tmp_path / "run")))
    with pytest.raises(UserError, match="other images"):
        opened(recipe(tmp_path / "run"), fingerprint="g")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(UserError, match="holds no run"):
        opened(recipe(tmp_path))
    with pytest.raises(UserError, match="is a file"):
        opened(recipe(tmp_path / "holiday.jpg"))
    assert (tmp_path / "holiday.jpg").read_bytes() == b"precious"


def test_default_directory_depends_on_what_changes_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = opened(MAERecipe()).path
    assert plain.parts[0] == "runs"
    assert opened(MAERecipe(fit=FitConfig(epochs=7.0))).path == plain
    assert opened(MAERecipe(preset="digits")).path == plain  # what it fills is in the other options
    assert opened(MAERecipe(seed=1)).path != plain
    assert opened(MAERecipe(), fingerprint="g").path != plain


def test_a_run_that_never_started_does_not_occupy_its_directory(tmp_path: Path) -> None:
    opened(recipe(tmp_path / "run"))
    run = opened(recipe(tmp_path / "run", mae=MAEConfig(mask_ratio=0.5)), fingerprint="g")
    assert "mask_ratio: 0.5" in (run.path / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"eval": JudgedMetricConfig(metric="balanced")}, r"eval\.metric auto -> balanced"),
     ({"preset": "px32"}, "preset None -> px32")],
)  # fmt: skip
def test_a_verdict_goes_on_with_the_metric_and_the_preset_it_began_with(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    def begun(config: Comparison) -> RunDir:
        config = replace(config, run=RunConfig(str(tmp_path / "v")))
        return open_run("verdict", config, data="digits", fingerprint="f", writes=True, accelerator={})

    (begun(verdict_recipe()()).path / "units").mkdir()
    begun(verdict_recipe()(verdict=VerdictConfig(jobs=1)))
    with pytest.raises(UserError, match=words):
        begun(replace(verdict_recipe()(), **changes))


def test_the_first_start_stays_on_record_and_later_ones_are_added(tmp_path: Path) -> None:
    first = started(opened(recipe(tmp_path / "run")))
    first.record("unreadable_images", ["a.png"])
    again = opened(recipe(tmp_path / "run", fit=FitConfig(epochs=9.0)))
    assert "epochs: 9.0" not in (first.path / "config.yaml").read_text()  # not before it is accepted
    again.confirm()
    assert "epochs: 9.0" in (first.path / "config.yaml").read_text()
    about = json.loads((first.path / "environment.json").read_text())
    assert about["unreadable_images"] == ["a.png"]
    assert [entry["script"] for entry in about["continued"]] == ["mae"]


def test_other_arithmetic_on_another_device_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def start(**hardware: object) -> str:
        forget()
        config = recipe(tmp_path / "run")
        run = open_run("mae", config, data="digits", fingerprint="f", writes=True, accelerator=hardware)
        run.confirm()
        started(run)
        return "".join(capsys.readouterr())

    here = {"mixed_precision": "bf16", "matrix_products": "oneDNN"}
    assert start(**here) == start(**here) == ""
    said = start(**here | {"mixed_precision": "no"})
    assert (
        said == "note: the run goes on with fp32, before it had bf16; where it can be had, --fit.precision keeps it\n"
    )
    assert start(**here | {"mixed_precision": "no"}) == ""  # compared with the start before, not with the first
    assert "goes on with torch's own choice, before it had oneDNN" in start(
        mixed_precision="no", matrix_products="torch's own choice"
    )


def test_rewind_forgets_later_steps_and_half_lines(tmp_path: Path) -> None:
    run = opened(recipe(tmp_path / "run"))
    for step in (10, 20, 30):
        run.log({"step": step, "loss": 1.0})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # the process died while writing
    run.rewind(20)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20]


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path, writes=False)
    run.log({"step": 1})
    run.write_result("knn", {})
    run.rewind(0)
    assert list(tmp_path.iterdir()) == []


def test_results_carry_their_origin(tmp_path: Path) -> None:
    path = RunDir(tmp_path, writes=True).write_result("knn", {"top1": 3.0})
    content = json.loads(path.read_text())
    assert content["top1"] == 3.0
    assert {"versions", "commit", "command", "hardware"} == set(content["made_with"])


def test_results_say_how_fast_training_was(tmp_path: Path) -> None:
    run = RunDir(tmp_path, writes=True)
    for step, speed in enumerate((10.0, 30.0, 20.0)):
        run.log({"step": step, "images_per_second": speed, "peak_memory": int(speed)}, "timing.jsonl")
    made_with = json.loads(run.write_result("knn", {}).read_text())["made_with"]
    assert made_with["training_speed"] == {"images_per_second": 20.0, "peak_memory": 30}


def test_writing_replaces_whole_files(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b.txt", "one")
    write_atomically(tmp_path / "a" / "b.txt", "two")
    assert (tmp_path / "a" / "b.txt").read_text() == "two"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]

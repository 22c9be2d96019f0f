"""The benchmarks of speed run, and their results say how they were made."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.core.processor import this_processor

ROOT = Path(__file__).resolve().parents[2]


def ran(*words: str) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHON": sys.executable}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr


def numbers(tree: Any) -> list[float]:
    """All of them, however deep."""
    if isinstance(tree, dict | list):
        return [n for part in (tree.values() if isinstance(tree, dict) else tree) for n in numbers(part)]
    return [tree] if isinstance(tree, int | float) else []


def check(folder: Path, name: str, sections: list[str], command: str) -> dict[str, Any]:
    """The result names what made it, in both files, and its numbers are numbers."""
    result = json.loads((folder / f"{name}.json").read_text())
    assert list(result) == sections
    text = (folder / f"{name}.md").read_text()
    for part in result.values():
        about = part["about"]
        assert about["command"].startswith(command)
        assert str(folder) not in about["command"]
        assert {"torch", "timm", "python", "ssl_vit"} <= set(about["versions"])
        assert {"cpu", "cores", "device"} <= set(about["hardware"])
        assert f"Made by `{about['command']}` at commit {about['commit']}" in text
        found = numbers(part["rows"])
        assert found
        assert all(math.isfinite(n) and n >= 0 for n in found)
    return result


def test_the_bare_step_is_timed_part_by_part_and_other_sections_are_kept(tmp_path: Path) -> None:
    hardware = {"cpu": "c", "cores": 1, "device": "CPU, one thread"}
    made = {"command": "python benchmarks/bench_step.py --before", "commit": "abc", "hardware": hardware, "rounds": 1}
    made["versions"] = dict.fromkeys(("torch", "timm", "python", "ssl_vit"), "1")
    row = {"shape": "s", "gflop_per_image": 1.0, "ceiling_gflops": 1.0, "programs": {}, "ratios": [], "missing": {}}
    before = {"about": made, "rows": [row]}
    (tmp_path / "step.json").write_text(json.dumps({"mae, c": before}))
    words = ["--tiny", "--rounds", "1", "--out", str(tmp_path), "--only", "dino", "supervised"]
    ran(sys.executable, "benchmarks/bench_step.py", *words)
    assert json.loads((tmp_path / "step.json").read_text())["mae, c"] == before  # another machine's
    here = this_processor().name
    sections = [f"dino, {here}", f"supervised, {here}", "mae, c"]
    result = check(tmp_path, "step", sections, "python benchmarks/bench_step.py")
    result = {name.partition(",")[0]: part for name, part in result.items()}
    for name in ("dino", "supervised"):
        shares = result[name]["rows"][0]["programs"]["ours"]["shares"]
        assert {"forward", "backward", "optimiser"} <= set(shares)
        assert math.isclose(sum(shares.values()), 1.0, abs_tol=1e-9)
    assert result["dino"]["rows"][0]["missing"] == {"facebookresearch/dino": "no --official_dino given"}
    ratio, same = result["supervised"]["rows"][0]["ratios"][:2]
    assert (ratio["theirs"], same["theirs"]) == ("timm", "timm, same library, fused optimiser")
    assert "against timm" in (tmp_path / "step.md").read_text()
    assert result["supervised"]["rows"][0]["programs"]["timm"]["loss_difference"] < 1e-4


def test_the_recipe_is_timed_beside_its_bare_step(tmp_path: Path) -> None:
    words = ["--tiny", "--rounds", "2", "--only", "loop", "--out", str(tmp_path)]
    ran(sys.executable, "benchmarks/bench_scale.py", *words)
    [row] = check(tmp_path, "scale", ["loop"], "python benchmarks/bench_scale.py")["loop"]["rows"]
    assert row["share"] > 0
    assert len(row["seconds"]["bare"]) == len(row["seconds"]["whole"]) == 2


def test_whole_loops_are_timed(tmp_path: Path) -> None:
    ran(sys.executable, "benchmarks/bench_whole.py", "--tiny", "--rounds", "1", "--only", "mae", "--out", str(tmp_path))
    rows = check(tmp_path, "whole", [f"mae, {this_processor().name}"], "python benchmarks/bench_whole.py")
    [found] = rows.values()
    assert [row["how"] for row in found["rows"]] == ["same library, fused optimiser", "as people run it"]
    assert all(len(row["ours"]) == 1 and row["ours"][0] > 0 and "ratio" not in row for row in found["rows"])


def test_the_leak_guard_is_looked_at(tmp_path: Path) -> None:
    ran(sys.executable, "benchmarks/bench_leaks.py", "--tiny", "--only", "alarms", "--out", str(tmp_path))
    rows = check(tmp_path, "leaks", ["alarms"], "python benchmarks/bench_leaks.py")["alarms"]["rows"]
    assert {"digits", "strokes", "textures", "blank tiles", "blobs"} == set(rows)
    assert all(len(row["alarms"]) == row["pairs_of_sets"] == 2 for row in rows.values())


def test_both_layouts_of_a_network_are_timed(tmp_path: Path) -> None:
    ran(sys.executable, "benchmarks/bench_layout.py", "--cases", "0", "--rounds", "1", "--out", str(tmp_path))
    result = json.loads((tmp_path / "layout.json").read_text())["fp32"]
    [row] = result["rows"]
    assert row["network"] == "resnet18"
    assert min(row["apart_ms"], row["together_ms"], row["ratio"]) > 0
    assert f"Made by `{result['about']['command']}`" in (tmp_path / "layout.md").read_text()


def test_the_suite_for_a_gpu_runs_whole_on_a_cpu_with_toys(tmp_path: Path) -> None:
    ran("bash", "benchmarks/gpu_suite.sh", "--tiny", "--rounds", "1", "--out", str(tmp_path))
    sections = ["mae-b", "mae-l", "dino-s", "supervised-b", "cifar"]
    result = check(tmp_path, "suite", sections, "bash benchmarks/gpu_suite.sh")
    for part in result.values():
        timed = {row["program"] for row in part["rows"] if "ms" in row}
        assert {"eager, bare step", "eager, end to end"} <= timed


def test_advice_is_looked_at_in_hindsight(tmp_path: Path) -> None:
    pytest.importorskip("ssl_vit.report.findings.recommendation")
    words = ["--tiny", "--only", "digits", "--work", str(tmp_path / "v"), "--out", str(tmp_path)]
    ran(sys.executable, "benchmarks/bench_verdict.py", *words)
    result = json.loads((tmp_path / "verdict.json").read_text())
    cells = result["rows"]["digits"]["cells"]
    assert [one["labels"] for one in cells] == [10, 1438]
    assert all(one["advised"] and 0 <= one["realised"] <= 100 and 0 <= one["best"] <= 100 for one in cells)
    assert f"Made by `{result['about']['command']}`" in (tmp_path / "verdict.md").read_text()

"""README's table of speed says what the result files say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MACHINES = {"Intel": "Intel(R) Xeon(R) Processor, family 6 model 207 stepping 2",
            "Zen 4": "AMD EPYC, family 25 model 17 stepping 1",
            "Zen 5": "AMD EPYC, family 26 model 2 stepping 1"}  # fmt: skip


def cells(begin: str) -> list[str]:
    """What is right of the row's name and of what it is measured against."""
    [line] = [row for row in (ROOT / "README.md").read_text().splitlines() if row.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.split("|")][3:-1]


def rows(name: str, part: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text())[part]["rows"]


def numbers(text: str) -> list[str]:
    """Ratios, which have two digits behind the point."""
    return re.findall(r"\d+\.\d\d(?!\d)", text)


def ratios(objective: str, shape: str, theirs: str, ours: str) -> list[str]:
    found = []
    for machine in MACHINES.values():
        [row] = [row for row in rows("step", f"{objective}, {machine}") if row["shape"].startswith(shape)]
        [ratio] = [r["ratio"] for r in row["ratios"] if (r["theirs"], r["ours"]) == (theirs, ours)]
        found.append(f"{ratio:.2f}")
    return found


def test_steps() -> None:
    dino = "ViT-Ti/4, 32 px + 6 x 16 px, out_dim 65,536, batch 32, drop path 0.1"
    for objective, begin, shape in (
        ("mae", "[MAE's step, ViT-Ti/4 at 32 px, batch 16]", "ViT-Ti/4, 32 px, decoder 192 x 4, batch 16"),
        ("dino", "[DINO's step]", dino),
    ):
        same, usual, low = cells(begin)
        peer = f"facebookresearch/{objective}"
        expected = ratios(objective, shape, f"{peer}, same library, fused optimiser", "ours")
        assert same == ", ".join(f"{name} {value}" for name, value in zip(MACHINES, expected, strict=True))
        assert numbers(usual) == ratios(objective, shape, peer, "ours")
        assert numbers(low) == ratios(objective, shape, peer, "ours, bf16")


def test_whole_loops() -> None:
    same, _, low = cells("[the whole loop]")
    measured = [(objective, name) for objective in ("mae", "dino") for name in ("Zen 4", "Zen 5")]
    parts = [rows("whole", f"{objective}, {MACHINES[name]}") for objective, name in measured]
    for cell, how in ((same, "same library, fused optimiser"), (low, "as people run it")):
        assert numbers(cell) == [f"{median(r['ratio']):.2f}" for part in parts for r in part if r["how"] == how]


def test_nearest_neighbours() -> None:
    _, usual, _ = cells("[k-NN]")
    expected = []
    for among in ("400,000 x 384 against 1,000", "50,000 x 384 against 10,000"):
        for machine in MACHINES.values():
            [row] = [r for r in rows("eval", f"eval, {machine}")
                     if r["what"].startswith(f"k-NN, {among}") and r["against"].startswith("faiss")]  # fmt: skip
            expected.append(f"{row['ratio']:.2f}")
    assert numbers(usual) == expected


def test_a_gpu() -> None:
    _, usual, _ = cells("[H200]")
    found = {
        (part, row["program"]): f"{row['ratio']:.2f}"
        for part in ("mae-b", "mae-l", "dino-s", "supervised-b")
        for row in rows("gpu-nvidia-h200/suite", part)
        if row.get("ratio") is not None
    }
    expected = [found[part, f"{how}, end to end"] for how in ("compiled", "eager")
                for part in ("mae-b", "mae-l", "dino-s", "supervised-b")]  # fmt: skip
    assert numbers(usual) == expected


def test_the_page_of_runs() -> None:
    parts = json.loads((RESULTS / "step.json").read_text())
    told = " ".join((ROOT / "docs/runs.md").read_text().split())
    spans = {"same library": [], "usual": []}
    for name in ("Zen 4", "Zen 5", "Intel"):
        for way, span in spans.items():
            values = [ratio["ratio"] for part in ("mae", "dino", "supervised")
                      for row in parts[f"{part}, {MACHINES[name]}"]["rows"] for ratio in row["ratios"]
                      if (ratio["theirs"].endswith("fused optimiser"), ratio["ours"])
                      == ((True, "ours") if way == "same library" else (False, "ours, bf16"))
                      and ratio["theirs"].startswith(("facebookresearch", "timm"))]  # fmt: skip
            span.append((min(values), max(values)))
    zen4, zen5, intel = (f"{low:.2f} to {high:.2f}" for low, high in spans["same library"])
    assert f"{zen4} times as long as ours on a Zen 4, {zen5} times on a Zen 5, and {intel} times on a Xeon" in told
    zen4, zen5, intel = (f"{low:.1f} to {high:.1f}" for low, high in spans["usual"])
    assert f"as people run them, {zen4} times, {zen5} and {intel}, is the library and bf16" in told
    [(_, start, _)] = [json.loads((RESULTS / "start.json").read_text())[f"all, {MACHINES['Zen 4']}"]["rows"]["after"]]
    assert f"to the first step on digits it takes {start:.1f} seconds of a Zen 4's core" in told

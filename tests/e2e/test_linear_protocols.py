"""Every linear protocol by its name, from a backbone to a result file that says what was done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TRAINED = ["--fit.epochs", "0.1", "--fit.min_steps", "12"]
SHORT = {
    "cached": ["--linear.min_steps", "20", "--linear.passes", "0.5", "--linear.rates", "[1.0]"],
    "logistic": ["--linear.grid", "[0.1]"], "aug-mae": TRAINED, "aug-dino": TRAINED, "attentive": TRAINED,
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "name", "file", "methods", "pools"),
    [
        ("cached", "linear-cached", "linear-cached", 3, {"cls", "mean", "cls4", "cls+mean", "pixels"}),
        ("logistic", "logistic", "logistic", 3, {"mean", "pixels"}),
        ("aug-mae", "linear-aug (MAE)", "linear-aug-mae", 2, {"cls"}),
        ("aug-dino", "linear-aug (DINO)", "linear-aug-dino", 2, {"cls4"}),
        ("attentive", "attentive", "attentive", 2, {"tokens"}),
    ],
)
def test_protocol(backbone: str, script, protocol: str, name: str, file: str, methods: int, pools: set[str]) -> None:
    words = ["--backbone", backbone, "--linear.protocol", protocol, "--run.dir", "out", *SHORT[protocol]]
    status, out, err = script("eval/linear_probe.py", *words, "--eval.labels", "200")
    assert status == 0, err
    assert name in out
    result = json.loads(Path(f"out/results/{file}-200-labels-draw-0.json").read_text())
    assert result["method"] == name
    assert [row["method"] for row in result["rows"]] == ["MAE", "random weights", "raw pixels"][:methods]
    assert {row["pool"] for row in result["rows"]} <= pools
    assert result["protocol"]["linear"]["protocol"] == protocol
    assert all(row["images"] == 359 for row in result["rows"])
    if protocol.startswith("aug") or protocol == "attentive":
        assert result["rows"][0]["steps"] == 12
        trained = result["rows"][0]["trained_with"]
        assert trained["optim"]["name"] in ("lars", "sgd", "adamw")
        assert trained["fit"]["batch_size"] == 32
        # The same command finds both heads trained.
        status, out, err = script("eval/linear_probe.py", *words, "--eval.labels", "200")
        assert status == 0, err
        assert out.count("already complete") == 2
        again = json.loads(Path(f"out/results/{file}-200-labels-draw-0.json").read_text())
        assert again["rows"] == result["rows"]
        assert len(list(Path("out/linear_probe").glob("*/*/checkpoints/*.pt"))) == 2
    else:
        assert not Path("out/linear_probe").exists()


def test_protocols_have_hashes_of_their_own(backbone: str, script) -> None:
    found = set()
    cached, logistic = SHORT["cached"], ["--linear.protocol", "logistic", *SHORT["logistic"]]
    for words in (cached, [*cached, "--linear.pool", "mean"], logistic):
        few = ["--eval.labels", "20", "--eval.baselines", "false", "--run.dir", "out"]
        status, out, err = script("eval/linear_probe.py", "--backbone", backbone, *few, *words)
        assert status == 0, err
        path = Path(out.rpartition("Result: ")[2].strip())
        found.add(json.loads(path.read_text())["protocol_hash"])
    assert len(found) == 3


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--optim.lr", "0.1"], "--optim.lr"),
        (["--linear.grid", "[1.0]"], "--linear.grid"),
        (["--linear.protocol", "logistic", "--linear.rates", "[1.0]"], "--linear.rates"),
        (["--linear.protocol", "aug-mae", "--linear.heads", "2"], "--linear.heads"),
    ],
)
def test_options_without_effect_are_refused(backbone: str, script, words: list[str], named: str) -> None:
    status, _, err = script("eval/linear_probe.py", "--backbone", backbone, "--run.dir", "out", *words)
    assert status == 1
    assert err.startswith(f"error: {named} has no effect")

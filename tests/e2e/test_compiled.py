"""--fit.compile through the whole script: the compiler's real code, and the losses of a run without it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

TINY = ["--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--fit.batch_size", "32"]
# In fp32: where a CPU chooses bf16, compiled code rounds in other places.
STEPS = ["--fit.epochs", "0.13", "--fit.log_every", "1", "--fit.precision", "fp32"]
OWN = {
    "mae": ["--mae.decoder_width", "16", "--mae.decoder_depth", "1", "--mae.decoder_heads", "2"],
    "dino": ["--dino.out_dim", "64", "--crops.local_crops", "2"],
}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code is kept: torch's headers are compiled once for all recipes."""
    return tmp_path_factory.mktemp("code")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("recipe", OWN)
def test_a_compiled_run_has_the_losses_of_one_that_is_not(
    recipe: str, launched, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, losses = set(code.rglob("*.cpp")), {}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(code))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that import torch to compile so little
    for compiled in ("false", "true"):
        words = [*TINY, *STEPS, *OWN[recipe], "--fit.compile", compiled, "--run.dir", compiled]
        done = launched(f"recipes/{recipe}.py", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / compiled / "metrics.jsonl").read_text().splitlines()
        losses[compiled] = [json.loads(line)["loss"] for line in lines]
        assert (tmp_path / compiled / "backbone" / "model.safetensors").exists()
    assert len(losses["true"]) == 6
    assert losses["true"] == pytest.approx(losses["false"], rel=1e-5)
    assert set(code.rglob("*.cpp")) - before  # something was compiled

"""A termination signal to the whole process group, as schedulers send it, while loader processes run."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_signal_to_the_group_saves_and_stops_cleanly(
    photos: Path, launched, tmp_path: Path, small: list[str]
) -> None:
    words = [
        "--data.path", "photos", "--data.cache", "none", "--data.workers", "2", *small, "--fit.batch_size", "16",
        "--fit.epochs", "4", "--fit.log_every", "1", "--run.dir",
    ]  # fmt: skip
    whole = launched("recipes/mae.py", *words, "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    stopper = tmp_path / "stopper.py"
    stopper.write_text(
        "import os, runpy, signal, sys\n"
        "from ssl_vit.objectives.mae import MAE\n"
        "def after_step(self, clock):\n"
        "    if clock.step == 5:\n"
        "        os.killpg(os.getpgid(0), signal.SIGTERM)\n"
        "MAE.after_step = after_step\n"
        f"sys.argv = ['mae.py', *{[*words, 'stopped']!r}]\n"
        f"runpy.run_path({str(ROOT / 'recipes/mae.py')!r}, run_name='__main__')\n"
    )
    stopped = launched(stopper, cwd=tmp_path)
    assert stopped.returncode == 75, stopped.stderr
    assert "stopped after step 6, which is saved; the same command continues" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    again = launched("recipes/mae.py", *words, "stopped", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "continues after step 6" in again.stdout
    assert (tmp_path / "stopped" / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()

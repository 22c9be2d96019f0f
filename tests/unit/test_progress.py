"""What a run shows of itself."""

from __future__ import annotations

import re
import sys

import pytest
from ssl_vit.training.progress import TrainingProgress

TIMING = {"data_wait": 0.034, "mfu": 0.417, "peak_memory": 1.5 * 2**30}


def test_lines_say_how_the_time_was_spent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress(20, 0, 8, True)
    for step in range(1, 5):
        progress.update(step)
        if step > 1:
            progress.show(step, 0.25, TIMING, skipped=step - 2)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # one for every tenth of the run
    shares = r"data 3 %  mfu 42 %  1\.5 GB"
    assert re.fullmatch(rf"step 2/20  loss 0\.2500  [\d,]+ images/s  {shares}  \d+ s left", lines[0])
    assert f"{shares}  2 skipped".replace("\\", "") in lines[1]  # by fp16


def test_the_bar_says_so_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = TrainingProgress(20, 0, 8, True)
    assert progress.bar is not None
    progress.show(2, 0.25, TIMING)
    progress.update(3)
    text = progress.bar.tasks[0].fields["text"]
    assert re.fullmatch(r"loss 0\.2500  [\d,]+ images/s  data 3 %  mfu 42 %  1\.5 GB", text)
    assert progress.bar.tasks[0].completed == 3
    progress.close()


def test_other_processes_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress(20, 0, 8, False)
    progress.update(2)
    progress.show(2, 0.25, TIMING)
    progress.close()
    assert capsys.readouterr().err == ""

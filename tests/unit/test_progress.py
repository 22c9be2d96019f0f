"""What a run shows of itself."""

from __future__ import annotations

import re
import sys

import pytest
from ssl_vit.progress import TrainingProgress


def test_lines_say_how_much_of_the_time_was_spent_waiting_for_data(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress(20, 0, 8, True)
    progress.update(1, None)
    progress.update(2, 0.25, 0.034)
    progress.update(3, 0.25, 0.034)
    progress.update(4, 0.125, 0.996)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"step 2/20  loss 0\.2500  [\d,]+ images/s  data 3 %  \d+ s left", lines[0])
    assert "  data 100 %  " in lines[1]


def test_the_bar_says_so_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = TrainingProgress(20, 0, 8, True)
    assert progress.bar is not None
    progress.update(2, 0.25, 0.034)
    progress.update(3, None)
    assert re.fullmatch(r"[\d,]+ images/s, data 3 %, loss 0\.2500", progress.bar.tasks[0].fields["text"])
    assert progress.bar.tasks[0].completed == 3
    progress.close()

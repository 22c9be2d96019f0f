"""What a run shows of itself."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once, settle, write_line
from ssl_vit.script import mistakes_told
from ssl_vit.training.progress import TrainingProgress
from ssl_vit.training.stopping import TIME_OVER, leave

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


class Full(io.StringIO):
    """A log on a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    progress = TrainingProgress(20, 0, 8, True)
    for step in range(1, 21):
        progress.update(step)
        progress.show(step, 0.25, TIMING)
    progress.tell("forecast")
    say_once("note: something")
    progress.close()
    for number, status in ((SIGTERM, 75), (TIME_OVER, 75), (SIGINT, 130)):
        with pytest.raises(SystemExit) as end:
            leave(number, 20, True)
        assert end.value.code == status
    with pytest.raises(SystemExit) as end, mistakes_told():
        raise UserError("a mistake")
    assert end.value.code == 1


def test_what_could_not_be_written_is_forgotten_and_later_lines_are_not(tmp_path: Path) -> None:
    """Python would try again at its end, and end with status 120."""

    class Filling(io.FileIO):
        full = True

        def write(self, content: Any) -> int:
            if self.full and os.fstat(self.fileno()).st_ino == place.stat().st_ino:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content) or 0

    place = tmp_path / "log"
    raw = Filling(place, "w")
    with io.TextIOWrapper(io.BufferedWriter(raw)) as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        write_line("lost")
        raw.full = False
        write_line("kept")
        raw.full = True
        stream.write("lost, too")
        settle(stream)
        raw.full = False
    assert place.read_text() == "kept\n"

"""Processes part before Python shuts down: a thread of the group that outlives it aborts a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists threads where Linux shows them")

PROGRAM = """
import atexit, os, sys
from pathlib import Path

def threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    left = sum("gloo" in name for name in names)
    Path(f"left-{{os.environ['RANK']}}").write_text(f"{{before}} then {{left}}")

atexit.register(threads)  # the first to be registered is the last to run

import torch
from ssl_vit.training import launch

def main():
    global before
    accelerator = launch.join()
    model = accelerator.prepare(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    accelerator.wait_for_everyone()
    before = sum("gloo" in (task / "comm").read_text() for task in Path("/proc/self/task").iterdir())
    {end}

main()
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit(1)"])
def test_no_thread_of_the_group_is_left(end: str, launch, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(end=end))
    done = launch(2, str(script), cwd=tmp_path)
    assert (done.returncode == 0) == (end == "pass"), done.stderr
    for rank in range(2):
        before, left = (tmp_path / f"left-{rank}").read_text().split(" then ")
        assert int(before) > 0, "the program should have had threads to end"
        assert int(left) == 0
    assert "Warning" not in done.stderr

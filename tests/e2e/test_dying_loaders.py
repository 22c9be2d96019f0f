"""A loader process is killed while a whole run trains: it goes on bit for bit, or ends with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DYING = """
import multiprocessing, os, runpy, signal, sys
from pathlib import Path
from ssl_vit.data.sources.folder import FileRows

raw, times = FileRows.raw, {times}

def dying(self, row):
    if self.where(row).endswith({name!r}) and multiprocessing.parent_process() is not None:
        for n in range(times):
            try:
                Path(f"death-{{n}}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.{how})
    return raw(self, row)

FileRows.raw = dying
sys.argv = {words!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("cache", ["none", "ram"])
@pytest.mark.parametrize(("how", "times"), [("SIGKILL", 1), ("SIGSEGV", 1000), ("SIGKILL", 1000)])
def test_a_run_goes_on_without_a_loader_process_that_died(
    photos: Path, launched, tmp_path: Path, small: list[str], cache: str, how: str, times: int
) -> None:
    """Dead once, nothing is lost; crashed always, the image is as one that cannot be read; killed always, no image is
    to blame, and the run ends."""
    victim = "dark/03.png"
    words = [
        "--data.path", "photos", "--data.on_leak", "warn", "--data.cache", cache, "--data.workers", "2", *small,
        "--fit.batch_size", "16", "--fit.epochs", "3", "--fit.log_every", "1", "--run.dir",
    ]  # fmt: skip
    script = tmp_path / "dying.py"
    program = [str(ROOT / "recipes/mae.py"), *words, "died"]
    script.write_text(DYING.format(times=times, name=victim, how=how, words=program))
    died = launched(script, cwd=tmp_path)
    assert f"warning: a loader process ended while it decoded photos/{victim}: ended by {how}" in died.stderr
    deaths = len(list(tmp_path.glob("death-*")))
    if (how, times) == ("SIGKILL", 1000):
        assert died.returncode == 1, died.stderr
        assert died.stderr.splitlines()[-1].startswith(
            "error: loader processes end again and again, the last one while"
        )
        assert "memory (or /dev/shm) does not suffice" in died.stderr and "Traceback" not in died.stderr
    else:
        assert died.returncode == 0, died.stderr
    # The second is the last that counts; the other process may end at that image, too, before it is told of it.
    assert deaths == 1 if times == 1 else deaths in (2, 3)
    if died.returncode:
        return
    if times == 1:
        whole = launched("recipes/mae.py", *words, "whole", cwd=tmp_path)
        assert whole.returncode == 0, whole.stderr
        for name in ("metrics.jsonl", "backbone/model.safetensors"):
            assert (tmp_path / "died" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    else:
        assert "cannot be read (two loader processes ended while they decoded it: ended by SIGSEGV" in died.stderr
